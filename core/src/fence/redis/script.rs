use std::fmt;
use std::sync::{Arc, LazyLock};

use fred::util::sha1_hash;

/// The check in front of every script, as one line: see `guard.lua`.
static GUARD: LazyLock<String> = LazyLock::new(|| {
    let lines = include_str!("guard.lua").lines().map(str::trim);
    let code: Vec<_> = lines.filter(|line| !line.starts_with("--")).collect();
    code.join(" ")
});

/// Runs any one command with one key.
pub(super) static COMMAND: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))"));

/// A Lua script to run behind the token check, with [`Fenced::script`](super::Fenced::script).
///
/// Write it as for `EVAL`: `KEYS` and `ARGV` are its own, its return value is the reply, and it must touch no
/// keys outside `KEYS`. It has no `#!` line. Making one does no I/O but computes a hash, so keep it, for
/// instance in a `LazyLock`. It is cheap to clone.
///
/// ```
/// use std::sync::LazyLock;
/// use leasehold::fence::redis::Script;
///
/// static TAKE_ONE: LazyLock<Script> = LazyLock::new(|| {
///     Script::new(
///         "if tonumber(redis.call('GET', KEYS[1]) or 0) < 1 then
///              return false
///          end
///          return redis.call('DECR', KEYS[1])",
///     )
/// });
/// # let _ = &*TAKE_ONE;
/// ```
#[derive(Clone)]
pub struct Script(Arc<Inner>);

struct Inner {
    text: String,
    sha: String,
}

impl Script {
    /// Puts the check in front of a script.
    ///
    /// The server checks the Lua, not this function. If it is invalid, the call fails with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) before any of it runs.
    ///
    /// ```
    /// use leasehold::fence::redis::Script;
    ///
    /// let publish = Script::new("return redis.call('RENAME', KEYS[1], KEYS[2])");
    /// # let _ = publish;
    /// ```
    pub fn new(lua: impl AsRef<str>) -> Self {
        // In front of the text, not around it: no text can break out of an enclosing block and run before the
        // check.
        let text = format!("{} {}", *GUARD, lua.as_ref());
        let sha = sha1_hash(&text);
        Self(Arc::new(Inner { text, sha }))
    }

    pub(super) fn text(&self) -> &str {
        &self.0.text
    }

    pub(super) fn sha(&self) -> &str {
        &self.0.sha
    }
}

/// Like [`Script::new`].
impl From<&str> for Script {
    fn from(lua: &str) -> Self {
        Self::new(lua)
    }
}

impl From<&Script> for Script {
    fn from(script: &Script) -> Self {
        script.clone()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.0.sha).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a comment at the end of a line of `guard.lua`: it would comment out the user's script.
    #[test]
    fn the_guard_is_one_line_of_code() {
        let script = Script::new("return 1");
        assert!(script.text().ends_with("end return 1"), "{}", script.text());
        assert!(!script.text().contains("--") && !script.text().contains('\n'));
    }
}

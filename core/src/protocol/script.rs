//! The Lua script, in the form in which it is sent.

/// The Lua script that executes a batch, for `EVAL` and `EVALSHA` on Redis 7.0 or newer; without the
/// comments of its source in `protocol/lua`, which are a third of it.
pub const SCRIPT: &str = match str::from_utf8(&TEXT) {
    Ok(text) => text,
    Err(_) => panic!("the script is not UTF-8"),
};

/// The SHA-1 of [`SCRIPT`] in hexadecimal, for `EVALSHA`.
pub const SCRIPT_SHA: &str = "eee697e1a3eb0ba0f985c1746448de11e978cf11";

/// Whether an error of `EVALSHA` says that the server has not got the script, so that [`SCRIPT`] itself
/// is to be sent.
///
/// ```
/// assert!(leasehold::protocol::script_is_missing("NOSCRIPT No matching script. Please use EVAL."));
/// ```
pub fn script_is_missing(text: &str) -> bool {
    text.starts_with("NOSCRIPT")
}

const SOURCE: &str = concat!(
    include_str!("lua/prelude.lua"),
    include_str!("lua/take.lua"),
    "local function make_rest()\n",
    include_str!("lua/rest/call.lua"),
    include_str!("lua/rest/token.lua"),
    include_str!("lua/rest/holder.lua"),
    include_str!("lua/rest/line.lua"),
    include_str!("lua/rest/acquire.lua"),
    include_str!("lua/rest/leave.lua"),
    include_str!("lua/rest/force_release.lua"),
    include_str!("lua/rest/inspect.lua"),
    include_str!("lua/rest/list.lua"),
    include_str!("lua/rest/find.lua"),
    "end\n",
    include_str!("lua/acquire.lua"),
    include_str!("lua/renew.lua"),
    include_str!("lua/release.lua"),
    include_str!("lua/batch.lua"),
);

const TEXT: [u8; LENGTH] = stripped().0;
const LENGTH: usize = stripped::<0>().1;

/// The source without indentation, empty lines and lines that are comments, as far as it fits; and
/// how long that is.
const fn stripped<const N: usize>() -> ([u8; N], usize) {
    let source = SOURCE.as_bytes();
    let (mut text, mut length) = ([0; N], 0);
    let mut at = 0;
    while at < source.len() {
        while source[at] == b' ' {
            at += 1;
        }
        let is_comment = source[at] == b'-' && source[at + 1] == b'-';
        let is_kept = !is_comment && source[at] != b'\n';
        let mut is_line = true;
        while is_line {
            if is_kept {
                if length < N {
                    text[length] = source[at];
                }
                length += 1;
            }
            is_line = source[at] != b'\n';
            at += 1;
        }
    }
    (text, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_its_source_without_comments() {
        let lines = SOURCE.lines().map(str::trim_start);
        let kept = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
        let expected: String = kept.flat_map(|line| [line, "\n"]).collect();
        assert_eq!(SCRIPT, expected);
    }

    /// Catches a script that was changed without its hash: every call would send it whole.
    #[cfg(feature = "native")]
    #[test]
    fn the_hash_is_of_the_script() {
        let hash = fred::util::sha1_hash(SCRIPT);
        assert_eq!(SCRIPT_SHA, hash, "SCRIPT_SHA has to be {hash:?}");
    }
}

//! What a server's error text means.

use crate::error::{Error, ErrorKind};

/// The oldest Redis with all the commands of the script.
const OLDEST: u32 = 7;

/// What a user of the server has to be allowed: as README has it, and a test for each of them.
const RIGHTS: &str = "; a user of the locks needs on the keys ~{NAMESPACE:* +eval +evalsha +time \
                      +exists +get +set +del +incr +decr +pexpire +pexpireat +pexpiretime +persist \
                      +zadd +zcard +zcount +zmscore +zrange +zrangebyscore +zrank +zrem +zscore; to \
                      be told at once, on the channels &leasehold:NAMESPACE:* +subscribe +publish \
                      +pubsub|numsub; to list +scan; and for a database in the URL +select";

/// The typed form of a server's error text, such as `WRONGTYPE Operation against …`; with the
/// key that it is about, where that is known.
///
/// ```
/// use leasehold::{protocol::server_error, ErrorKind};
///
/// let error = server_error("LOADING Redis is loading the dataset in memory", None);
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// ```
pub fn server_error(text: &str, key: Option<&str>) -> Error {
    if let Some(refusal) = credentials_refused(text) {
        return Error::new(ErrorKind::Auth, refusal);
    }
    let text = printable(text);
    let code = text.split(' ').next().unwrap_or_default();
    let (kind, advice) = meaning(code, &text);
    let text = text.trim_end().trim_end_matches('.');
    let about = key
        .map(|key| format!(" about the key \"{}\"", printable(key)))
        .unwrap_or_default();
    Error::new(kind, format!("the server answered{about}: {text}{advice}"))
}

/// What is said of refused credentials, in words that are not the server's: those would be hidden
/// from whoever has the password `user`.
pub(crate) fn credentials_refused(text: &str) -> Option<&'static str> {
    match text.split(' ').next() {
        Some("WRONGPASS") => Some(
            "the server refused the user or password (WRONGPASS); check the user and password in \
             the URL",
        ),
        Some("NOAUTH") => {
            Some("the server asks for a password (NOAUTH); give the user and password in the URL")
        }
        _ => None,
    }
}

/// Whether a server's refusal of `INFO` is let pass: who may not look may still lock, and the script,
/// which is asked next, finds out the rest.
///
/// ```
/// use leasehold::protocol::info_is_withheld;
///
/// assert!(info_is_withheld("NOPERM User poor has no permissions to run the 'info' command"));
/// assert!(!info_is_withheld("LOADING Redis is loading the dataset in memory"));
/// ```
pub fn info_is_withheld(text: &str) -> bool {
    server_error(text, None).kind() == ErrorKind::Auth
}

/// Whether a server can keep locks, from sections of its `INFO`: [`ErrorKind::Unsupported`] if it is
/// older than 7.0, [`ErrorKind::ReadOnly`] if it is a replica. What it does not say is taken for
/// good.
///
/// ```
/// use leasehold::{protocol::check_server, ErrorKind};
///
/// let error = check_server("redis_version:6.2.14\r\n").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Unsupported);
/// ```
pub fn check_server(info: &str) -> Result<(), Error> {
    if let Some(version) = info_field(info, "redis_version") {
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major < OLDEST) {
            let version = printable(version);
            let message = format!("the server is of version {version}; {OLDEST}.0 is needed");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    if info_field(info, "role") == Some("slave") {
        let message = "the server is a read-only replica; connect to the primary";
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    Ok(())
}

/// The value of a field of `INFO`.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(value).map(str::trim)
}

/// A hostile or broken server does not get to fill logs, or to write lines of its own there.
pub(crate) fn printable(said: &str) -> String {
    let plain = |character: char| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    };
    said.chars().take(300).map(plain).collect()
}

fn meaning(code: &str, text: &str) -> (ErrorKind, &'static str) {
    // The search of the standard library would be some kilobytes of what a browser loads.
    let has = |part: &str| {
        let mut windows = text.as_bytes().windows(part.len());
        windows.any(|window| window == part.as_bytes())
    };
    match code {
        "WRONGTYPE" => (
            ErrorKind::WrongType,
            "; something other than leasehold wrote that key: use another name or namespace",
        ),
        "NOPERM" => (ErrorKind::Auth, RIGHTS),
        "READONLY" => (ErrorKind::ReadOnly, "; connect to the primary"),
        "LOADING" | "BUSY" | "TRYAGAIN" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "OOM"
        | "MISCONF" => (ErrorKind::Unavailable, ""),
        // Of a command inside the script: before Redis 7.2, and after.
        _ if has("The user executing the script can't") || has("ACL failure in script") => {
            (ErrorKind::Auth, RIGHTS)
        }
        _ if has("max number of clients") => (ErrorKind::Unavailable, ""),
        _ if has("DB index is out of range") => (
            ErrorKind::Config,
            "; the database in the URL does not exist on this server",
        ),
        _ if has("value is not an integer") => (
            ErrorKind::WrongType,
            "; something other than leasehold wrote that key",
        ),
        _ if has("invalid password") || has("AUTH <password>") => (ErrorKind::Auth, ""),
        _ => (ErrorKind::Store, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_decides() {
        let cases = [
            ("WRONGPASS invalid username-password pair", ErrorKind::Auth),
            ("NOAUTH Authentication required.", ErrorKind::Auth),
            (
                "READONLY You can't write against a read only replica.",
                ErrorKind::ReadOnly,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                ErrorKind::Unavailable,
            ),
            ("ERR DB index is out of range", ErrorKind::Config),
            (
                "ERR value is not an integer or out of range",
                ErrorKind::WrongType,
            ),
            ("OOM command not allowed", ErrorKind::Unavailable),
            ("NOPERM this user has no permissions", ErrorKind::Auth),
            ("ERR max number of clients reached", ErrorKind::Unavailable),
            ("ERR something else", ErrorKind::Store),
            ("", ErrorKind::Store),
        ];
        for (text, kind) in cases {
            assert_eq!(server_error(text, None).kind(), kind, "{text:?}");
        }
    }

    #[test]
    fn a_right_that_is_missing_inside_the_script_is_named() {
        let texts = [
            "ERR The user executing the script can't run this command or subcommand script: 1f, \
             on @user_script:1.",
            "ERR The user executing the script can't access at least one of the keys mentioned in \
             the command arguments script: 1f, on @user_script:1.",
            "NOPERM ACL failure in script: User poor has no permissions to run the 'set' command \
             script: 1f, on @user_script:1.",
            "ERR ACL failure in script: No permissions to access a key",
        ];
        for text in texts {
            let error = server_error(text, None);
            assert_eq!(error.kind(), ErrorKind::Auth, "{text:?}");
            assert!(error.to_string().contains("+zmscore"), "{error}");
        }
    }

    #[test]
    fn what_a_server_says_stays_on_one_line() {
        let error = server_error("ERR a\r\nforged line \u{1b}[31m", None).to_string();
        assert!(!error.contains(char::is_control), "{error:?}");
    }

    #[test]
    fn long_texts_are_cut() {
        assert!(server_error(&"x".repeat(10_000), None).to_string().len() < 400);
    }

    #[test]
    fn old_servers_and_replicas_are_refused() {
        let check = |info: &str| check_server(info).map_err(|error| error.kind());
        assert_eq!(check("redis_version:7.0.15\r\nrole:master\r\n"), Ok(()));
        assert_eq!(check("redis_version:10.1\r\n"), Ok(()));
        assert_eq!(check("nothing of use"), Ok(()));
        assert_eq!(
            check("redis_version:6.2.14\r\n"),
            Err(ErrorKind::Unsupported)
        );
        assert_eq!(
            check("role:slave\r\nmaster_host:x\r\n"),
            Err(ErrorKind::ReadOnly)
        );
    }
}

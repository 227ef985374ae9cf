//! The meaning of a server's error texts.

use super::key::prefix;
use super::rights;
use crate::advice::Advice;
use crate::error::{Error, ErrorKind};
use crate::limits;
use crate::rows::{count, rows};

/// The oldest Redis version that has all commands of the script.
const OLDEST: u32 = 7;

/// Converts a server's error text, such as `WRONGTYPE Operation against …`, to a typed error. `key` is the
/// key that the error is about, where that is known.
///
/// ```
/// use leasehold_engine::{protocol::server_error, ErrorKind};
///
/// let error = server_error("LOADING Redis is loading the dataset in memory", None);
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// ```
pub fn server_error(text: &str, key: Option<&str>) -> Error {
    refused(text, key, key)
}

/// Converts a server's error text to a typed error as [`server_error`] does, with advice for the users of a
/// namespace.
///
/// ```
/// use leasehold_engine::protocol::server_error_in;
///
/// let error = server_error_in("NOPERM User poor has no permissions to run the 'eval' command", "shop:eu");
/// assert!(error.to_string().contains("~{shop%3Aeu:*"));
/// ```
pub fn server_error_in(text: &str, namespace: &str) -> Error {
    let mut start = String::new();
    prefix(namespace, &mut start);
    refused(text, None, Some(&start))
}

/// Converts a server's error text, for the namespace of a key or of keys that begin with `start`.
#[inline(never)]
pub(super) fn refused(text: &str, key: Option<&str>, start: Option<&str>) -> Error {
    let text = printable(text);
    let meaning = Meaning::of(&text);
    if let Some(refused) = meaning.in_our_words() {
        return refused;
    }
    let said = text.trim_end().trim_end_matches('.');
    let about = key
        .map(|key| format!(" about the key \"{}\"", printable(key)))
        .unwrap_or_default();
    let mut what = format!("the server answered{about}: {said}");
    if meaning.advice == Some(Advice::Rights) && start.is_some() {
        what.push_str("; ");
        rights::advise(start, &mut what);
        return Error::new(meaning.kind, what);
    }
    Error::advised(meaning.kind, &what, meaning.advice)
}

/// Returns the error for refused credentials, or `None` if the text has another meaning. The message does not
/// quote the server: hosts hide passwords in server texts, and a password such as `user` would garble the
/// message.
pub fn credentials_refused(text: &str) -> Option<Error> {
    Meaning::of(text).in_our_words()
}

/// Returns true if a server's refusal of `INFO` can be ignored: the user lacks a right that locking does not
/// need. The script runs next and finds any other problem.
///
/// ```
/// use leasehold_engine::protocol::info_is_withheld;
///
/// assert!(info_is_withheld("NOPERM User poor has no permissions to run the 'info' command"));
/// assert!(!info_is_withheld("LOADING Redis is loading the dataset in memory"));
/// ```
pub fn info_is_withheld(text: &str) -> bool {
    server_error(text, None).kind() == ErrorKind::Auth
}

/// Checks, from sections of its `INFO`, that a server can keep locks. Returns [`ErrorKind::Unsupported`] if
/// it is older than 7.0, [`ErrorKind::ReadOnly`] if it is a replica, and [`ErrorKind::Config`] if it is a node of a
/// cluster and the client does not know clusters. A missing field passes.
///
/// ```
/// use leasehold_engine::{protocol::check_server, ErrorKind};
///
/// let knows_clusters = false;
/// let error = check_server("redis_version:6.2.14\r\n", knows_clusters).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Unsupported);
/// ```
pub fn check_server(info: &str, knows_clusters: bool) -> Result<(), Error> {
    if let Some(version) = info_field(info, "redis_version") {
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major < OLDEST) {
            let version = printable(version);
            let message =
                format!("the server's version is {version}; {OLDEST}.0 or newer is required");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    if info_field(info, "role") == Some("slave") {
        let message = "the server is a read-only replica; connect to the primary";
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    // Valkey has another name for the field.
    let modes = ["redis_mode", "server_mode"].map(|name| info_field(info, name));
    if !knows_clusters && modes.contains(&Some("cluster")) {
        let message = "the server is a cluster node";
        return Err(Error::advised(
            ErrorKind::Config,
            message,
            Some(Advice::Cluster),
        ));
    }
    Ok(())
}

/// Returns the value of a field of `INFO`.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(value).map(str::trim)
}

/// Returns a server's text for an error message: cut to a limit, without control characters. A hostile or
/// broken server must not fill logs or forge log lines.
pub fn printable(said: &str) -> String {
    const MOST: usize = limits::count("shownCharacters") as usize;
    let plain = |character: char| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    };
    said.chars().take(MOST).map(plain).collect()
}

const REFUSALS: &str = include_str!("refusals.txt");

static MEANINGS: [(Sign, Meaning); count(REFUSALS)] = meanings();

/// How a refusal is recognized.
#[derive(Copy, Clone)]
enum Sign {
    /// The text begins with one of these words.
    Words(&'static str),
    /// The text contains this part.
    Part(&'static str),
}

/// The error that a refusal becomes: its kind, advice and message.
#[derive(Copy, Clone)]
struct Meaning {
    kind: ErrorKind,
    advice: Option<Advice>,
    /// The message that replaces the server's text; empty to show the server's text.
    ours: &'static str,
}

impl Meaning {
    const NONE: Self = Self {
        kind: ErrorKind::Store,
        advice: None,
        ours: "",
    };

    fn of(text: &str) -> &'static Self {
        let first = text.split(' ').next().unwrap_or_default();
        let fits = |sign: &Sign| match *sign {
            Sign::Words(words) => words.split(' ').any(|word| word == first),
            Sign::Part(part) => has(text, part),
        };
        let found = MEANINGS.iter().find(|(sign, _)| fits(sign));
        found.map_or(&Self::NONE, |(_, meaning)| meaning)
    }

    fn in_our_words(&self) -> Option<Error> {
        let Self { kind, advice, ours } = *self;
        (!ours.is_empty()).then(|| Error::advised(kind, ours, advice))
    }
}

const fn meanings() -> [(Sign, Meaning); count(REFUSALS)] {
    let rows: [[&str; 5]; count(REFUSALS)] = rows(REFUSALS);
    let mut meanings = [(Sign::Words(""), Meaning::NONE); count(REFUSALS)];
    let mut at = 0;
    while at < rows.len() {
        let [place, wanted, kind, advice, ours] = rows[at];
        let sign = match place.as_bytes() {
            b"word" => Sign::Words(wanted),
            b"part" => Sign::Part(wanted),
            _ => panic!("a row begins with `word` or `part`"),
        };
        let kind = ErrorKind::of_code(kind).expect("a row names a known kind of error");
        let told = Advice::from_code(advice);
        assert!(
            told.is_some() || advice.is_empty(),
            "a row names known advice or none"
        );
        // The JavaScript host tells by this advice that a message quotes nothing from the server.
        let credentials = matches!(
            told,
            Some(Advice::CheckCredentials | Advice::GiveCredentials)
        );
        assert!(
            credentials != ours.is_empty(),
            "exactly the rows about credentials have our own words"
        );
        meanings[at] = (
            sign,
            Meaning {
                kind,
                advice: told,
                ours,
            },
        );
        at += 1;
    }
    meanings
}

/// Searches bytes, because the search of the standard library adds kilobytes to the browser build.
fn has(text: &str, part: &str) -> bool {
    let mut windows = text.as_bytes().windows(part.len());
    windows.any(|window| window == part.as_bytes())
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

    #[derive(serde::Deserialize)]
    struct Vector {
        said: String,
        code: String,
        advice: Option<String>,
    }

    /// Reads texts of servers and their meanings, which all languages share.
    fn vectors() -> Vec<Vector> {
        let text = crate::vectors("refusals.json");
        serde_json::from_str(&text).expect("the vectors are of this shape")
    }

    #[test]
    fn refusals_have_the_same_meaning_in_every_language() {
        for Vector { said, code, advice } in vectors() {
            let told = Meaning::of(&said);
            assert_eq!(told.kind.code(), code, "{said:?}");
            assert_eq!(told.advice.map(Advice::code), advice.as_deref(), "{said:?}");
        }
    }

    /// Catches a row that no server text matches, and one that an earlier row hides.
    #[test]
    fn every_row_matches_a_known_text() {
        let vectors = vectors();
        for (sign, meaning) in &MEANINGS {
            let met = |sign: &str| {
                vectors.iter().any(|Vector { said, .. }| {
                    std::ptr::eq(Meaning::of(said), meaning) && said.contains(sign)
                })
            };
            match sign {
                Sign::Words(words) => assert!(words.split(' ').all(met), "{words}"),
                Sign::Part(part) => assert!(met(part), "{part}"),
            }
        }
    }

    #[test]
    fn a_right_missing_inside_the_script_is_named() {
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
    fn a_servers_text_stays_on_one_line() {
        let error = server_error("ERR a\r\nforged line \u{1b}[31m", None).to_string();
        assert!(!error.contains(char::is_control), "{error:?}");
    }

    #[test]
    fn long_texts_are_cut() {
        assert!(server_error(&"x".repeat(10_000), None).to_string().len() < 400);
    }

    #[test]
    fn old_servers_replicas_and_nodes_are_refused() {
        let check = |info: &str| check_server(info, false).map_err(|error| error.kind());
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
        for mode in ["redis_mode", "server_mode"] {
            let info = format!("redis_version:7.0.15\r\n{mode}:cluster\r\n");
            assert_eq!(check(&info), Err(ErrorKind::Config));
            assert_eq!(check_server(&info, true), Ok(()));
            assert_eq!(check(&info.replace("cluster", "standalone")), Ok(()));
        }
    }

    /// Catches advice about rights with an error of another cause, and rights of another namespace.
    #[test]
    fn only_a_missing_right_is_told_with_the_rights_of_the_namespace() {
        let told = |text, key| server_error(text, key).to_string();
        let key = Some("{shop:a}");
        assert!(told("NOPERM this user has no permissions", key).contains("~{shop:"));
        let other = told("WRONGTYPE Operation against a key", key);
        assert!(!other.contains('~'), "{other}");
        let without = told("NOPERM this user has no permissions", None);
        assert!(!without.contains("~{shop:"), "{without}");
    }

    /// Catches refused credentials that are told in the server's words, which may show a password.
    #[test]
    fn refused_credentials_and_withheld_information_are_recognized() {
        let said = "WRONGPASS invalid username-password pair";
        let refused = credentials_refused(said).expect("the credentials are refused");
        assert_eq!(refused.kind(), ErrorKind::Auth);
        assert!(!refused.to_string().contains("pair"), "{refused}");
        assert_eq!(credentials_refused("LOADING Redis is loading"), None);
        assert!(info_is_withheld("NOPERM this user has no permissions"));
        assert!(!info_is_withheld("LOADING Redis is loading"));
    }
}

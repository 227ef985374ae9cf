//! URLs of stores. They may hold a password: no error shows more of one than its scheme, host and port,
//! or its socket.

use ::fred::types::config::{Config, ServerConfig};
use url::{Host, Url};

use crate::error::{Error, ErrorKind};

/// What a URL names.
pub(super) enum Target {
    Memory(String),
    Redis {
        config: Box<Config>,
        /// The server's address for errors, without credentials.
        shown: String,
    },
}

const UNKNOWN_PARAMETER: &str = "the store's URL has a parameter that is not known; \
                                 percent-encode / ? # and @ in a password";

const FORMS: &str = "redis://[user:password@]host[:port][/database], \
                     unix:///path/to/socket[?db=database] or memory://[name]";

pub(super) fn parse(text: &str) -> Result<Target, Error> {
    let url = Url::parse(text).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => bad("the store's URL has no scheme"),
        error => bad(&format!("the store's URL cannot be read ({error})")),
    })?;
    if url.fragment().is_some() {
        return Err(bad(
            "the store's URL has a fragment (#…); percent-encode special characters",
        ));
    }
    match url.scheme() {
        "redis" => redis(&url),
        "unix" => socket(&url),
        "memory" => memory(&url),
        "rediss" => Err(bad(&unsupported("TLS"))),
        "redis-sentinel" | "rediss-sentinel" => Err(bad(&unsupported("a sentinel"))),
        "redis-cluster" | "rediss-cluster" => Err(bad(&unsupported("a cluster"))),
        other => Err(bad(&format!("the URL scheme {other:?} is not known"))),
    }
}

fn unsupported(what: &str) -> String {
    format!("the store's URL asks for {what}, which is not supported yet")
}

fn redis(url: &Url) -> Result<Target, Error> {
    let host = match url.host() {
        Some(Host::Domain("")) | None => return Err(bad("the store's URL names no host")),
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
    };
    if url.query().is_some() {
        return Err(bad(UNKNOWN_PARAMETER));
    }
    let port = url.port().unwrap_or(6379);
    let shown = format!("redis://{}:{port}", url.host_str().unwrap_or_default());
    let database = match url.path().strip_prefix('/').unwrap_or_default() {
        "" => None,
        digits => Some(database(digits)?),
    };
    let server = ServerConfig::new_centralized(host, port);
    let config = Config {
        server,
        database,
        ..credentials(url)?
    };
    Ok(Target::Redis {
        config: Box::new(config),
        shown,
    })
}

fn socket(url: &Url) -> Result<Target, Error> {
    let path = decoded(url.path(), "path")?;
    if path.len() < 2 || !path.starts_with('/') {
        return Err(bad("the store's URL names no socket"));
    }
    let mut db = None;
    for (key, value) in url.query_pairs() {
        match &*key {
            "db" => db = Some(database(&value)?),
            _ => return Err(bad(UNKNOWN_PARAMETER)),
        }
    }
    let shown = format!("unix://{path}");
    let server = ServerConfig::Unix { path: path.into() };
    let config = Config {
        server,
        database: db,
        ..credentials(url)?
    };
    Ok(Target::Redis {
        config: Box::new(config),
        shown,
    })
}

fn memory(url: &Url) -> Result<Target, Error> {
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(bad("a memory:// URL takes nothing but a name"));
    }
    Ok(Target::Memory(format!(
        "{}{}",
        url.host_str().unwrap_or_default(),
        url.path()
    )))
}

fn credentials(url: &Url) -> Result<Config, Error> {
    let username = match url.username() {
        "" => None,
        username => Some(decoded(username, "user")?),
    };
    let password = url
        .password()
        .map(|password| decoded(password, "password"))
        .transpose()?;
    Ok(Config {
        username,
        password,
        ..Config::default()
    })
}

fn database(digits: &str) -> Result<u8, Error> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain).ok_or_else(|| {
        bad("the database in the store's URL is not a number from 0 to 255; percent-encode / ? # and @ in a password")
    })
}

fn decoded(text: &str, what: &str) -> Result<String, Error> {
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| bad(&format!("the {what} in the store's URL is not UTF-8")))
}

fn bad(what: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("{what}; it is of the form {FORMS}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        match parse(url) {
            Ok(Target::Redis { config, .. }) => *config,
            Ok(Target::Memory(_)) => panic!("{url} is of a memory store"),
            Err(error) => panic!("{url}: {error}"),
        }
    }

    #[test]
    fn the_parts_of_a_url_are_taken() {
        let parsed = config("redis://me:p%40ss@example.org:7000/5");
        assert_eq!(parsed.username.as_deref(), Some("me"));
        assert_eq!(parsed.password.as_deref(), Some("p@ss"));
        assert_eq!(parsed.database, Some(5));
        assert_eq!(
            parsed.server,
            ServerConfig::new_centralized("example.org", 7000)
        );
        assert_eq!(
            config("redis://:secret@[::1]").server,
            ServerConfig::new_centralized("::1", 6379)
        );
        assert_eq!(
            config("unix:///run/redis%20a.sock?db=3").server,
            ServerConfig::Unix {
                path: "/run/redis a.sock".into()
            }
        );
    }

    #[test]
    fn what_is_to_come_is_told_from_what_is_wrong() {
        for (url, what) in [
            ("rediss://host", "TLS"),
            ("redis-sentinel://host?sentinelServiceName=a", "a sentinel"),
            ("rediss-cluster://host", "a cluster"),
        ] {
            let Err(error) = parse(url) else {
                panic!("{url} was taken");
            };
            let said =
                format!("the store's URL asks for {what}, which is not supported yet; it is");
            assert!(
                error.is_config() && error.to_string().starts_with(&said),
                "{error}"
            );
        }
    }

    #[test]
    fn bad_urls_are_config_errors_that_say_what_is_allowed_and_leak_nothing() {
        let urls = [
            "",
            "localhost:6379",
            "redis://",
            "http://user:s3cret@localhost",
            "redis://user:s3cret@localhost:99999",
            "redis://user:s3cret@localhost/db",
            "redis://user:s3cret@localhost/256",
            "redis://user:s3cret@localhost/1/2",
            "redis://user:s3cret@localhost?x=1",
            "redis://user:s3cret%ff@localhost",
            "redis://user:s3cret#more@localhost",
            "redis://user:12/s3cret@localhost",
            "redis://user:1?s3cret@localhost",
            "unix://",
            "memory://user:s3cret@x",
        ];
        for url in urls {
            let Err(error) = parse(url) else {
                panic!("{url:?} was taken")
            };
            assert_eq!(error.kind(), ErrorKind::Config, "{url:?}");
            assert!(error.to_string().contains("redis://"), "{error}");
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }
}

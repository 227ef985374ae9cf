//! The options of the page, and their errors.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::future::BoxFuture;
use leasehold::{Builder, Locker};
use serde_json::Value;

const DEFAULT_PORT: u16 = 8420;
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;
const MOST_LOOKS: u32 = 10_000;

/// Examines the store, for the findings that the page shows beside the locks. Returns a JSON array of objects with the
/// texts `check`, `level` (`good`, `note`, `warning` or `bad`), `what`, and optionally `so` (what follows) and `do`.
pub type Findings = Box<dyn Fn(Locker) -> BoxFuture<'static, Value> + Send + Sync>;

/// The options of a page: what it shows, where, and to whom.
///
/// ```
/// let mut options = leasehold_serve::Options::new(["redis://127.0.0.1:6379"]);
/// options.namespace = "shop".to_owned();
/// options.looks = 100;
/// ```
#[non_exhaustive]
pub struct Options {
    /// The URL of the store, or those of the servers of a quorum. The page never shows their passwords.
    pub urls: Vec<String>,
    /// The namespace of the locks; `leasehold` by default.
    pub namespace: String,
    /// The longest time to live of a lease on a quorum: [`Builder::longest_ttl`].
    pub longest_ttl: Option<Duration>,
    /// The address and port to listen on; `127.0.0.1:8420` by default. Port 0 stands for any free port.
    pub listen: SocketAddr,
    /// The token that each request needs: 16 to 256 letters, digits and `-_.~`. Without one [`serve`](crate::serve)
    /// makes one if other machines can reach [`listen`](Self::listen), and otherwise no token is needed.
    pub token: Option<String>,
    /// Host names under which browsers find the page, except `localhost`. Requests with any other name are refused,
    /// because another site could make its own name lead here (DNS rebinding).
    pub hosts: Vec<String>,
    /// Lets the page release locks by force. This needs a [`token`](Self::token).
    pub allow_release: bool,
    /// The most inspections a second, 1 to 10,000; 500 by default.
    pub looks: u32,
    /// Turns off `CLIENT TRACKING`, by which a server reports which locks change.
    pub poll_only: bool,
    /// Examines the store once a minute, for findings that the page shows; nothing by default.
    pub findings: Option<Findings>,
    pub(crate) demo: bool,
}

/// Why the page could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is not valid.
    #[error("`{name}` {what}")]
    Option {
        /// The name of the field.
        name: &'static str,
        /// The reason why it is not valid.
        what: String,
    },
    /// The page cannot listen on the address.
    #[error("listening at {address}: {error}")]
    Listen {
        /// The address of [`Options::listen`].
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The store refused the connection, or its URL is not valid.
    #[error(transparent)]
    Store(#[from] leasehold::Error),
    /// The operating system gave no random numbers.
    #[error("the operating system gave no random numbers: {0}")]
    Random(String),
}

impl Options {
    /// Returns options for the locks of a store, or of a quorum if there are several URLs.
    pub fn new(urls: impl IntoIterator<Item: Into<String>>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            namespace: "leasehold".to_owned(),
            longest_ttl: None,
            listen: (Ipv4Addr::LOCALHOST, DEFAULT_PORT).into(),
            token: None,
            hosts: Vec::new(),
            allow_release: false,
            looks: 500,
            poll_only: false,
            findings: None,
            demo: false,
        }
    }

    /// Returns options for invented contenders on an in-memory store.
    ///
    /// ```
    /// let options = leasehold_serve::Options::demo();
    /// assert!(options.urls[0].starts_with("memory://"));
    /// ```
    pub fn demo() -> Self {
        Self {
            demo: true,
            ..Self::new([format!("memory://demo-{}", std::process::id())])
        }
    }

    /// Returns the settings of a locker for these locks.
    pub(crate) fn builder(&self) -> Builder {
        let builder = Locker::builder().namespace(&self.namespace);
        match self.longest_ttl {
            Some(longest) => builder.longest_ttl(longest),
            None => builder,
        }
    }

    /// Returns `true` if the locks are in this process, where inspections cost nothing.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.urls.iter().all(|url| url.starts_with("memory:"))
    }

    /// Returns `true` if a token is made, because none is given and other machines can reach the page.
    pub(crate) fn needs_made_token(&self) -> bool {
        self.token.is_none() && !self.listen.ip().is_loopback()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let invalid = |name, what| Err(Error::Option { name, what });
        if !(1..=MOST_LOOKS).contains(&self.looks) {
            return invalid(
                "looks",
                format!("must be from 1 to {MOST_LOOKS}; got {}", self.looks),
            );
        }
        let fits = |token: &String| {
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
            TOKEN_LENGTHS.contains(&token.len()) && token.bytes().all(is_valid)
        };
        if !self.token.as_ref().is_none_or(fits) {
            let (least, most) = TOKEN_LENGTHS.into_inner();
            let what = "characters: letters, digits, - _ . ~";
            return invalid("token", format!("must have {least} to {most} {what}"));
        }
        if self.allow_release && self.token.is_none() && !self.needs_made_token() {
            let what = "needs a token: without one every user and program of this machine could release locks";
            return invalid("allow_release", what.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_option_is_refused_by_its_name() {
        type Change = fn(&mut Options);
        let cases: [(Change, &str); 5] = [
            (
                |options| options.looks = 0,
                "`looks` must be from 1 to 10000; got 0",
            ),
            (|options| options.looks = 10_001, "`looks`"),
            (
                |options| options.token = Some("short".to_owned()),
                "`token` must have 16",
            ),
            (
                |options| options.token = Some("sixteen letters ".to_owned()),
                "`token`",
            ),
            (|options| options.allow_release = true, "`allow_release`"),
        ];
        for (change, says) in cases {
            let mut options = Options::new(["memory://"]);
            assert!(options.check().is_ok());
            change(&mut options);
            let error = options.check().expect_err(says).to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }
}

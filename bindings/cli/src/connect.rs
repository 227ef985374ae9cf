//! The store, by options and environment.
#![expect(
    clippy::doc_markdown,
    reason = "there are texts of --help here, which are no markdown"
)]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use leasehold::{Builder, Locker};
use tokio::time::timeout;

use crate::exit::{FILE, Failure, STORE_AWAY};

const PASSWORD: &str = "LEASEHOLD_PASSWORD";

/// Where the locks are kept.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The store: redis://[user@]host[:port][/database], rediss:// for TLS, redis-cluster://host,host,
    /// redis-sentinel://host,host/service, unix:///path/to/socket, or memory://
    ///
    /// Locks in memory:// are of this process alone, which is good for a try. A password in a URL on the
    /// command line can be read by others on this machine: use LEASEHOLD_URL, LEASEHOLD_PASSWORD or
    /// --password-file.
    #[arg(long, env = "LEASEHOLD_URL", hide_env_values = true)]
    url: Option<String>,

    /// A file whose first line is the store's password; or set LEASEHOLD_PASSWORD
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_PASSWORD_FILE")]
    password_file: Option<PathBuf>,

    /// Keeps names apart from the same names in other namespaces
    #[arg(long, env = "LEASEHOLD_NAMESPACE", default_value = "leasehold")]
    namespace: String,
}

impl StoreArgs {
    /// A locker's settings.
    pub(crate) fn builder(&self) -> Builder {
        Locker::builder().namespace(&self.namespace)
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Connects, in this time at the most if one is given.
    pub(crate) async fn connect(&self, within: Option<Duration>) -> Result<Locker, Failure> {
        self.connect_with(self.builder(), within).await
    }

    /// The same with these settings.
    pub(crate) async fn connect_with(
        &self,
        settings: Builder,
        within: Option<Duration>,
    ) -> Result<Locker, Failure> {
        let url = self.url()?;
        let connecting = settings.connect(url);
        let Some(within) = within else {
            return Ok(connecting.await?);
        };
        match timeout(within, connecting).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(Failure::new(
                STORE_AWAY,
                format!(
                    "no connection to the store within {}",
                    crate::times::show(within)
                ),
            )
            .advise(
                "see that the server runs, that --url names it, and that nothing is in the way",
            )),
        }
    }

    /// The URL, with the password. Never to be shown.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        let url = self.url.as_deref().filter(|url| !url.is_empty());
        let Some(url) = url else {
            return Err(Failure::usage("no store is named")
                .advise("give --url or set LEASEHOLD_URL, for example to redis://127.0.0.1:6379"));
        };
        match self.password()? {
            Some(password) => with_password(url, &password),
            None => Ok(url.to_owned()),
        }
    }

    fn password(&self) -> Result<Option<String>, Failure> {
        let Some(file) = &self.password_file else {
            return match std::env::var(PASSWORD) {
                Ok(password) => Ok(Some(password).filter(|password| !password.is_empty())),
                Err(std::env::VarError::NotPresent) => Ok(None),
                Err(_) => Err(Failure::usage(format!("{PASSWORD} is not UTF-8"))),
            };
        };
        let text = fs::read_to_string(file).map_err(|error| {
            let what = format!(
                "the password file {} cannot be read: {error}",
                file.display()
            );
            Failure::new(FILE, what)
        })?;
        let password = text.lines().next().unwrap_or_default();
        if password.is_empty() {
            let what = format!(
                "the password file {} has an empty first line",
                file.display()
            );
            return Err(Failure::usage(what));
        }
        Ok(Some(password.to_owned()))
    }
}

/// The URL with this password. One that cannot be read is the library's to refuse.
fn with_password(text: &str, password: &str) -> Result<String, Failure> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Ok(text.to_owned());
    };
    if scheme == "memory" {
        return Ok(text.to_owned());
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (user, hosts) = match rest[..end].rfind('@') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => ("", rest),
    };
    if user.contains(':') {
        return Err(
            Failure::usage("there are two passwords, one of them in the URL")
                .advise("leave one out: the URL's, or LEASEHOLD_PASSWORD and --password-file"),
        );
    }
    let encoded: String = url::form_urlencoded::byte_serialize(password.as_bytes())
        .collect::<String>()
        .replace('+', "%20");
    Ok(format!("{scheme}://{user}:{encoded}@{hosts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_put_into_the_url() {
        let url = |text| with_password(text, "p@s/s%").expect("one password");
        assert_eq!(url("redis://host:1/5"), "redis://:p%40s%2Fs%25@host:1/5");
        assert_eq!(url("redis://me@host"), "redis://me:p%40s%2Fs%25@host");
        assert_eq!(
            url("unix:///a.sock?db=1"),
            "unix://:p%40s%2Fs%25@/a.sock?db=1"
        );
        let two = "redis-sentinel://:p%40s%2Fs%25@a,b:1/service";
        assert_eq!(url("redis-sentinel://a,b:1/service"), two);
        assert_eq!(url("memory://a"), "memory://a");
        assert_eq!(url("no url"), "no url");
    }

    #[test]
    fn two_passwords_are_refused_and_none_is_shown() {
        let error = with_password("redis://:first@host", "second").expect_err("two");
        let shown = format!("{error} {}", error.json());
        assert!(
            !shown.contains("first") && !shown.contains("second"),
            "{shown}"
        );
    }
}

//! The store, by options and environment.
#![expect(
    clippy::doc_markdown,
    reason = "there are texts of --help here, which are no markdown"
)]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use futures::FutureExt;
use futures::future::{join_all, try_join};
use leasehold::{Builder, Locker};
use leasehold_observe::without_secrets;
use tokio::time::timeout;

use crate::exit::{FILE, Failure, STORE_AWAY};
use crate::probe::Probe;
use crate::say::Voice;
use crate::times;

const PASSWORD: &str = "LEASEHOLD_PASSWORD";
/// How long a server of a quorum may take to connect. The others go on without it.
const TO_JOIN: Duration = Duration::from_secs(3);

/// Options that choose the store.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The store: redis://[user@]host[:port][/database], rediss:// for TLS, redis-cluster://host,host,
    /// redis-sentinel://host,host/service, unix:///path/to/socket, or memory://
    ///
    /// Give it 3, 5 or 7 times for a quorum of independent servers: --url redis://a --url redis://b --url redis://c.
    /// A majority of them grants each lock, so any minority may be down. Name the same servers everywhere.
    /// LEASEHOLD_URL takes several URLs, separated by commas or spaces.
    ///
    /// Locks in memory:// exist only in this process, for trying things out. Other users of this machine can
    /// read a password in a URL on the command line: use LEASEHOLD_URL, LEASEHOLD_PASSWORD or --password-file.
    #[arg(long, env = "LEASEHOLD_URL", hide_env_values = true)]
    url: Vec<String>,

    /// The longest time to live of any lease on a quorum; 60s by default
    ///
    /// Use the same value wherever these servers are used. A server that was restarted or flushed does not vote
    /// for this long. Without a quorum it has no effect.
    #[arg(long, value_name = "TIME", value_parser = times::parse, env = "LEASEHOLD_LONGEST_TTL")]
    #[arg(allow_hyphen_values = true)]
    longest_ttl: Option<Duration>,

    /// A file whose first line is the store's password; or set LEASEHOLD_PASSWORD
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_PASSWORD_FILE")]
    password_file: Option<PathBuf>,

    /// A prefix that separates these locks from those of other namespaces
    #[arg(long, env = "LEASEHOLD_NAMESPACE", default_value = "leasehold")]
    namespace: String,
}

impl StoreArgs {
    /// Returns the settings of the locker.
    pub(crate) fn builder(&self) -> Builder {
        let builder = Locker::builder().namespace(&self.namespace);
        match self.longest_ttl {
            Some(longest) => builder.longest_ttl(longest),
            None => builder,
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    #[cfg(feature = "serve")]
    pub(crate) fn longest_ttl(&self) -> Option<Duration> {
        self.longest_ttl
    }

    /// Connects within this time, if one is given, and reports servers of a quorum that are missing.
    pub(crate) async fn connect(
        &self,
        within: Option<Duration>,
        voice: &Voice,
    ) -> Result<Locker, Failure> {
        let urls = self.urls()?;
        let missing = missing(&urls, to_join(within)).map(Ok);
        let (locker, missing) = try_join(connect(&urls, self.builder(), within), missing).await?;
        for server in missing {
            voice.note(&format!("{server}: the quorum goes on without it"));
        }
        Ok(locker)
    }

    /// Returns the URL of each server with its password: never print these.
    pub(crate) fn urls(&self) -> Result<Vec<String>, Failure> {
        let urls = self.url.iter().flat_map(|urls| split(urls));
        let urls: Vec<_> = urls.filter(|url| !url.is_empty()).collect();
        if urls.is_empty() {
            return Err(Failure::usage("no store is named")
                .advise("give --url or set LEASEHOLD_URL, for example to redis://127.0.0.1:6379"));
        }
        match self.password()? {
            Some(password) => urls
                .iter()
                .map(|url| with_password(url, &password))
                .collect(),
            None => Ok(urls.into_iter().map(str::to_owned).collect()),
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

/// Connects to a server, or to a quorum of several, within this time if one is given.
pub(crate) async fn connect(
    urls: &[String],
    settings: Builder,
    within: Option<Duration>,
) -> Result<Locker, Failure> {
    let connecting = async {
        match urls {
            [url] => settings.connect(url).await,
            urls => {
                let settings = settings.connect_timeout(to_join(within));
                settings.quorum(urls).await
            }
        }
    };
    // The future is large.
    let connecting = Box::pin(connecting);
    let Some(within) = within else {
        return Ok(connecting.await?);
    };
    match timeout(within, connecting).await {
        Ok(connected) => Ok(connected?),
        Err(_) => Err(Failure::new(
            STORE_AWAY,
            format!("no connection to the store within {}", times::show(within)),
        )
        .advise(
            "check that the server runs, that --url names it, and that no firewall is in the way",
        )),
    }
}

/// Returns the timeout for connecting to one server of a quorum. A silent server takes twice that, and has to leave
/// time for the others.
fn to_join(within: Option<Duration>) -> Duration {
    within.map_or(TO_JOIN, |within| TO_JOIN.min(within / 4))
}

/// Returns the servers of a quorum that cannot be connected to in this time, each with its place in the list.
async fn missing(urls: &[String], within: Duration) -> Vec<String> {
    if urls.len() < 2 || urls[0].starts_with("memory:") {
        return Vec::new();
    }
    let connecting = urls.iter().map(async |url| {
        let connected = timeout(within, Probe::connect(url)).await;
        let probe = connected.ok()?.ok()?;
        probe.quit().await;
        Some(())
    });
    let connected = join_all(connecting).await.into_iter().enumerate();
    let missing = connected.filter(|(_, connected)| connected.is_none());
    missing
        .map(|(at, _)| format!("{} cannot be reached", place(urls, at)))
        .collect()
}

/// Names a server of a quorum by its place in the list and its URL.
pub(crate) fn place(urls: &[String], at: usize) -> String {
    format!(
        "server {} of {} ({})",
        at + 1,
        urls.len(),
        without_secrets(&urls[at])
    )
}

/// Splits a list of URLs. A comma may also stand inside a URL, between the hosts of a cluster, so a scheme has to
/// follow the one that ends a URL.
fn split(urls: &str) -> impl Iterator<Item = &str> {
    let is_between = |c: char| c == ',' || c.is_whitespace();
    let mut rest = Some(urls.trim());
    std::iter::from_fn(move || {
        let list = rest?;
        let mut ends = list.match_indices(is_between);
        let end = ends.find(|(at, _)| {
            let next = list[*at..].trim_start_matches(is_between);
            let scheme = next.split_once("://").map(|(scheme, _)| scheme);
            scheme.is_some_and(|scheme| {
                scheme
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
            })
        });
        let (url, next) = match end {
            Some((at, _)) => (&list[..at], Some(list[at..].trim_start_matches(is_between))),
            None => (list, None),
        };
        rest = next;
        Some(url)
    })
}

/// Returns the URL with this password. The library refuses a URL that cannot be parsed.
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
            Failure::usage("two passwords are given, one of them in the URL")
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
    fn a_list_of_urls_is_split_between_them_and_nowhere_else() {
        let urls = |text| split(text).collect::<Vec<_>>();
        let three = ["redis://a", "rediss://b:1/2", "unix:///c.sock"];
        for between in [",", " ", "\n", ", ", " ,\t"] {
            let list = three.join(between);
            assert_eq!(split(&list).collect::<Vec<_>>(), three, "{between:?}");
        }
        for one in [
            "redis-cluster://a:1,b,c",
            "redis-sentinel://u:p,w@a,b:1/service?sentinelPassword=,x",
            "unix:///a folder/a,b.sock",
            "no url",
            "",
        ] {
            assert_eq!(urls(one), [one]);
        }
        assert_eq!(
            urls(" redis-cluster://a,b redis://c\n"),
            ["redis-cluster://a,b", "redis://c"]
        );
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

//! What acquires and releases at one server or at several: the lock, and what any client would pay to ask as
//! many servers as often and to wait for a majority.

use fred::prelude::*;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

use crate::Result;
use crate::pairs::thousand_per_second;
use crate::stats::{median, micros, processor_time};

/// One of them, at so many servers.
pub(crate) enum Side {
    Lock(Locker),
    /// Two calls of a script that does nothing.
    Scripts(Vec<Client>, String),
    /// `SET NX PX` and `DEL`.
    Sets(Vec<Client>),
}

/// What it reached, round by round.
#[derive(Default)]
pub(crate) struct Rounds {
    /// Thousands of pairs in a second.
    pub(crate) rates: Vec<f64>,
    /// Microseconds of the processor's time for a pair: here, and in all servers.
    client: Vec<f64>,
    servers: Vec<f64>,
}

impl Side {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Lock(_) => "lock",
            Self::Scripts(..) => "bare scripts",
            Self::Sets(_) => "SET NX and DEL",
        }
    }

    /// The lock, and what it is beside, at these servers.
    pub(crate) async fn all(servers: &[RedisServer]) -> Result<[Self; 3]> {
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        let locker = match &urls[..] {
            [one] => Locker::connect(one).await?,
            several => Locker::quorum(several).await?,
        };
        let (mut clients, mut script) = (Vec::new(), String::new());
        for server in servers {
            let client = crate::bare_client(server).await?;
            script = client.script_load("return ARGV[1]").await?;
            clients.push(client);
        }
        let scripts = Self::Scripts(clients.clone(), script);
        Ok([Self::Lock(locker), scripts, Self::Sets(clients)])
    }

    pub(crate) async fn round(
        &self,
        callers: usize,
        admins: &mut [Admin],
        into: &mut Rounds,
    ) -> Result<()> {
        let before = (processor_time(), used(admins).await?);
        let rate = self.rate(callers).await?;
        let after = (processor_time(), used(admins).await?);
        let pairs = crate::pairs::PAIRS as f64;
        into.rates.push(rate);
        into.client.push(micros(after.0 - before.0) / pairs);
        into.servers.push((after.1 - before.1) * 1e6 / pairs);
        Ok(())
    }

    async fn rate(&self, callers: usize) -> Result<f64> {
        match self {
            Self::Lock(locker) => {
                let locker = locker.clone();
                let pairs = thousand_per_second(callers, move |caller| {
                    let lock = locker.lock(format!("quorum-{caller}"));
                    async move { Ok(lock?.acquire().await?.release().await?) }
                });
                pairs.await
            }
            Self::Scripts(clients, script) => {
                let (clients, script) = (clients.clone(), script.clone());
                let pairs = thousand_per_second(callers, move |caller| {
                    let (clients, script) = (clients.clone(), script.clone());
                    async move {
                        let key = format!("bare-{caller}");
                        for _ in 0..2 {
                            let asked = clients
                                .iter()
                                .map(|client| client.evalsha::<(), _, _, _>(&script, &key, "a"));
                            majority(asked).await?;
                        }
                        Ok(())
                    }
                });
                pairs.await
            }
            Self::Sets(clients) => {
                let clients = clients.clone();
                let pairs = thousand_per_second(callers, move |caller| {
                    let clients = clients.clone();
                    async move {
                        let key = format!("bare-{caller}");
                        let (expire, only) = (Some(Expiration::PX(30_000)), Some(SetOptions::NX));
                        let set = |client: &Client| {
                            let (client, key) = (client.clone(), key.clone());
                            let (expire, only) = (expire.clone(), only.clone());
                            async move { client.set::<(), _, _>(key, "id", expire, only, false).await }
                        };
                        majority(clients.iter().map(set)).await?;
                        let deletes = clients.iter().map(|client| client.del::<(), _>(&key));
                        majority(deletes).await
                    }
                });
                pairs.await
            }
        }
    }
}

impl Rounds {
    /// What it reached, and how much of what it reaches at one server.
    pub(crate) fn show(&self, one: &Self) -> String {
        let rate = median(&self.rates);
        format!("{rate:.1} ({:.2})", rate / median(&one.rates))
    }

    /// Microseconds of the processor's time for a pair, in all.
    pub(crate) fn time(&self) -> f64 {
        median(&self.client) + median(&self.servers)
    }

    pub(crate) fn show_time(&self) -> String {
        format!(
            "{:.0} + {:.0} µs",
            median(&self.client),
            median(&self.servers)
        )
    }
}

/// Asks all, and waits until more than half have answered; the others' answers are nobody's.
async fn majority<Asked>(all: impl ExactSizeIterator<Item = Asked>) -> Result<()>
where
    Asked: Future<Output = std::result::Result<(), fred::error::Error>>,
{
    let most = all.len() / 2 + 1;
    let mut asked: FuturesUnordered<_> = all.collect();
    for _ in 0..most {
        asked.next().await.ok_or("more than half were asked")??;
    }
    Ok(())
}

/// Seconds of the processor's time that the servers have used.
async fn used(admins: &mut [Admin]) -> Result<f64> {
    let mut used = 0.0;
    for admin in admins {
        for field in ["used_cpu_user", "used_cpu_sys"] {
            let seconds = admin.info("cpu", field).await.ok_or("INFO has no CPU")?;
            used += seconds.parse::<f64>()?;
        }
    }
    Ok(used)
}

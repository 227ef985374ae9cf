//! Acquire and release on distinct names by 1 to 256 callers, through fred and through redis-rs, and what
//! people write themselves on each: `SET NX PX`, and a script that compares and deletes.

use fred::prelude::*;
use leasehold::Locker;
use leasehold_tests::RedisServer;
use redis::aio::MultiplexedConnection;

use crate::options::Options;
use crate::pairs::thousand_per_second;
use crate::stats::median;
use crate::{Result, plain};

/// Each of one connection, on the same server.
enum Side {
    Lock(Locker),
    OnFred(Client, String),
    OnRedisRs(MultiplexedConnection, String),
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let server = RedisServer::start().await;
    let fred = crate::bare_client(&server).await?;
    let script: String = fred.script_load(plain::COMPARE_AND_DELETE).await?;
    let client = redis::Client::open(server.url())?;
    let connection = client.get_multiplexed_async_connection().await?;
    let on_redis_rs = Locker::with_redis(connection.clone(), client).await?;
    let sides = [
        (
            "SET NX + CAD, redis-rs",
            Side::OnRedisRs(connection, script.clone()),
        ),
        ("lock, redis-rs", Side::Lock(on_redis_rs)),
        ("SET NX + CAD, fred", Side::OnFred(fred.clone(), script)),
        ("lock, fred", Side::Lock(Locker::with_fred(fred).await?)),
    ];
    println!(
        "clients: thousand pairs/s, medians of {} rounds, and in brackets the ratios to the first",
        options.rounds
    );
    print!("{:>7}", "callers");
    sides.iter().for_each(|(name, _)| print!("  {name:>22}"));
    println!();
    for callers in [1, 16, 64, 256] {
        let mut rates = vec![Vec::new(); sides.len()];
        for round in 0..=options.rounds {
            for ((_, side), rates) in sides.iter().zip(&mut rates) {
                let rate = side.rate(callers).await?;
                // The first round warms up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        print!("{callers:>7}");
        for own in &rates {
            let ratios = own.iter().zip(&rates[0]).map(|(own, first)| own / first);
            let ratio = median(&ratios.collect::<Vec<_>>());
            print!("  {:>15.1} ({ratio:.2})", median(own));
        }
        println!();
    }
    Ok(())
}

impl Side {
    async fn rate(&self, callers: usize) -> Result<f64> {
        match self {
            Self::Lock(locker) => {
                let locker = locker.clone();
                let pairs = thousand_per_second(callers, move |caller| {
                    let lock = locker.lock(format!("bench-{caller}"));
                    async move { Ok(lock?.acquire().await?.release().await?) }
                });
                pairs.await
            }
            Self::OnFred(client, script) => {
                let (client, script) = (client.clone(), script.clone());
                let pairs = thousand_per_second(callers, move |caller| {
                    let (client, script) = (client.clone(), script.clone());
                    async move {
                        let key = format!("plain-{caller}");
                        let (expire, only) = (Some(Expiration::PX(30_000)), Some(SetOptions::NX));
                        let set = client.set::<(), _, _>(&key, "id", expire, only, false);
                        set.await?;
                        Ok(client.evalsha::<(), _, _, _>(script, key, "id").await?)
                    }
                });
                pairs.await
            }
            Self::OnRedisRs(connection, script) => {
                let (connection, script) = (connection.clone(), script.clone());
                let pairs = thousand_per_second(callers, move |caller| {
                    let (mut connection, script) = (connection.clone(), script.clone());
                    async move {
                        let key = format!("plain-{caller}");
                        let mut set = redis::cmd("SET");
                        set.arg(&key).arg("id").arg("NX").arg("PX").arg(30_000);
                        let () = set.query_async(&mut connection).await?;
                        let mut delete = redis::cmd("EVALSHA");
                        delete.arg(script).arg(1).arg(key).arg("id");
                        let () = delete.query_async(&mut connection).await?;
                        Ok(())
                    }
                });
                pairs.await
            }
        }
    }
}

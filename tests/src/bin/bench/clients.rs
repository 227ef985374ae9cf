//! Acquire and release on distinct names by 1 to 256 callers, through fred and through redis-rs, and what
//! people write themselves on each: `SET NX PX`, and a script that compares and deletes. Where the machine is
//! busy the time of the processors says more: what a pair takes of this process's and of the server's.

use fred::prelude::*;
use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};
use redis::aio::MultiplexedConnection;

use crate::options::Options;
use crate::pairs::{Cpu, thousand_per_second};
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
        "clients: thousand pairs/s, medians of {} rounds; in brackets the ratios to the first; and µs of\n\
         a processor that a pair takes, this process's and the server's",
        options.rounds
    );
    print!("{:>7}", "callers");
    for (name, _) in &sides {
        print!("  {name:>24}");
    }
    println!();
    let mut admin = Admin::connect(&server).await;
    for callers in [1, 16, 64, 256] {
        let mut rates = vec![Vec::new(); sides.len()];
        let mut costs = vec![(Vec::new(), Vec::new()); sides.len()];
        for round in 0..=options.rounds {
            for ((_, side), (rates, costs)) in sides.iter().zip(rates.iter_mut().zip(&mut costs)) {
                let begin = Cpu::now(&mut admin).await?;
                let rate = side.rate(callers).await?;
                let (here, server) = begin.each(&mut admin).await?;
                // The first round warms up.
                if round > 0 {
                    rates.push(rate);
                    costs.0.push(here);
                    costs.1.push(server);
                }
            }
        }
        print!("{callers:>7}");
        for (own, (here, server)) in rates.iter().zip(&costs) {
            let ratios = own.iter().zip(&rates[0]).map(|(own, first)| own / first);
            let ratio = median(&ratios.collect::<Vec<_>>());
            let (here, server) = (median(here), median(server));
            let rate = median(own);
            print!("  {rate:>5.1} ({ratio:.2}) {here:>4.1}+{server:>4.1}");
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

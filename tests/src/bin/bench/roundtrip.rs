//! A sequential acquire and release, as a ratio to two bare round trips on the same connection.

use fred::prelude::*;
use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

use crate::Result;
use crate::options::Options;
use crate::stats::{line, median, times};

const PAIRS: usize = 5_120;

pub(crate) async fn run(options: &Options) -> Result<()> {
    let server = RedisServer::start().await;
    let client = crate::bare_client(&server).await?;
    let locker = Locker::with_fred(client.clone()).await?;
    let lock = locker.lock("bench")?;
    let sha: String = client.script_load("return ARGV[1]").await?;

    let [mut bare, mut script, mut pairs] = [const { Vec::new() }; 3];
    for round in 0..=options.rounds {
        let pings = times(PAIRS, async || {
            client.ping::<()>(None).await?;
            Ok(client.ping::<()>(None).await?)
        });
        let pings = pings.await?;
        let calls = times(PAIRS, async || {
            client.evalsha::<(), _, _, _>(&sha, "k", "a").await?;
            Ok(client.evalsha::<(), _, _, _>(&sha, "k", "a").await?)
        });
        let calls = calls.await?;
        let leases = times(PAIRS, async || Ok(lock.acquire().await?.release().await?));
        let leases = leases.await?;
        // The first round warms up.
        if round > 0 {
            bare.push(median(&pings));
            script.push(median(&calls));
            pairs.push(median(&leases));
        }
    }
    let [bare, script, pairs] = [bare, script, pairs].map(|rounds| median(&rounds));
    println!(
        "roundtrip: one caller, medians of {} rounds",
        options.rounds
    );
    line("two PINGs", &format!("{bare:.1} µs"), "");
    line("two calls of a bare script", &format!("{script:.1} µs"), "");
    line("acquire and release", &format!("{pairs:.1} µs"), "");
    line("ratio to two PINGs", &format!("{:.2}", pairs / bare), "");
    line(
        "ratio to two bare scripts",
        &format!("{:.2}", pairs / script),
        "",
    );

    let mut admin = Admin::connect(&server).await;
    let (mut counted, before) = (Vec::new(), admin.script_calls().await);
    let lease = lock.acquire().await?;
    counted.push(("script calls of one acquire", admin.script_calls().await));
    lease.renew().await?;
    counted.push(("script calls of one renew", admin.script_calls().await));
    lease.release().await?;
    counted.push(("script calls of one release", admin.script_calls().await));
    let mut last = before;
    for (what, calls) in counted {
        line(what, &format!("{}", calls - last), "1");
        last = calls;
    }
    Ok(())
}

//! Acquire and release at 3 and 5 servers, as a ratio to the same at one of them, by 1 and 64 callers.

use leasehold::Locker;
use leasehold_tests::RedisServer;

use crate::Result;
use crate::options::Options;
use crate::pairs::thousand_per_second;
use crate::stats::median;

pub(crate) async fn run(options: &Options) -> Result<()> {
    let servers: Vec<_> = futures::future::join_all((0..5).map(|_| RedisServer::start())).await;
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let one = Locker::connect(&urls[0]).await?;
    let lockers = [
        one,
        Locker::quorum(&urls[..3]).await?,
        Locker::quorum(&urls).await?,
    ];
    println!(
        "quorum: thousands of pairs in a second, medians of {} rounds, and the ratios to one server",
        options.rounds
    );
    println!(
        "{:>7}  {:>10}  {:>13}  {:>13}",
        "callers", "one server", "3 servers", "5 servers"
    );
    for callers in [1, 64] {
        let mut rates = [const { Vec::new() }; 3];
        for round in 0..=options.rounds {
            for (locker, rates) in lockers.iter().zip(&mut rates) {
                let locker = locker.clone();
                let pairs = thousand_per_second(callers, move |caller| {
                    let lock = locker.lock(format!("quorum-{caller}"));
                    async move { Ok(lock?.acquire().await?.release().await?) }
                });
                let rate = pairs.await?;
                // The first round warms up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        let [one, three, five] = rates.each_ref().map(|rates| median(rates));
        let beside = |rate: f64| format!("{rate:.1} ({:.2})", rate / one);
        println!(
            "{callers:>7}  {one:>10.1}  {:>13}  {:>13}",
            beside(three),
            beside(five)
        );
    }
    Ok(())
}

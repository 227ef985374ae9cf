//! Acquire and release on distinct names by 1 to 256 callers, as ratios to the same client's speed without
//! the lock, on the same connection.

use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

use crate::batcher::Batcher;
use crate::sides::{self, Side};
use crate::{Options, Result};

pub(crate) async fn run(options: &Options) -> Result<()> {
    let server = RedisServer::start().await;
    let client = crate::bare_client(&server).await?;
    let mut all = vec![("lock", Side::Lock(Locker::with_fred(client.clone()).await?))];
    if !options.alone {
        let clients = vec![client.clone()];
        let [nothing, delete] = sides::scripts(&clients).await?;
        all.extend([
            ("two PINGs", Side::Pings(client.clone())),
            ("two bare scripts", Side::Scripts(clients.clone(), nothing)),
            ("SET NX + CAD", Side::Sets(clients, delete.clone())),
            (
                "the lock's script, a batcher",
                Side::Batcher(Batcher::start(&client).await?),
            ),
            ("the least batches", Side::least(&client).await?),
        ]);
        if sides::has_redis_benchmark() {
            let side = Side::RedisBenchmark(server.port(), delete);
            all.push(("SET NX + CAD by redis-benchmark", side));
        } else {
            println!(
                "!! redis-benchmark is NOT MEASURED: install redis-tools (apt-get install redis-tools)"
            );
        }
    }
    println!(
        "pairs: medians of {} rounds; the ratios are those of the lock to the others",
        options.rounds()
    );
    let mut admins = [Admin::connect(&server).await];
    for callers in options
        .callers
        .map_or(vec![1, 16, 64, 256], |one| vec![one])
    {
        sides::compare(&all, callers, options.rounds(), &mut admins).await?;
    }
    Ok(())
}

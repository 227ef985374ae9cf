//! A process that takes a lock again and again and writes under its token, for tests in which servers fail.
//!
//! `contender "URL …" GUARD NAME TTL_MS` makes a quorum of several URLs. It prints `ready`, and then for each
//! turn:
//! - `got TOKEN MICROSECONDS` (since 1970) if the lease is valid;
//! - the answer of the guard on the server GUARD to a write: `wrote TOKEN` or `refused TOKEN`;
//! - `failed ERROR` for each call that failed.
//!
//! Every fourth turn it writes once more after its lease is over: `late TOKEN` if the guard accepts that,
//! `refused TOKEN` otherwise. When it has read a line, it finishes its turn and ends with `done TURNS`.
//! `contender.mjs` is the same in JavaScript.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fred::interfaces::ClientLike;
use fred::types::{Builder, config::Config};
use leasehold::fence::redis::FencedRedis;
use leasehold::{ErrorKind, FencingToken, Locker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, guard, name, ttl] = &args[..] else {
        return Err("contender URL GUARD NAME TTL_MS".into());
    };
    let client = Builder::from_config(Config::from_url(guard)?).build()?;
    client.init().await?;
    let guard = FencedRedis::new(client);
    let locker = match url.split(' ').collect::<Vec<_>>()[..] {
        [one] => Locker::connect(one).await?,
        ref several => Locker::quorum(several).await?,
    };
    let lock = locker.lock(name)?.ttl(Duration::from_millis(ttl.parse()?));
    let over = Arc::new(AtomicBool::new(false));
    let told = over.clone();
    std::thread::spawn(move || {
        // Also if the other side is gone.
        let _ = std::io::stdin().read_line(&mut String::new());
        told.store(true, Ordering::Relaxed);
    });
    println!("ready");
    let mut turns = 0_u32;
    while !over.load(Ordering::Relaxed) {
        let lease = match lock.acquire().await {
            Ok(lease) => lease,
            Err(error) => {
                println!("failed {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let token = lease.token();
        let now = SystemTime::UNIX_EPOCH.elapsed()?;
        if lease.is_valid() {
            println!("got {token} {}", now.as_micros());
        }
        write(&guard, token, "wrote").await?;
        tokio::time::sleep(Duration::from_millis(2)).await;
        if let Err(error) = lease.release().await {
            println!("failed {error}");
        }
        turns += 1;
        if turns.is_multiple_of(4) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            write(&guard, token, "late").await?;
        }
    }
    println!("done {turns}");
    Ok(())
}

async fn write(guard: &FencedRedis, token: FencingToken, done: &str) -> Result<(), Box<dyn Error>> {
    let written = guard.resource("resource", token)?;
    match written.push("log", token.to_string()).await {
        Ok(_) => println!("{done} {token}"),
        Err(error) if error.kind() == ErrorKind::StaleToken => println!("refused {token}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

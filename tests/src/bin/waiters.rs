//! A process with many waiters, for tests that need several such processes.
//!
//! `waiters URL LOCKERS` connects LOCKERS lockers, prints `ready`, and reads lines:
//! - `ask LABEL NAME TTL_MS pass|hold`: the next locker waits for a lock, with LABEL as the owner. When it gets
//!   the lock it prints `granted LABEL TOKEN MICROSECONDS` (since 1970) and releases it at once (`pass`) or never
//!   (`hold`).
//! - `free NAME`: frees the lock whoever holds it, and prints `freed TOKEN`.

use std::error::Error;
use std::time::{Duration, SystemTime};

use leasehold::{Lock, Locker};
use tokio::sync::mpsc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, count] = &args[..] else {
        return Err("waiters URL LOCKERS".into());
    };
    let mut lockers = Vec::new();
    for _ in 0..count.parse()? {
        lockers.push(Locker::connect(url).await?);
    }
    println!("ready");
    let (mut next, mut lines) = (lockers.iter().cycle(), lines());
    while let Some(line) = lines.recv().await {
        let words: Vec<&str> = line.split(' ').collect();
        let locker = next.next().ok_or("no locker is left")?;
        match words[..] {
            ["ask", label, name, ttl, then] => {
                let ttl = Duration::from_millis(ttl.parse()?);
                let lock = locker.lock(name)?.owner(label).ttl(ttl);
                tokio::spawn(wait(lock, label.to_owned(), then == "hold"));
            }
            ["free", name] => {
                let holder = locker.force_release(name).await?;
                println!("freed {}", holder.map_or(0, |holder| holder.token.get()));
            }
            _ => return Err(line.into()),
        }
    }
    Ok(())
}

async fn wait(lock: Lock, label: String, holds: bool) {
    let lease = match lock.acquire().await {
        Ok(lease) => lease,
        Err(error) => return println!("failed {label}: {error}"),
    };
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    println!("granted {label} {} {}", lease.token(), now.as_micros());
    if holds {
        println!("lost {label}: {}", lease.lost().await.reason);
    } else if let Err(error) = lease.release().await {
        println!("failed {label}: {error}");
    }
}

/// Returns the lines of standard input, which a thread reads.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

//! A process that takes locks, for tests that need a process of their own.
//!
//! `holder hold URL NAME TTL_MS` acquires, prints `held TOKEN`, and holds until it is killed.
//!
//! `holder visit URL NAME FILE ROUNDS lock|bare` enters a critical section ROUNDS times, with the lock or without
//! it. It prints `overlap` whenever it finds another process in the section. With the lock it appends its token to
//! FILE.tokens each time.
//!
//! Several URLs, separated by spaces, make a quorum.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use leasehold::{FencingToken, Lease, Locker};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["hold", url, name, ttl] => {
            let ttl = Duration::from_millis(ttl.parse()?);
            let locker = connect(url).await?;
            let lease = locker.lock(name)?.ttl(ttl).acquire().await?;
            println!("held {}", lease.token());
            println!("lost {}", lease.lost().await.reason);
        }
        ["visit", url, name, file, rounds, how] => {
            let locker = connect(url).await?;
            for _ in 0..rounds.parse::<u32>()? {
                let lease = match how {
                    "lock" => Some(locker.lock(name)?.acquire().await?),
                    _ => None,
                };
                visit(file, lease.as_ref().map(Lease::token)).await?;
                if let Some(lease) = lease {
                    lease.release().await?;
                }
            }
            println!("done");
        }
        _ => return Err("hold URL NAME TTL_MS | visit URL NAME FILE ROUNDS lock|bare".into()),
    }
    Ok(())
}

async fn connect(urls: &str) -> Result<Locker, leasehold::Error> {
    match urls.split(' ').collect::<Vec<_>>()[..] {
        [url] => Locker::connect(url).await,
        ref urls => Locker::quorum(urls).await,
    }
}

/// Creates a file that must not exist, stays a moment, appends its token, and removes the file.
async fn visit(file: &str, token: Option<FencingToken>) -> std::io::Result<()> {
    let entered = match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            println!("overlap");
            false
        }
        Err(error) => return Err(error),
    };
    tokio::time::sleep(Duration::from_millis(2)).await;
    if let Some(token) = token {
        let mut tokens = OpenOptions::new()
            .append(true)
            .create(true)
            .open(format!("{file}.tokens"))?;
        tokens.write_all(format!("{token}\n").as_bytes())?;
    }
    if entered {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

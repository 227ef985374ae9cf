//! Processes in Rust and JavaScript that contend for one name on five servers.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use leasehold_tests::{Child, RedisServer, contenders};

use crate::millis;
use crate::quorum::{start, urls};

const PROCESSES: usize = 16;
/// Each process holds the lock at least this often.
const TURNS: usize = 6;
/// The time for a start on a busy machine and all turns.
const LIMIT: Duration = Duration::from_secs(60);
/// The time to live: an abandoned lease would block the lock for this long.
const TTL_MILLIS: &str = "30000";
/// The shortest wait that shows an abandoned lease; waits for other contenders are shorter.
const STALL: Duration = Duration::from_secs(10);

/// When a lease was acquired, since 1970, and its token.
type Got = (Duration, u64);

/// Catches contenders that take servers from one another for ever, and an abandoned lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_processes_at_five_servers_all_get_their_turns() {
    let (servers, guard) = (start(5).await, RedisServer::start().await);
    let url = urls(&servers).join(" ");
    let args = [&*url, &guard.url(), "x", TTL_MILLIS];
    let rust = Path::new(env!("CARGO_BIN_EXE_contender"));
    let mut crowd = contenders(rust, &args, PROCESSES, LIMIT).await;
    let ready = SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("the time is after 1970");
    let mut lines = vec![Vec::new(); PROCESSES];
    let has_turns = |lines: &Vec<String>| got(lines).filter(|(at, _)| *at > ready).count() >= TURNS;
    let begin = Instant::now();
    read_until(&mut crowd, &mut lines, &has_turns).await;
    let took = begin.elapsed();
    for child in &mut crowd {
        child.write_line("over");
    }
    let is_done = |lines: &Vec<String>| lines.iter().any(|line| line.starts_with("done "));
    read_until(&mut crowd, &mut lines, &is_done).await;

    let turns: usize = lines.iter().map(|lines| got(lines).count()).sum();
    let turn = took / u32::try_from(turns).expect("a small number");
    let mut waits = Vec::new();
    for (at, lines) in lines.iter().enumerate() {
        let failed = lines.iter().find(|line| line.starts_with("failed "));
        assert_eq!(failed, None, "process {at}");
        // All processes are ready: earlier waits were for programs to start.
        let since = got(lines).map(|(at, _)| at).filter(|at| *at > ready);
        let times: Vec<_> = std::iter::once(ready).chain(since).collect();
        let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        let longest = gaps.max().unwrap_or_default();
        println!(
            "process {at}: {} turns, waited {longest:?} at the most",
            got(lines).count()
        );
        waits.push(longest);
    }
    waits.sort_unstable();
    let (median, most) = (waits[PROCESSES / 2], waits[PROCESSES - 1]);
    println!("a turn {turn:?}; longest waits: median {median:?}, longest {most:?}");
    assert!(most < STALL, "a process waited for {most:?}");
    // The clocks of the processes differ too much to compare times. A lease with a token lower than an
    // earlier one would be refused, and late writes are refused.
    for lines in &lines {
        for (_, token) in got(lines) {
            let wrote = format!("wrote {token}");
            assert!(lines.contains(&wrote), "{token} was refused: {lines:#?}");
        }
    }
}

async fn read_until(
    crowd: &mut [Child],
    lines: &mut [Vec<String>],
    is_enough: &dyn Fn(&Vec<String>) -> bool,
) {
    let end = Instant::now() + LIMIT;
    while !lines.iter().all(is_enough) {
        let last: Vec<_> = lines.iter().map(|lines| lines.last()).collect();
        assert!(Instant::now() < end, "a process still waits: {last:#?}");
        tokio::time::sleep(millis(10)).await;
        for (child, lines) in crowd.iter_mut().zip(&mut *lines) {
            lines.extend(child.unread_lines());
        }
    }
}

fn got(lines: &[String]) -> impl Iterator<Item = Got> + '_ {
    lines.iter().filter_map(|line| {
        let (token, at) = line.strip_prefix("got ")?.split_once(' ')?;
        let at = Duration::from_micros(at.parse().expect("a time"));
        Some((at, token.parse().expect("a token")))
    })
}

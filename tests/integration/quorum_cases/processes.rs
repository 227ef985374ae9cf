//! Processes in Rust and in JavaScript that contend for one name at five servers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_tests::{Admin, Child, RedisServer, Resp};

use crate::millis;
use crate::quorum::{start, urls};

const PROCESSES: usize = 16;
/// Each has the lock so often at least.
const TURNS: usize = 6;
/// A start on a busy machine, and all turns.
const LIMIT: Duration = Duration::from_secs(60);
/// A lease that stays behind would keep everybody from the lock for so long.
const TTL_MILLIS: &str = "30000";
/// A wait that long is none for others, but one for what nobody has.
const STALL: Duration = Duration::from_secs(10);
/// By so much two processes may be late in saying when they got the lock.
const LATE: Duration = Duration::from_millis(2);

/// When a lease was got, since 1970, and its token.
type Got = (Duration, u64);

/// Catches contenders that take the servers away from each other for ever, and a lease that stays behind with
/// nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_processes_at_five_servers_all_get_their_turns() {
    let (servers, guard) = (start(5).await, RedisServer::start().await);
    let url = urls(&servers).join(" ");
    let mut crowd = contenders(&[&url, &guard.url(), "x", TTL_MILLIS]).await;
    let mut lines = vec![Vec::new(); PROCESSES];
    let has_turns = |lines: &Vec<String>| got(lines).count() >= TURNS;
    let begin = Instant::now();
    read_until(&mut crowd, &mut lines, &has_turns).await;
    let took = begin.elapsed();
    crowd.iter_mut().for_each(|child| child.write_line("over"));
    let is_done = |lines: &Vec<String>| lines.iter().any(|line| line.starts_with("done "));
    read_until(&mut crowd, &mut lines, &is_done).await;

    let mut all: Vec<Got> = lines.iter().flat_map(got).collect();
    all.sort_unstable();
    let turn = took / u32::try_from(all.len()).expect("few");
    let mut waits = Vec::new();
    for (at, lines) in lines.iter().enumerate() {
        let failed = lines.iter().find(|line| line.starts_with("failed "));
        assert_eq!(failed, None, "process {at}");
        let own: Vec<Got> = got(lines).collect();
        let gaps = own
            .windows(2)
            .map(|pair| pair[1].0.saturating_sub(pair[0].0));
        let longest = gaps.max().unwrap_or_default();
        println!(
            "process {at}: {} turns, waited {longest:?} at the most",
            own.len()
        );
        waits.push(longest);
    }
    waits.sort_unstable();
    let (median, most) = (waits[PROCESSES / 2], waits[PROCESSES - 1]);
    println!("a turn {turn:?}; longest waits: median {median:?}, longest {most:?}");
    assert!(most < STALL, "somebody waited for {most:?}");
    for pair in all.windows(2) {
        let apart = pair[1].0.saturating_sub(pair[0].0);
        assert!(pair[0].1 < pair[1].1 || apart < LATE, "{pair:?}");
    }
    let mut admin = Admin::connect(&guard).await;
    let Resp::Array(log) = admin.command(&["LRANGE", "log", "0", "-1"]).await else {
        panic!("LRANGE answers with an array");
    };
    let log: Vec<i64> = log.iter().filter_map(Resp::as_int).collect();
    assert!(log.is_sorted(), "a stale write passed the guard");
}

/// Half of them in Rust, and half in JavaScript.
async fn contenders(args: &[&str]) -> Vec<Child> {
    let rust = Path::new(env!("CARGO_BIN_EXE_contender"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = folder.join("topologies/contender.mjs");
    let has_node = folder.join("../bindings/node/dist/index.js").exists();
    if !has_node {
        println!("the npm package is not built: all contenders are of Rust");
    }
    let children = (0..PROCESSES).map(|at| {
        if has_node && at % 2 == 1 {
            let args = std::iter::once(script.clone()).chain(args.iter().map(PathBuf::from));
            Child::spawn(Path::new("node"), args)
        } else {
            Child::spawn(rust, args)
        }
    });
    let mut children: Vec<_> = children.collect();
    for child in &mut children {
        child.wait_line("ready", LIMIT).await;
    }
    children
}

async fn read_until(
    crowd: &mut [Child],
    lines: &mut [Vec<String>],
    is_enough: &dyn Fn(&Vec<String>) -> bool,
) {
    let end = Instant::now() + LIMIT;
    while !lines.iter().all(is_enough) {
        let last: Vec<_> = lines.iter().map(|lines| lines.last()).collect();
        assert!(Instant::now() < end, "somebody waits: {last:#?}");
        tokio::time::sleep(millis(10)).await;
        for (child, lines) in crowd.iter_mut().zip(&mut *lines) {
            lines.extend(child.unread_lines());
        }
    }
}

fn got(lines: &Vec<String>) -> impl Iterator<Item = Got> + '_ {
    lines.iter().filter_map(|line| {
        let (token, at) = line.strip_prefix("got ")?.split_once(' ')?;
        let at = Duration::from_micros(at.parse().expect("a time"));
        Some((at, token.parse().expect("a token")))
    })
}

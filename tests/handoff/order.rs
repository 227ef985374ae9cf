//! The order of waiters, and the cost of a handoff.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use leasehold_tests::{Admin, Monitor, RedisServer, Stopwatch, eventually};

use crate::processes::{Granted, Process, Then, by_token};
use crate::script_calls::{Executed, Operation};
use crate::{
    CLAIM_CLIENT, CLAIM_KIND, LIMIT, claims, connect, held, in_line, line, lock, lock_key, millis,
    subscribed,
};

const TTL: Duration = Duration::from_secs(30);
/// The shortest time between two heartbeats of a waiter for such a lock; the longest is 5 s.
const HEARTBEAT: Duration = Duration::from_millis(4_250);
/// How long a waiter waits for a reply before it asks again.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// Up to this number the waiters ask one by one, so that their order is known.
const ONE_BY_ONE: usize = 16;

/// Runs this many processes with this many lockers each, and this many waiters in total.
async fn order(processes: usize, lockers: usize, waiters: usize) {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let mut processes = Process::start_all(&server, processes, lockers).await;
    let count = processes.len();
    for i in 0..waiters {
        processes[i % count].ask(&format!("w{i}"), "x", TTL, Then::Pass);
        if waiters <= ONE_BY_ONE {
            in_line(&mut admin, "x", i + 1).await;
        }
    }
    in_line(&mut admin, "x", waiters).await;
    let order = line(&mut admin, "x").await;
    let clients = claims(&mut admin, "x").await;
    let client = |claim: &String| claim.get(CLAIM_CLIENT..CLAIM_KIND).map(str::to_owned);
    let mut clients: Vec<_> = clients.iter().filter_map(client).collect();
    assert_eq!(clients.len(), waiters);
    // A waiter behind another one of its own locker learns of its turn by the reply to that release.
    clients.dedup();
    let pushes = clients.len();
    if waiters <= ONE_BY_ONE {
        let asked: Vec<_> = (0..waiters).map(|i| format!("w{i}")).collect();
        assert_eq!(order, asked, "the line is in the order of asking");
    }
    subscribed(&mut admin, 1 + waiters.min(count * lockers)).await;
    quiet(&mut admin).await;

    let mut monitor = Monitor::start(&server).await;
    admin.reset_stats().await;
    let (begin, watch) = (Instant::now(), Stopwatch::start());
    holder.release().await.expect("a held lock");
    let mut grants: Vec<Granted> = Vec::new();
    for (i, process) in processes.iter_mut().enumerate() {
        let its = (waiters + count - 1 - i) / count;
        grants.extend(process.grants(its, LIMIT * 6).await);
    }
    let free = async || admin.tenure(&lock_key("x")).await.is_none();
    eventually(LIMIT, "the last waiter releases", free).await;
    let took = begin.elapsed();
    let calls = admin.script_calls().await;
    assert_eq!(
        by_token(&mut grants),
        order,
        "served in the order of the line"
    );
    let executed = Executed::read(&mut monitor).await;
    // If the machine stood still, waiters without a reply have asked again, which is not the lock's cost.
    if watch.stalled() < COMMAND_TIMEOUT {
        let calls = usize::try_from(calls).expect("fits");
        cost((waiters, pushes), took, calls, &executed, &grants);
    }
}

/// Waits until no script is called for a moment.
async fn quiet(admin: &mut Admin) {
    let is_quiet = async || {
        let before = admin.script_calls().await;
        tokio::time::sleep(millis(100)).await;
        admin.script_calls().await == before
    };
    eventually(LIMIT * 2, "no script is called for a moment", is_quiet).await;
}

/// Returns how many heartbeats a waiter may send in this time.
fn beats(time: Duration) -> usize {
    usize::try_from(time.as_nanos() / HEARTBEAT.as_nanos()).expect("fits") + 1
}

/// Checks what the handoffs, one after the other, made the server execute.
fn cost(
    (waiters, pushes): (usize, usize),
    took: Duration,
    calls: usize,
    executed: &Executed,
    grants: &[Granted],
) {
    let (handoffs, of_holders) = (waiters, executed.calls_of_holders());
    let each = took / u32::try_from(handoffs).expect("not that many");
    println!(
        "{handoffs} handoffs in {took:.0?}, {each:.1?} each: {calls} script calls, {of_holders} of \
         them by holders"
    );
    // The first release comes before the first handoff.
    assert!(
        of_holders <= 3 * handoffs + 1,
        "{of_holders} for {handoffs}"
    );
    let beats = beats(took);
    assert!(calls <= 3 * handoffs + 1 + waiters * beats, "{calls} calls");

    // Each handoff to another locker is one message to the next holder, and wakes no one else. Each holder
    // renews once and releases once, and waiters only confirm their places.
    assert_eq!(executed.published.values().sum::<usize>(), pushes);
    let mut expected: BTreeMap<_, _> = grants
        .iter()
        .flat_map(|granted| {
            let label = granted.label.clone();
            let token = granted.token.to_string();
            [
                (Operation::Renew(token), 1),
                (Operation::Release(label.clone()), 1),
                (Operation::Acquire(label), beats),
            ]
        })
        .collect();
    expected.insert(Operation::Release("holder".into()), 1);
    for (operation, count) in executed.operations() {
        let most = expected.get(operation).copied().unwrap_or(0);
        assert!(count <= most, "{count} of {operation:?}, not {most}");
    }
    // A push connection is checked every 10 s, and the key of a lock that was held for 30 ms is read once.
    let is_read = |line: &&String| line.contains("\"CACHING\"") || line.contains("\"EXISTS\"");
    let (reads, others): (Vec<_>, Vec<_>) = executed.others.iter().partition(is_read);
    assert!(reads.len() <= 2 * handoffs, "{reads:?}");
    let others: Vec<_> = others
        .iter()
        .filter(|line| !line.contains("\"PING\""))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_waiters_in_four_processes() {
    order(4, 2, 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_in_five_processes() {
    order(5, 4, 1_000).await;
}

/// Catches waiters that poll: each of ten waiters of one process only asks at its heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_waiters_do_not_poll() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let _held = held(&lock(&connect(&server).await, "x", "holder")).await;
    let mut process = Process::start(&server, 2).await;
    for i in 0..10 {
        process.ask(&format!("w{i}"), "x", TTL, Then::Pass);
    }
    in_line(&mut admin, "x", 10).await;
    subscribed(&mut admin, 3).await;
    quiet(&mut admin).await;
    let begin = Instant::now();
    let mut monitor = Monitor::start(&server).await;
    tokio::time::sleep(millis(3_000)).await;
    let executed = Executed::read(&mut monitor).await;
    let beats = beats(begin.elapsed());
    for (operation, count) in executed.operations() {
        assert!(matches!(operation, Operation::Acquire(_)), "{operation:?}");
        assert!(count <= beats, "{count} of {operation:?} in 3 s");
    }
    assert!(executed.calls.len() <= 10 * beats, "{:?}", executed.calls);
}

//! `Lost` is never late (I4): on real servers, whatever happens to them.
//!
//! `cargo test -p leasehold-tests --test loss -- --nocapture` prints the lateness of `Lost` in each case: the
//! moment at which a reader of the events gets it, minus the moment at which the server frees the lock. It
//! must never be above 0. An independent client asks the server for the latter, since the lease's own
//! deadline is a part of what is tested. The tests run one at a time, so that they do not disturb one
//! another. If the machine stood still just when the event was due, that time does not count.

mod margin;
mod short;
mod suspended;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::{Lease, LeaseEvent, LeaseEvents, Lock, Locker, LossReason};
use leasehold_tests::{
    Admin, Mode, Proxy, RedisServer, Stopwatch, eventually, next_event, stalled_between, within,
};
use tokio::sync::{Mutex, MutexGuard};
use tokio_stream::StreamExt;

/// Long enough to survive if the machine stands still for two seconds.
const TTL: Duration = Duration::from_secs(4);
/// The longest wait of a test for anything else.
const LIMIT: Duration = Duration::from_secs(10);
/// How long before the deadline `Lost` comes. A pause of the machine before that delays nothing.
const LEAD: Duration = Duration::from_millis(50);
/// How much earlier than the server's expiry the deadline is, for clocks that run at different rates: 1 in
/// 500 of the time to live, in whole milliseconds.
const MARGIN: Duration = Duration::from_millis(7);
const KEY: &str = "{leasehold:x}";

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A held lock with a reader of its events.
struct Held {
    lock: Lock,
    lease: Lease,
    events: LeaseEvents,
    admin: Admin,
    /// When the server would free the lock, asked before the cause of the loss.
    expiry: Instant,
    _turn: MutexGuard<'static, ()>,
}

/// The loss of a lease.
struct Loss {
    reason: LossReason,
    /// The time from the cause to the event.
    after: Duration,
    /// The time of the event minus the server's expiry, in milliseconds: negative is early.
    lateness: f64,
    at_risk: usize,
}

impl Held {
    async fn on(server: &RedisServer) -> Self {
        Self::by(server, &server.url()).await
    }

    /// Acquires the lock on a server through this URL, which may be a proxy's.
    async fn by(server: &RedisServer, url: &str) -> Self {
        let guard = ONE_AT_A_TIME.lock().await;
        let builder = Locker::builder().command_timeout(Duration::from_millis(300));
        let connected = builder.connect(url).await;
        let lock = connected
            .expect("the server is up")
            .lock("x")
            .expect("valid")
            .ttl(TTL);
        let mut events = lock.events();
        let lease = lock.acquire().await.expect("a free lock");
        // A first renewal shows that all is well.
        let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
        next_event(&mut events, LIMIT, renewed).await;
        let mut admin = Admin::connect(server).await;
        let expiry = expiry(&mut admin, KEY).await.expect("a held lock");
        // The next renewal is a second away.
        let left = expiry.saturating_sub(wall_clock() + lease.remaining());
        assert!(
            left >= MARGIN,
            "the deadline is {left:?} before the server's expiry, less than {MARGIN:?}"
        );
        Self {
            lock,
            expiry: local(expiry),
            admin,
            lease,
            events,
            _turn: guard,
        }
    }

    /// Follows the events to the loss, and compares its time with the server's last expiry.
    async fn until_lost(&mut self, what: &str) -> Loss {
        let cause = Stopwatch::start();
        let mut due = self.expiry;
        let mut at_risk = 0;
        loop {
            match within(TTL * 3, self.events.next())
                .await
                .expect("the loss is reported")
                .expect("the lock still has handles")
            {
                LeaseEvent::Lost { reason, .. } => {
                    let (now, after) = (Instant::now(), cause.elapsed());
                    assert!(!self.lease.is_valid());
                    assert_eq!(self.lease.remaining(), Duration::ZERO);
                    assert_eq!(self.lease.lost().await.reason, reason);
                    let due = put_off(due, now);
                    let early = due.saturating_duration_since(now).as_secs_f64();
                    let late = now.saturating_duration_since(due).as_secs_f64();
                    let loss = Loss {
                        reason,
                        after,
                        lateness: (late - early) * 1e3,
                        at_risk,
                    };
                    println!(
                        "Lost after {what}: {reason:?}, {:.0} ms after the cause, {:.1} ms \
                         against the server's expiry",
                        loss.after.as_secs_f64() * 1e3,
                        loss.lateness,
                    );
                    assert!(loss.lateness <= 0.0, "{what}: late by {} ms", loss.lateness);
                    return loss;
                }
                LeaseEvent::AtRisk { .. } => at_risk += 1,
                LeaseEvent::Renewed { .. } => {
                    let renewed = expiry(&mut self.admin, KEY).await;
                    due = renewed.map_or(due, local);
                }
                other => panic!("expected the loss, got {other:?}"),
            }
        }
    }
}

/// Returns when the server will free the lock, by its own clock; `None` if the lock is free.
async fn expiry(admin: &mut Admin, key: &str) -> Option<Duration> {
    admin.tenure(key).await.map(|tenure| tenure.expires)
}

/// Returns the wall clock of this machine, which its servers use too.
fn wall_clock() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the time is after 1970")
}

/// Converts a time of the wall clock to the monotonic clock.
fn local(moment: Duration) -> Instant {
    let (now, wall) = (Instant::now(), wall_clock());
    let earlier = now.checked_sub(wall.saturating_sub(moment)).unwrap_or(now);
    earlier + moment.saturating_sub(wall)
}

/// Delays the due time of the event by as long as the machine stood still at that time.
fn put_off(due: Instant, now: Instant) -> Instant {
    let told = due.checked_sub(LEAD).unwrap_or(due);
    due + stalled_between(told, now)
}

/// The time within which the next renewal comes: it is due after a third of the time to live.
const NEXT_RENEWAL: Duration = Duration::from_millis(1_600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_is_in_time_after_del() {
    let server = RedisServer::start().await;
    let mut held = Held::on(&server).await;
    let mut admin = Admin::connect(&server).await;
    admin.int(&["DEL", KEY]).await;
    let loss = held.until_lost("DEL").await;
    assert_eq!(loss.reason, LossReason::Deleted);
    assert!(
        loss.after < NEXT_RENEWAL,
        "at the next renewal: {:?}",
        loss.after
    );
    assert_eq!(
        admin.int(&["EXISTS", KEY]).await,
        0,
        "the lock was re-acquired (I5)"
    );
    let error = held.lease.release().await.expect_err("a lost lease");
    assert!(error.is_not_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_is_in_time_after_a_takeover() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let rival = Locker::connect(server.url())
        .await
        .expect("the server is up");
    let mut held = Held::on(&server).await;
    let taken = rival
        .lock("y")
        .expect("valid")
        .acquire()
        .await
        .expect("a free lock");
    // In one step: a holder that hears of the change would otherwise find the key deleted in between.
    let replace = "redis.call('RENAME', KEYS[1], KEYS[2]) return 1";
    let keys = ["{leasehold:y}", KEY];
    admin.int(&["EVAL", replace, "2", keys[0], keys[1]]).await;
    let loss = held.until_lost("a takeover").await;
    assert_eq!(loss.reason, LossReason::Superseded);
    assert!(
        loss.after < NEXT_RENEWAL,
        "at the next renewal: {:?}",
        loss.after
    );
    assert!(taken.token() > held.lease.token());
    let seen = rival
        .inspect("x")
        .await
        .expect("an answer")
        .holder
        .expect("a held lock");
    assert_eq!(
        seen.token,
        taken.token(),
        "the former holder took the lock back (I5)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_is_in_time_after_a_foreign_value_in_its_place() {
    let server = RedisServer::start().await;
    let mut held = Held::on(&server).await;
    let mut admin = Admin::connect(&server).await;
    // In one step: a renewal in between would find the key deleted.
    let replace = "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'mine')";
    admin.int(&["EVAL", replace, "1", KEY]).await;
    let loss = held.until_lost("a foreign value").await;
    assert_eq!(loss.reason, LossReason::Superseded);
    assert_eq!(admin.int(&["LLEN", KEY]).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_is_in_time_after_a_forced_release() {
    let server = RedisServer::start().await;
    let manager = Locker::connect(server.url())
        .await
        .expect("the server is up");
    let mut held = Held::on(&server).await;
    let mut admin = Admin::connect(&server).await;
    let hears = async || admin.hearing_lockers().await == 1;
    eventually(LIMIT, "the subscription is checked", hears).await;
    let holder = manager
        .force_release("x")
        .await
        .expect("an answer")
        .expect("the lock was held");
    assert_eq!(holder.token, held.lease.token());
    let loss = held.until_lost("a forced release").await;
    assert_eq!(
        loss.reason,
        LossReason::Revoked,
        "a push reports the loss at once"
    );
    assert!(loss.after < TTL / 6, "{:?}", loss.after);
}

/// The negative control of the push: without it the loss is noticed as after DEL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_is_in_time_after_a_forced_release_without_a_push() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let deaf = ["deaf", "on", "nopass", "~*", "+@all", "resetchannels"];
    let rights: Vec<_> = ["ACL", "SETUSER"].iter().chain(&deaf).collect();
    admin.ok(&rights).await;
    let url = format!("redis://deaf:any@127.0.0.1:{}", server.port());
    let rival = Locker::connect(server.url())
        .await
        .expect("the server is up");
    let mut held = Held::by(&server, &url).await;
    let holder = rival.force_release("x").await.expect("an answer");
    assert_eq!(holder.map(|holder| holder.token), Some(held.lease.token()));
    let loss = held.until_lost("a forced release unheard").await;
    assert_eq!(loss.reason, LossReason::Deleted);
    assert!(
        loss.after < NEXT_RENEWAL,
        "at the next renewal: {:?}",
        loss.after
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_is_in_time_after_sigstop_of_the_server() {
    let server = RedisServer::start().await;
    let mut held = Held::on(&server).await;
    server.pause();
    let loss = held.until_lost("SIGSTOP").await;
    assert_eq!(loss.reason, LossReason::Expired);
    assert!(loss.at_risk > 0, "no risk was reported before");
    server.resume();
    let again = held.lock.acquire().await.expect("the server is back");
    assert!(again.token() > held.lease.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_is_in_time_after_the_server_is_killed() {
    let mut server = RedisServer::start().await;
    let mut held = Held::on(&server).await;
    server.kill();
    let loss = held.until_lost("SIGKILL").await;
    assert_eq!(loss.reason, LossReason::Expired);
    assert!(loss.at_risk > 0, "no risk was reported before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_is_in_time_after_the_connection_is_black_holed() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let mut held = Held::by(&server, &proxy.url()).await;
    proxy.set_both(Mode::BlackHole);
    let loss = held.until_lost("a black hole").await;
    assert_eq!(loss.reason, LossReason::Expired);
    assert!(loss.at_risk > 0, "no risk was reported before");
    // The old connection stays half-open for ever; only a new one gets through.
    proxy.set_both(Mode::Pass);
    let again = tokio::time::timeout(TTL * 10, held.lock.acquire()).await;
    let again = again
        .expect("the client finds another connection")
        .expect("the lease expired");
    assert!(again.token() > held.lease.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_under_the_lease_is_dropped_at_the_loss() {
    let server = RedisServer::start().await;
    let held = Held::on(&server).await;
    server.pause();
    let due = held.expiry;
    let steps = std::sync::atomic::AtomicU32::new(0);
    let work = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let lost: leasehold::Lost = held
        .lease
        .run::<_>(work)
        .await
        .map(|(): ()| ())
        .expect_err("lost");
    let now = Instant::now();
    assert_eq!(lost.reason, LossReason::Expired);
    let late = now.saturating_duration_since(put_off(due, now));
    assert_eq!(late, Duration::ZERO, "late");
    assert!(
        steps.into_inner() > 10,
        "the work did not go on until the loss"
    );
}

/// The negative control: if the driver cannot run, the event comes late and the measurement above sees it;
/// the lease itself still becomes invalid in time.
#[tokio::test(flavor = "current_thread")]
async fn a_blocked_runtime_makes_the_event_late_but_not_the_lease() {
    let server = RedisServer::start().await;
    let mut held = Held::on(&server).await;
    let due = held.expiry;
    while Instant::now() < due {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(
        !held.lease.is_valid(),
        "the lease becomes invalid without an event"
    );
    let lost = |event: &LeaseEvent| matches!(event, LeaseEvent::Lost { .. });
    next_event(&mut held.events, LIMIT, lost).await;
    assert!(Instant::now() >= due, "the event was not late");
}

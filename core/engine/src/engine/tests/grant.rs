//! The deadline of a lock that was handed over, as bounded by the clocks.

use std::time::Duration;

use super::handoff::{WINDOW, lease};
use super::host::{Host, Net, ms};
use super::line::in_line;
use crate::engine::{Answer, CallId, Input};
use crate::protocol::{Grant, News, Push};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

/// How long a pushed grant keeps the lock for its waiter.
const PROMISED: Duration = Duration::from_secs(WINDOW.as_secs() / 2);

/// One grant that is reported late, after the clocks changed since they were compared.
struct Case {
    /// How long the request and the reply took that compared the clocks.
    latency: (Duration, Duration),
    /// How long before the grant the clocks were compared, and how long the push took.
    age: Duration,
    delay: Duration,
    /// How fast the server's clock is, in parts per million.
    rate: i64,
    /// How far the server's clock was set in between, in milliseconds.
    step: i64,
}

impl Case {
    fn all() -> impl Iterator<Item = Case> {
        let times = [0, 7, 900, 11_000, 15_000].map(ms);
        let latencies = [(0, 0), (400, 0), (0, 400), (300, 300)];
        let clocks = [
            (0, 0),
            (1_000, 0),
            (-1_000, 0),
            (0, 3),
            (0, -3),
            (0, 5_000),
            (0, -5_000),
            (0, 3_600_000),
            (0, -3_600_000),
        ];
        let ages = [0, 1_000, 60_000, 3_000_000].map(ms);
        let per_age = move |age| {
            times.into_iter().flat_map(move |delay| {
                latencies.into_iter().flat_map(move |(to, from)| {
                    clocks.into_iter().map(move |(rate, step)| Case {
                        latency: (ms(to), ms(from)),
                        age,
                        delay,
                        rate,
                        step,
                    })
                })
            })
        };
        ages.into_iter().flat_map(per_age)
    }

    /// Lets time pass for both clocks, in steps, so that the store's clock differs by its rate.
    fn pass(&self, host: &mut Host, time: Duration) {
        host.sleep(time);
        let millis = i64::try_from(time.as_millis()).expect("a short time");
        host.epoch = host.epoch.saturating_add_signed(millis * self.rate / 1_000);
    }

    /// Returns when the lock was granted, and the call that waited for it.
    fn play(&self, host: &mut Host) -> (Timestamp, CallId) {
        let call = in_line(host);
        // An answer from long before would give better bounds on the clocks than a slow one.
        host.net = Net::Hold;
        host.connect(0);
        let probe = host.take();
        self.pass(host, self.latency.0);
        let reply = host.execute(&probe);
        self.pass(host, self.latency.1);
        host.reply(&probe, Ok(reply));
        self.pass(host, self.age);
        host.epoch = host.epoch.saturating_add_signed(self.step * 1_000);
        let (granted, time) = (host.now, host.server_now());
        let grant = Grant {
            token: FencingToken::new(2).expect("a token"),
            expires: ServerTime::from_millis(time.millis()) + PROMISED,
        };
        let lease = lease(host);
        self.pass(host, self.delay);
        host.input(Input::push(Push::new(lease, News::Granted { grant, time })));
        (granted, call)
    }
}

/// Catches a deadline that counts from the push's arrival, or from clocks that were not compared: two holders
/// would have the lock.
#[test]
fn the_deadline_of_a_grant_is_never_later_than_the_stores_expiry() {
    let (mut held, mut asked) = (0, 0);
    for case in Case::all() {
        let mut host = Host::new();
        let (granted, call) = case.play(&mut host);
        let Case {
            latency,
            age,
            delay,
            rate,
            step,
        } = case;
        let story = format!("{latency:?} {age:?} {delay:?} rate {rate} step {step}");
        if host.is_open(call) {
            asked += 1;
            host.net = Net::Up;
            host.answer_all();
            host.advance(ms(0));
            assert!(host.count("acquire") >= 2, "{story}: it asks at once");
            continue;
        }
        held += 1;
        let deadline = host.grant(call).deadline;
        assert!(deadline <= host.now + PROMISED, "{story}");
        assert!(host.grant(call).began <= host.now, "{story}");
        if step != 0 {
            continue;
        }
        // A clock that is fast by a thousandth ends the lease sooner by that much.
        let true_end = granted + PROMISED - PROMISED / 1_000 * u32::from(rate > 0);
        assert!(
            deadline <= true_end,
            "{story}: {deadline:?} and {true_end:?}"
        );
        assert!(host.grant(call).began <= granted, "{story}");
        // Nor is the deadline needlessly early.
        let slack = latency.0 + latency.1 + (age + delay + PROMISED) * 4 / 1_000 + ms(2);
        assert!(deadline + slack >= true_end, "{story}: {deadline:?}");
    }
    assert!(held > 200 && asked > 100, "{held} held, {asked} asked");
}

/// With steady clocks and a push in time, the lock is held, whatever the other conditions.
#[test]
fn a_grant_in_time_is_held_at_once() {
    let in_time = |case: &Case| case.step == 0 && case.delay < ms(1_000) && case.age < ms(2_000);
    let mut seen = 0;
    for case in Case::all().filter(in_time) {
        let mut host = Host::new();
        let (_, call) = case.play(&mut host);
        assert!(matches!(host.outcome(call), Answer::Acquire(Ok(Some(_)))));
        seen += 1;
    }
    assert!(seen > 50);
}

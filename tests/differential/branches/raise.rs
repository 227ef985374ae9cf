//! The branches of the script that concern token floors.

use leasehold_engine::protocol::{Acquire, Command, Counter, Renew, Reply};
use leasehold_engine::{Error, FencingToken};

use super::{Before, Lock};

pub(super) const BRANCHES: [&str; 11] = [
    "raise: behind the clock",
    "raise: ahead of the clock",
    "raise: dense",
    "raise: to the greatest token",
    "raise: no higher than the last token",
    "raise: of a tenure that lasts longer anyway",
    "raise: gone",
    "raise: taken",
    "raised before: retry",
    "raised before: released",
    "raised before: handed over",
];

/// Returns the branches of renewals with a floor, and of a tenure whose token is not the last.
pub(super) fn branches(
    command: &Command,
    reply: &Result<Reply, Error>,
    before: &Before,
) -> Vec<&'static str> {
    let last = before.token.map_or(0, |(last, _)| last);
    if let Command::Renew(renew) = command {
        return raises(renew, reply, before, last);
    }
    let raised = before.lock.as_ref().filter(|lock| lock.token.get() < last);
    let Some(lock) = raised else {
        return Vec::new();
    };
    match (command, reply) {
        (Command::Acquire(Acquire { claim, .. }), Ok(Reply::Held(held)))
            if lock.lease == claim.lease.to_string() =>
        {
            assert_eq!(held.token, lock.token, "the tenure keeps its own token");
            vec!["raised before: retry"]
        }
        (Command::Release(_), Ok(Reply::Released)) => vec!["raised before: released"],
        (Command::Release(_), Ok(Reply::HandedOver { grant, .. })) => {
            assert!(
                grant.token.get() > last,
                "the next token is above the floor"
            );
            vec!["raised before: handed over"]
        }
        _ => Vec::new(),
    }
}

fn raises(
    renew: &Renew,
    reply: &Result<Reply, Error>,
    before: &Before,
    last: u64,
) -> Vec<&'static str> {
    let Some(floor) = renew.floor else {
        return Vec::new();
    };
    match reply {
        Ok(Reply::Gone) => return vec!["raise: gone"],
        Ok(Reply::Taken) => return vec!["raise: taken"],
        Ok(Reply::Renewed { .. } | Reply::Wanted { .. }) => {}
        _ => return Vec::new(),
    }
    if floor.get() <= last {
        return vec!["raise: no higher than the last token"];
    }
    let asked = (before.now + renew.ttl).millis();
    let lasts = |lock: &Lock| lock.expires > asked;
    let is_ahead = floor.get() >= before.now.as_micros();
    let all = [
        (!is_ahead, "raise: behind the clock"),
        (is_ahead, "raise: ahead of the clock"),
        (renew.counter == Counter::Dense, "raise: dense"),
        (floor == FencingToken::MAX, "raise: to the greatest token"),
        (
            before.lock.as_ref().is_some_and(lasts),
            "raise: of a tenure that lasts longer anyway",
        ),
    ];
    let holds = all.into_iter().filter(|(holds, _)| *holds);
    holds.map(|(_, hit)| hit).collect()
}

//! The branches of the script that concern tenures that were passed on.

use leasehold_engine::Error;
use leasehold_engine::protocol::{Accept, Command, Counter, Reply};

use super::{Before, Lock};

pub(super) const BRANCHES: [&str; 12] = [
    "accept: late",
    "accept: accepted from a label",
    "accept: accepted from an owner",
    "accept: accepted, dense",
    "accept: accepted, clock floor",
    "accept: accepted while others wait",
    "accept: counter used up",
    "accept: retry",
    "accept: gone",
    "accept: gone because it expired",
    "accept: taken",
    "accept: taken by a later tenure of the same lease",
];

pub(super) fn branches(
    command: &Command,
    reply: &Result<Reply, Error>,
    before: &Before,
) -> Vec<&'static str> {
    let Command::Accept(Accept {
        lease,
        token,
        claim,
        ..
    }) = command
    else {
        return Vec::new();
    };
    let holds = |lock: &&Lock| lock.lease == claim.lease.to_string();
    let is_stale = |lock: &Lock| lock.lease == lease.to_string() && lock.token > *token;
    match (&before.lock, reply) {
        (_, Ok(Reply::Late)) => vec!["accept: late"],
        (Some(lock), Ok(Reply::Held(_))) if holds(&lock) => vec!["accept: retry"],
        (Some(lock), Ok(Reply::Held(_))) => {
            let mut hits = vec![
                if lock.has_owner() {
                    "accept: accepted from an owner"
                } else {
                    "accept: accepted from a label"
                },
                if claim.counter == Counter::Dense {
                    "accept: accepted, dense"
                } else {
                    "accept: accepted, clock floor"
                },
            ];
            if before.waiting {
                hits.push("accept: accepted while others wait");
            }
            hits
        }
        (Some(_), Err(_)) => vec!["accept: counter used up"],
        (None, Ok(Reply::Gone)) if before.lock_outlived => vec!["accept: gone because it expired"],
        (None, Ok(Reply::Gone)) => vec!["accept: gone"],
        (Some(lock), Ok(Reply::Taken)) if is_stale(lock) => {
            vec!["accept: taken by a later tenure of the same lease"]
        }
        (Some(_), Ok(Reply::Taken)) => vec!["accept: taken"],
        _ => panic!("{reply:?} does not answer {command:?}"),
    }
}

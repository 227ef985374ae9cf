//! The branches of the script that concern requests to yield.

use leasehold_engine::protocol::{AskYield, Command, News, Reply};
use leasehold_engine::{Error, StoredTenure};

use super::Before;
use super::line::Change;

pub(super) const BRANCHES: [&str; 20] = [
    "ask-yield: late",
    "ask-yield: first",
    "ask-yield: sooner than the pending request",
    "ask-yield: no sooner than the pending request",
    "ask-yield: after the time of the last request",
    "ask-yield: holder told",
    "ask-yield: holder not subscribed",
    "ask-yield: another tenure",
    "ask-yield: free",
    "ask-yield: free because it expired",
    "wanted: renewed",
    "wanted: renewed after the request's time",
    "wanted: renewed for less than is left",
    "wanted: retry",
    "wanted: busy",
    "wanted: reclaimed",
    "wanted: released",
    "wanted: handed over",
    "wanted: force-released",
    "wanted: inspected",
];

/// Returns the branches of requests, and of operations on a tenure that has one.
pub(super) fn branches(
    (command, reply): (&Command, &Result<Reply, Error>),
    before: &Before,
    tenure: Option<&StoredTenure>,
) -> Vec<&'static str> {
    let request = tenure.and_then(|tenure| tenure.request.as_ref());
    let is_pending = request.is_some_and(|request| request.until.millis() >= before.now.millis());
    let asks = match (command, reply) {
        (Command::AskYield(_), Ok(Reply::Late)) => Some("ask-yield: late"),
        (Command::AskYield(_), Ok(Reply::Taken)) => Some("ask-yield: another tenure"),
        (Command::AskYield(_), Ok(Reply::Gone)) if before.lock_outlived => {
            Some("ask-yield: free because it expired")
        }
        (Command::AskYield(_), Ok(Reply::Gone)) => Some("ask-yield: free"),
        (Command::AskYield(AskYield { within, .. }), _) => Some(match request {
            None => "ask-yield: first",
            Some(_) if !is_pending => "ask-yield: after the time of the last request",
            Some(request) if (before.now + *within).millis() < request.until.millis() => {
                "ask-yield: sooner than the pending request"
            }
            Some(_) => "ask-yield: no sooner than the pending request",
        }),
        _ => None,
    };
    let (Some(tenure), Some(_)) = (tenure, request) else {
        return asks.into_iter().collect();
    };
    let on_wanted = match (command, reply) {
        (Command::Renew(renew), Ok(Reply::Wanted { .. })) => Some(if !is_pending {
            "wanted: renewed after the request's time"
        } else if (before.now + renew.ttl).millis() < tenure.expires.millis() {
            "wanted: renewed for less than is left"
        } else {
            "wanted: renewed"
        }),
        (Command::Acquire(acquire), Ok(Reply::Held(_))) => {
            Some(if acquire.claim.lease == tenure.lease {
                "wanted: retry"
            } else {
                "wanted: reclaimed"
            })
        }
        (Command::Acquire(_), Ok(Reply::Busy { .. })) => Some("wanted: busy"),
        (Command::Release(_), Ok(Reply::Released)) => Some("wanted: released"),
        (Command::Release(_), Ok(Reply::HandedOver { .. })) => Some("wanted: handed over"),
        (Command::ForceRelease(_), Ok(Reply::Released)) => Some("wanted: force-released"),
        (Command::Inspect(_), Ok(Reply::Inspected(seen))) => {
            assert_eq!(seen.wanted.is_some(), is_pending, "{seen:?}");
            Some("wanted: inspected")
        }
        _ => None,
    };
    asks.into_iter().chain(on_wanted).collect()
}

impl Change<'_> {
    /// Returns whether the holder was told of the request.
    pub(super) fn asked(&self) -> &'static str {
        if self.told(|news| matches!(news, News::Wanted { .. })) {
            "ask-yield: holder told"
        } else {
            "ask-yield: holder not subscribed"
        }
    }
}

//! The branches of the script that the sequences took.

mod accept;
mod line;
mod raise;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_engine::protocol::{
    Acquire, BatchReply, Command, Counter, LockKey, Op, Reclaim, Renew, Reply, Retire,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, FencingToken, StoredTenure};

use crate::model::Model;
use line::Change;

/// All branches that must be reached.
const BRANCHES: [&str; 71] = [
    "acquire: late",
    "acquire: free, first dense token",
    "acquire: free, dense token counted up",
    "acquire: free, dense over a counter that would expire",
    "acquire: free, dense after the counter expired",
    "acquire: free, dense counter used up",
    "acquire: free, first token from the clock",
    "acquire: free, token lifted to the clock",
    "acquire: free, token counted up ahead of the clock",
    "acquire: free, the token that was proposed",
    "acquire: free, a token that was proposed is far from the clock",
    "acquire: free, a token that was proposed is not above the last",
    "acquire: free, clock floor over a counter without an expiry",
    "acquire: free, clock floor after the counter expired",
    "acquire: free, clock floor, counter used up",
    "acquire: free, the greatest token",
    "acquire: free because it expired",
    "acquire: free, last token of an earlier step of the clock",
    "acquire: retry",
    "acquire: retry by another client",
    "acquire: retry as another owner",
    "acquire: busy, a label on both sides",
    "acquire: busy, the holder's owner has only a label",
    "acquire: busy, the asker's owner has only a label",
    "acquire: busy, another owner",
    "acquire: busy, the same owner at the same client",
    "acquire: reclaimable",
    "acquire: busy, another tenure of its owner",
    "acquire: busy, its owner's tenure that it may not take over",
    "acquire: reclaimed, dense",
    "acquire: reclaimed, clock floor",
    "acquire: reclaim fails, counter used up",
    "renew: late",
    "renew: renewed",
    "renew: for less than is left",
    "renew: kept into another step of the clock",
    "renew: gone",
    "renew: gone because it expired",
    "renew: taken",
    "renew: of an earlier tenure of the same lease",
    "release: late",
    "release: released",
    "release: released after it expired",
    "release: gone",
    "release: gone because it expired",
    "release: taken",
    "retire: late",
    "retire: released from a label",
    "retire: released from an owner",
    "retire: released before",
    "retire: gone",
    "retire: gone because it expired",
    "retire: taken",
    "force-release: late",
    "force-release: released from a label",
    "force-release: released from an owner",
    "force-release: another tenure",
    "force-release: free",
    "force-release: free because it expired",
    "inspect: late",
    "inspect: held with a label",
    "inspect: held by an owner",
    "inspect: free, last token known",
    "inspect: free, no token",
    "inspect: free because the lock expired",
    "inspect: free, the counter expired",
    "batch: one operation",
    "batch: several operations on one name",
    "batch: several names",
    "batch: late by one of it",
    "batch: some refused, some not",
];

/// The steps, in milliseconds, within which a key's expiry is set once.
const STEP: u64 = 1_000_000;

/// How often each branch was taken.
#[derive(Clone, Default, Debug)]
pub(crate) struct Coverage {
    hits: BTreeMap<&'static str, usize>,
}

/// A lock's value, split into its parts.
struct Lock {
    lease: String,
    client: String,
    token: FencingToken,
    kind: String,
    label: String,
    expires: u64,
}

fn every() -> impl Iterator<Item = &'static str> {
    let line = line::BRANCHES.into_iter().chain(line::LISTS);
    let rest = raise::BRANCHES.into_iter().chain(wanted::BRANCHES);
    let rest = rest.chain(accept::BRANCHES);
    BRANCHES.into_iter().chain(line).chain(rest)
}

/// The state that an operation meets.
struct Before {
    now: ServerTime,
    lock: Option<Lock>,
    /// The last token, and when it is forgotten.
    token: Option<(u64, Option<u64>)>,
    lock_outlived: bool,
    token_outlived: bool,
    /// True if a live waiter is in line.
    waiting: bool,
}

impl Coverage {
    pub(crate) fn summary(&self) -> String {
        let (hits, all) = (self.hits.len(), every().count());
        let mut rarest: Vec<_> = self
            .hits
            .iter()
            .map(|(branch, hits)| (hits, branch))
            .collect();
        rarest.sort();
        rarest.truncate(5);
        format!("branches covered: {hits} of {all}; the rarest: {rarest:?}")
    }

    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let missed = |branch: &&str| !self.hits.contains_key(branch);
        every().filter(missed).collect()
    }

    /// Notes what a batch did to a model in that state, by the real server's replies.
    pub(crate) fn note(
        &mut self,
        mut model: Model,
        keys: &[LockKey],
        (since, batch, answer): (ServerTime, &[Op], &BatchReply),
        outlived: &BTreeSet<String>,
    ) {
        // A batch that does not read the clock does not depend on the time.
        let now = answer.time.unwrap_or(since);
        let mut outlived = outlived.clone();
        for (op, reply) in batch.iter().zip(&answer.replies) {
            let Some(key) = op.command.key() else {
                self.hit(listed(&model, now, keys, reply));
                continue;
            };
            let line = model.line(now, key);
            let before = Before {
                now,
                lock: model.tenure(now, key).map(Lock::new),
                token: model
                    .last_token(now, key)
                    .zip(model.lock(now, key))
                    .map(|(last, entry)| (last, entry.expires)),
                lock_outlived: model.has_outlived(now, key),
                token_outlived: outlived.contains(key.lock()),
                waiting: line.iter().any(|place| !place.is_dead(now)),
            };
            let usual = branches(&op.command, reply, &before);
            let done = (&op.command, reply);
            let wanted = wanted::branches(done, &before, model.tenure(now, key));
            for branch in usual
                .into_iter()
                .chain(raise::branches(&op.command, reply, &before))
                .chain(accept::branches(&op.command, reply, &before))
                .chain(wanted)
            {
                self.hit(branch);
            }
            if matches!(reply, Ok(Reply::Late)) {
                continue;
            }
            model.execute(now, std::slice::from_ref(op));
            let change = Change {
                now,
                command: &op.command,
                reply,
                lock: before.lock.as_ref(),
                outlived: before.lock_outlived,
                line,
                lock_after: model.tenure(now, key).map(Lock::new),
                line_after: model.line(now, key),
                pushes: model.take_pushes(),
            };
            for branch in change.branches() {
                self.hit(branch);
            }
            if model.lock(now, key).is_some() {
                outlived.remove(key.lock());
            }
        }
        self.note_shape(now, batch, &answer.replies);
    }

    fn note_shape(&mut self, now: ServerTime, batch: &[Op], replies: &[Result<Reply, Error>]) {
        let names: BTreeSet<_> = batch.iter().filter_map(|op| op.command.key()).collect();
        let late = replies.iter().filter(|reply| **reply == Ok(Reply::Late));
        let late = late.count();
        let refused = replies.iter().filter(|reply| reply.is_err()).count();
        let mixed = |count| 0 < count && count < batch.len();
        let shapes = [
            (batch.len() == 1, "batch: one operation"),
            (
                names.len() < batch.len(),
                "batch: several operations on one name",
            ),
            (names.len() > 1, "batch: several names"),
            (
                late > 1 && batch.iter().any(|op| op.not_after > now),
                "batch: late by one of it",
            ),
            (mixed(refused), "batch: some refused, some not"),
        ];
        for (_, shape) in shapes.iter().filter(|(holds, _)| *holds) {
            self.hit(shape);
        }
    }

    fn hit(&mut self, branch: &'static str) {
        assert!(
            every().any(|known| known == branch),
            "{branch:?} is not in the list"
        );
        *self.hits.entry(branch).or_default() += 1;
    }
}

impl Lock {
    fn new(tenure: &StoredTenure) -> Self {
        let kind = if tenure.owner.is_reclaimable() {
            "r"
        } else {
            "l"
        };
        Self {
            lease: tenure.lease.to_string(),
            client: tenure.client.to_string(),
            token: tenure.token,
            kind: kind.to_owned(),
            label: tenure.owner.label().to_owned(),
            expires: tenure.expires.millis(),
        }
    }

    fn has_owner(&self) -> bool {
        self.kind == "r"
    }
}

fn branches(command: &Command, reply: &Result<Reply, Error>, before: &Before) -> Vec<&'static str> {
    let expired = before.lock_outlived;
    let owner = before.lock.as_ref().is_some_and(Lock::has_owner);
    match (command, reply) {
        (Command::Acquire(_), Ok(Reply::Late)) => vec!["acquire: late"],
        (Command::Renew(_), Ok(Reply::Late)) => vec!["renew: late"],
        (Command::Release(_), Ok(Reply::Late)) => vec!["release: late"],
        (Command::Retire(_), Ok(Reply::Late)) => vec!["retire: late"],
        (Command::ForceRelease(_), Ok(Reply::Late)) => vec!["force-release: late"],
        (Command::Inspect(_), Ok(Reply::Late)) => vec!["inspect: late"],
        (Command::Acquire(acquire), reply) => acquired(acquire, reply, before),
        (Command::AskYield(_), Ok(Reply::Late | Reply::Asked | Reply::Gone | Reply::Taken)) => {
            Vec::new()
        }
        (Command::Accept(_), _) | (Command::Renew(_), Ok(Reply::Wanted { .. })) => Vec::new(),
        (Command::Renew(Renew { ttl, .. }), Ok(Reply::Renewed { .. })) => {
            let former = before.lock.as_ref().map(|lock| lock.expires);
            let asked = (before.now + *ttl).millis();
            vec![match former {
                Some(former) if former > asked => "renew: for less than is left",
                Some(former) if former / STEP < asked / STEP => {
                    "renew: kept into another step of the clock"
                }
                _ => "renew: renewed",
            }]
        }
        (Command::Renew(_), Ok(Reply::Gone)) if expired => vec!["renew: gone because it expired"],
        (Command::Renew(_), Ok(Reply::Gone)) => vec!["renew: gone"],
        (Command::Renew(Renew { lease, .. }), Ok(Reply::Taken)) => {
            let own = |lock: &Lock| lock.lease == lease.to_string();
            vec![if before.lock.as_ref().is_some_and(own) {
                "renew: of an earlier tenure of the same lease"
            } else {
                "renew: taken"
            }]
        }
        (Command::Release(_), Ok(Reply::Released | Reply::HandedOver { .. })) => {
            vec![if expired {
                "release: released after it expired"
            } else {
                "release: released"
            }]
        }
        (Command::Release(_), Ok(Reply::Gone)) if expired => {
            vec!["release: gone because it expired"]
        }
        (Command::Release(_), Ok(Reply::Gone)) => vec!["release: gone"],
        (Command::Release(_), Ok(Reply::Taken)) => vec!["release: taken"],
        (Command::Retire(_), Ok(Reply::Released)) => {
            let no_lease = Retire::NO_LEASE.to_string();
            let lock = before.lock.as_ref();
            vec![if lock.is_some_and(|lock| lock.lease == no_lease) {
                "retire: released before"
            } else if owner {
                "retire: released from an owner"
            } else {
                "retire: released from a label"
            }]
        }
        (Command::Retire(_), Ok(Reply::Gone)) if expired => vec!["retire: gone because it expired"],
        (Command::Retire(_), Ok(Reply::Gone)) => vec!["retire: gone"],
        (Command::Retire(_), Ok(Reply::Taken)) => vec!["retire: taken"],
        (Command::ForceRelease(_), Ok(Reply::Released)) if owner => {
            vec!["force-release: released from an owner"]
        }
        (Command::ForceRelease(_), Ok(Reply::Released)) => {
            vec!["force-release: released from a label"]
        }
        (Command::ForceRelease(_), Ok(Reply::Taken)) => {
            vec!["force-release: another tenure"]
        }
        (Command::ForceRelease(_), Ok(Reply::Gone)) if expired => {
            vec!["force-release: free because it expired"]
        }
        (Command::ForceRelease(_), Ok(Reply::Gone)) => {
            vec!["force-release: free"]
        }
        (Command::Inspect(_), Ok(Reply::Inspected(_))) => inspected(before),
        (command, reply) => panic!("{reply:?} does not answer {command:?}"),
    }
}

fn listed(
    model: &Model,
    now: ServerTime,
    keys: &[LockKey],
    reply: &Result<Reply, Error>,
) -> &'static str {
    let names = match reply {
        Ok(Reply::Late) => return "list: late",
        Ok(Reply::Listed { names, .. }) => names.iter().collect::<BTreeSet<_>>().len(),
        reply => panic!("{reply:?} does not answer a list"),
    };
    let held = keys
        .iter()
        .filter(|key| model.tenure(now, key).is_some())
        .count();
    match names {
        _ if held == 0 => "list: nothing held",
        0 => "list: none of those held",
        _ if names == held => "list: all held",
        _ => "list: some of those held",
    }
}

fn inspected(before: &Before) -> Vec<&'static str> {
    match &before.lock {
        Some(lock) if lock.has_owner() => return vec!["inspect: held by an owner"],
        Some(_) => return vec!["inspect: held with a label"],
        None => {}
    }
    let mut hits = vec![match before.token {
        Some(_) => "inspect: free, last token known",
        None => "inspect: free, no token",
    }];
    if before.lock_outlived {
        hits.push("inspect: free because the lock expired");
    }
    if before.token_outlived {
        hits.push("inspect: free, the counter expired");
    }
    hits
}

fn acquired(acquire: &Acquire, reply: &Result<Reply, Error>, before: &Before) -> Vec<&'static str> {
    let dense = acquire.claim.counter == Counter::Dense;
    match (&before.lock, reply) {
        (None, Ok(Reply::Held(held))) => {
            let mut hits = counted(acquire, before);
            if held.token == FencingToken::MAX {
                hits.push("acquire: free, the greatest token");
            }
            if before.lock_outlived {
                hits.push("acquire: free because it expired");
            }
            hits
        }
        // The waiters before it count.
        (None, Err(_)) if before.waiting => Vec::new(),
        (None, Ok(Reply::Busy { .. })) => Vec::new(),
        (None, Err(_)) if dense => vec!["acquire: free, dense counter used up"],
        (None, Err(_)) => vec!["acquire: free, clock floor, counter used up"],
        (Some(lock), Ok(Reply::Held(_))) if lock.lease == acquire.claim.lease.to_string() => {
            vec![if lock.client != acquire.claim.client.to_string() {
                "acquire: retry by another client"
            } else if lock.label != acquire.claim.owner.label()
                || lock.has_owner() != acquire.claim.owner.is_reclaimable()
            {
                "acquire: retry as another owner"
            } else {
                "acquire: retry"
            }]
        }
        (Some(_), Ok(Reply::Held(_))) if dense => vec!["acquire: reclaimed, dense"],
        (Some(_), Ok(Reply::Held(_))) => vec!["acquire: reclaimed, clock floor"],
        (Some(_), Err(_)) => vec!["acquire: reclaim fails, counter used up"],
        (Some(_), Ok(Reply::Reclaimable { .. })) => vec!["acquire: reclaimable"],
        (Some(lock), Ok(Reply::Busy { .. })) => vec![busy(acquire, lock)],
        (_, reply) => panic!("{reply:?} does not answer {acquire:?}"),
    }
}

fn busy(acquire: &Acquire, lock: &Lock) -> &'static str {
    match (lock.has_owner(), acquire.claim.owner.is_reclaimable()) {
        (false, false) => "acquire: busy, a label on both sides",
        (false, true) => "acquire: busy, the holder's owner has only a label",
        (true, false) => "acquire: busy, the asker's owner has only a label",
        (true, true) if lock.label != acquire.claim.owner.label() => "acquire: busy, another owner",
        (true, true) if lock.client == acquire.claim.client.to_string() => {
            "acquire: busy, the same owner at the same client"
        }
        (true, true) if acquire.reclaims == Reclaim::Never => {
            "acquire: busy, its owner's tenure that it may not take over"
        }
        (true, true) => "acquire: busy, another tenure of its owner",
    }
}

/// A proposed token must be closer to the clock than this, in microseconds.
const NEAR: u64 = 100_000;

/// Returns the branches to the next token.
fn counted(acquire: &Acquire, before: &Before) -> Vec<&'static str> {
    let last = before.token.map_or(0, |(last, _)| last);
    let expires = before.token.and_then(|(_, expires)| expires);
    let known = before.token.is_some();
    let mut hits = Vec::new();
    if acquire.claim.counter == Counter::Dense {
        hits.push(if known {
            "acquire: free, dense token counted up"
        } else {
            "acquire: free, first dense token"
        });
        if expires.is_some() {
            hits.push("acquire: free, dense over a counter that would expire");
        }
        if before.token_outlived {
            hits.push("acquire: free, dense after the counter expired");
        }
        return hits;
    }
    match acquire.reclaims {
        Reclaim::Propose(token) if token.get().abs_diff(before.now.as_micros()) >= NEAR => {
            hits.push("acquire: free, a token that was proposed is far from the clock");
        }
        Reclaim::Propose(token) if token.get() <= last => {
            return vec!["acquire: free, a token that was proposed is not above the last"];
        }
        Reclaim::Propose(_) => return vec!["acquire: free, the token that was proposed"],
        Reclaim::Ask | Reclaim::From(_) | Reclaim::Never => {}
    }
    hits.push(match known {
        false => "acquire: free, first token from the clock",
        true if last + 1 < before.now.as_micros() => "acquire: free, token lifted to the clock",
        true => "acquire: free, token counted up ahead of the clock",
    });
    if known && expires.is_none() {
        hits.push("acquire: free, clock floor over a counter without an expiry");
    }
    if before.token_outlived {
        hits.push("acquire: free, clock floor after the counter expired");
    }
    if known && last / 1_000 / STEP < before.now.millis() / STEP {
        hits.push("acquire: free, last token of an earlier step of the clock");
    }
    hits
}

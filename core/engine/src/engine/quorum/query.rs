//! Queries and forced releases at a majority of the members.

use std::mem;
use std::time::Duration;

use super::calls::Asked;
use super::members::too_few;
use super::{Quorum, cannot_share};
use crate::engine::front::{self, Queries, Question};
use crate::engine::inspection::{HolderInfo, Inspection, Listing};
use crate::engine::io::{Answer, CallId, Input};
use crate::error::{Error, ErrorKind};
use crate::protocol::{LockKey, Pattern};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// How much time the other members have at least after a majority has answered.
const LEAST_GRACE: Duration = Duration::from_millis(5);

/// The cursor of a listing has the index of the current member in its highest bits.
const CURSOR_BITS: u32 = 56;

/// A query whose answers are being gathered.
#[derive(Debug)]
pub(in crate::engine) struct QuorumQuery {
    call: CallId,
    question: Question,
    /// The members have been inspected, and the lock is being freed now.
    frees: bool,
    asked: Timestamp,
    /// The members that were asked, one bit each.
    members: u8,
    answers: Vec<(usize, Answer)>,
    errors: Vec<(usize, Error)>,
    /// When the query ends with the answers that it has by then.
    wake_at: Timestamp,
}

impl Question {
    fn input(self, call: CallId) -> Input {
        match self {
            Self::Inspect(key) => Input::Inspect { call, key },
            Self::ForceRelease(key, token) => Input::ForceRelease { call, key, token },
            Self::RequestYield(key, by, within) => Input::RequestYield {
                call,
                key,
                by,
                within,
            },
            Self::Resize(key, sharing, capacity, counter) => Input::Resize {
                call,
                key,
                sharing,
                capacity,
                counter,
            },
            Self::List(pattern, cursor) => Input::List {
                call,
                pattern,
                cursor,
            },
        }
    }
}

impl Queries<Quorum> {
    pub(super) fn ask(&mut self, env: &mut Quorum, call: CallId, question: Question) {
        let question = match question {
            Question::List(pattern, cursor) => return self.list(env, call, (pattern, cursor)),
            Question::Resize(..) => {
                let refused = Answer::Resize(Err(cannot_share()));
                return env.cx.answer(call, refused);
            }
            question => question,
        };
        let asked = match &question {
            Question::ForceRelease(key, Some(_)) => Question::Inspect(key.clone()),
            question => question.clone(),
        };
        self.start(env, call, QuorumQuery::new(env, call, question));
        for at in 0..env.members.len() {
            let ask = |call| asked.clone().input(call);
            env.members.ask(&env.cx, at, Asked::Query(call), ask);
        }
    }

    /// Lists the names at one member after another.
    fn list(&mut self, env: &mut Quorum, call: CallId, (pattern, cursor): (Pattern, u64)) {
        let (member, place) = (cursor >> CURSOR_BITS, cursor & ((1 << CURSOR_BITS) - 1));
        let at = usize::try_from(member).unwrap_or(usize::MAX);
        if at >= env.members.len() {
            let answer = Listing {
                cursor: None,
                names: Vec::new(),
            };
            return env.cx.answer(call, Answer::List(Ok(answer)));
        }
        let question = Question::List(pattern.clone(), cursor);
        let mut query = QuorumQuery::new(env, call, question);
        // The other members suffice if this one is silent. So it gets the time of one command, not of the
        // whole call.
        query.wake_at = env.cx.now + env.cx.settings.command_timeout;
        self.start(env, call, query);
        let ask = |call| Question::List(pattern, place).input(call);
        env.members.ask(&env.cx, at, Asked::Query(call), ask);
    }

    /// Handles a member's answer.
    pub(super) fn landed(&mut self, env: &mut Quorum, (call, at): (CallId, usize), answer: Answer) {
        self.step(env, call, |query, env| query.landed(env, at, answer));
    }
}

impl front::Query<Quorum> for QuorumQuery {
    /// Continues with the answers so far: the other members have had enough time.
    fn time(&mut self, env: &mut Quorum) -> Option<Answer> {
        if self.answers.len() >= env.members.majority()
            && let Question::ForceRelease(key, Some(token)) = &self.question
            && !self.frees
        {
            let (key, token) = (key.clone(), *token);
            self.frees = true;
            return self.free(env, (&key, token));
        }
        Some(self.answer(env))
    }

    fn close(&mut self, _: &mut Quorum) {}

    fn question(&self) -> &Question {
        &self.question
    }

    fn wake_at(&self) -> Timestamp {
        self.wake_at
    }
}

impl QuorumQuery {
    fn new(env: &Quorum, call: CallId, question: Question) -> Self {
        Self {
            call,
            question,
            frees: false,
            asked: env.cx.now,
            members: u8::MAX >> (8 - env.members.len()),
            answers: Vec::new(),
            errors: Vec::new(),
            wake_at: Timestamp::NEVER,
        }
    }

    /// Handles a member's answer. Returns the joint answer once it is known.
    fn landed(&mut self, env: &mut Quorum, at: usize, answer: Answer) -> Option<Answer> {
        let majority = env.members.majority();
        let of = self.members.count_ones() as usize;
        if self.members & bit(at) == 0 {
            // An inspection that comes too late, while the lock is being freed.
            return None;
        }
        match answer.error() {
            Some(error) => self.errors.push((at, error.clone())),
            None => self.answers.push((at, answer)),
        }
        let (answers, errors) = (self.answers.len(), self.errors.len());
        let is_walk = matches!(self.question, Question::List(..));
        if is_walk || answers + errors == of || errors > of - majority {
            return front::Query::time(self, env);
        }
        if answers == majority {
            let grace = env.cx.now.since(self.asked).max(LEAST_GRACE);
            self.wake_at = env.cx.now + grace;
        }
        None
    }

    /// Frees the lock at each member that was seen to have it, provided that their joint token is the given
    /// one.
    fn free(&mut self, env: &mut Quorum, (key, token): (&LockKey, FencingToken)) -> Option<Answer> {
        self.wake_at = Timestamp::NEVER;
        let call = self.call;
        let seen = self
            .answers
            .drain(..)
            .filter_map(|(at, answer)| match answer {
                Answer::Inspect(Ok(seen)) => Some((at, seen.holder?)),
                _ => None,
            });
        let seen: Vec<_> = seen.collect();
        let all = seen.iter().map(|(_, holder)| holder.clone()).collect();
        let found = holder(all, env.members.majority());
        let Some(found) = found.filter(|found| found.token == token) else {
            return Some(Answer::ForceRelease(Ok(None)));
        };
        self.errors.clear();
        self.members = 0;
        for (at, holder) in seen {
            if holder.owner == found.owner {
                self.members |= bit(at);
                let free = Question::ForceRelease(key.clone(), Some(holder.token));
                let free = |call| free.input(call);
                env.members.ask(&env.cx, at, Asked::Query(call), free);
            }
        }
        None
    }

    /// Returns the joint answer of the members.
    fn answer(&mut self, env: &Quorum) -> Answer {
        let (majority, of) = (env.members.majority(), env.members.len());
        if let Question::List(_, cursor) = self.question {
            return self.next_step(cursor >> CURSOR_BITS, env);
        }
        if self.answers.len() < majority {
            let error = too_few(
                (majority, of),
                self.errors.iter().map(|(at, error)| (*at, error)),
            );
            return self.question.failed(error);
        }
        let answers = mem::take(&mut self.answers).into_iter();
        let answers = answers.map(|(_, answer)| answer);
        if let Question::ForceRelease(..) | Question::RequestYield(..) = self.question {
            let holders = answers.filter_map(|answer| match answer {
                Answer::ForceRelease(Ok(holder)) | Answer::RequestYield(Ok(holder)) => holder,
                _ => None,
            });
            return self.question.found(holder(holders.collect(), majority));
        }
        let seen = answers.filter_map(|answer| match answer {
            Answer::Inspect(Ok(seen)) => Some(*seen),
            _ => None,
        });
        Answer::Inspect(Ok(Box::new(together(seen.collect(), majority))))
    }

    /// Ends one step of a listing. Skips a member that does not answer, if the others are a majority.
    fn next_step(&mut self, member: u64, env: &Quorum) -> Answer {
        let (cursor, names) = match self.answers.pop() {
            Some((_, Answer::List(Ok(listing)))) => (listing.cursor, listing.names),
            _ if env.members.able() >= env.members.majority() => (None, Vec::new()),
            _ => {
                let error = self.errors.pop().map(|(_, error)| error);
                return Answer::List(Err(error.unwrap_or_else(Error::no_answer)));
            }
        };
        let next = next_cursor(env.members.len(), member, cursor);
        Answer::List(next.map(|cursor| Listing { cursor, names }))
    }
}

/// Returns the cursor that continues a listing of so many members: at this place of the member, or without a place
/// at the next member.
fn next_cursor(members: usize, member: u64, place: Option<u64>) -> Result<Option<u64>, Error> {
    let Some(place) = place else {
        let next = member + 1;
        let is_there = usize::try_from(next).is_ok_and(|next| next < members);
        return Ok(is_there.then_some(next << CURSOR_BITS));
    };
    if place >> CURSOR_BITS != 0 {
        let message =
            "the server's SCAN cursor is too large for a listing that spans several servers";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(Some(member << CURSOR_BITS | place))
}

/// Returns the bit that stands for a member in a set of members. A quorum has at most seven.
fn bit(at: usize) -> u8 {
    1 << at
}

/// Returns the holder of the lock at a majority, if there is one.
fn holder(mut seen: Vec<HolderInfo>, majority: usize) -> Option<HolderInfo> {
    let owners = seen.iter().map(|holder| holder.owner.clone());
    let of = |owner: &crate::Owner| seen.iter().filter(|other| other.owner == *owner).count();
    let owner = owners.into_iter().find(|owner| of(owner) >= majority)?;
    seen.retain(|holder| holder.owner == owner);
    let mut tokens: Vec<_> = seen.iter().map(|holder| holder.token).collect();
    let mut remaining: Vec<_> = seen.iter().map(|holder| holder.remaining).collect();
    tokens.sort_unstable();
    remaining.sort_unstable_by(|one, other| other.cmp(one));
    Some(HolderInfo {
        token: tokens[majority - 1],
        remaining: remaining[majority - 1],
        owner,
    })
}

fn together(seen: Vec<Inspection>, majority: usize) -> Inspection {
    let holders = seen.iter().filter_map(|seen| seen.holder.clone());
    let holder = holder(holders.collect(), majority);
    let last_token = seen.iter().filter_map(|seen| seen.last_token).max();
    let server_time = seen.iter().map(|seen| seen.server_time).max().unwrap_or(0);
    let requests = seen.iter().filter_map(|seen| seen.wanted.clone());
    let wanted = requests.min_by_key(|request| request.remaining);
    // A waiter stands in line at several members, but maybe not at all members that answered.
    let longest = seen.into_iter().max_by_key(|seen| seen.waiting);
    let (waiting, line) = longest.map_or_else(Default::default, |seen| (seen.waiting, seen.line));
    Inspection {
        last_token,
        job: None,
        shared: None,
        waiting,
        line,
        server_time,
        wanted: wanted.filter(|_| holder.is_some()),
        holder,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{holder, next_cursor};
    use crate::engine::inspection::HolderInfo;
    use crate::name::Owner;
    use crate::token::FencingToken;

    #[test]
    fn a_listing_continues_at_its_place_and_then_at_the_next_member() {
        let next = |member, place| next_cursor(3, member, place).map_err(|error| error.kind());
        assert_eq!(next(0, Some(5)), Ok(Some(5)));
        assert_eq!(next(2, Some(5)), Ok(Some(2 << 56 | 5)));
        let most = (1 << 56) - 1;
        assert_eq!(next(1, Some(most)), Ok(Some(1 << 56 | most)));
        assert_eq!(next(1, Some(most + 1)), Err(crate::ErrorKind::Unsupported));
        assert_eq!(next(0, None), Ok(Some(1 << 56)));
        assert_eq!(next(1, None), Ok(Some(2 << 56)));
        assert_eq!(next(2, None), Ok(None));
    }

    /// Catches a joint token or time to live that more than a minority contradicts.
    #[test]
    fn the_holder_has_what_a_majority_grants() {
        let seen = |owner: &str, token, seconds| HolderInfo {
            token: FencingToken::new(token).expect("not 0"),
            remaining: Duration::from_secs(seconds),
            owner: Owner::labelled(owner).expect("a short label"),
        };
        let of_five = |mut all: Vec<HolderInfo>| {
            let found = holder(all.clone(), 3);
            all.reverse();
            assert_eq!(holder(all, 3), found, "the order of answers does not count");
            found
        };
        let [a, b] = [1, 2].map(|token| seen("other", token, 9));
        assert_eq!(of_five(vec![a.clone(), b.clone(), seen("one", 3, 1)]), None);
        let granted =
            [(7, 5), (9, 3), (8, 2), (6, 4)].map(|(token, left)| seen("one", token, left));
        let found = of_five(granted.into_iter().chain([a]).collect());
        assert_eq!(found, Some(seen("one", 8, 3)));
    }
}

//! Decodes the script's keys and arguments to commands, and encodes replies: the server's side, for stores
//! that are not Redis. A call comes from [`encode`](super::encode) in the same process.

use std::time::Duration;

use crate::name::Owner;
use crate::protocol::claim::{Claim, ClientId, Counter, LeaseId};
use crate::protocol::incarnation::Incarnation;
use crate::protocol::key::LockKey;
use crate::protocol::limits::{
    CLIENT_LENGTH, CURSOR_LENGTH, LEASE_LENGTH, TIME_LENGTH, TOKEN_LENGTH, UNITS_LENGTH,
    WINDOW_LENGTH,
};
use crate::protocol::ops::admit::stored_slots;
use crate::protocol::ops::{
    Accept, Acquire, Admission, Admit, AskYield, Command, Enter, Entered, Extend, ForceRelease,
    Inspect, Inspected, List, Op, Reclaim, Release, Renew, Resize, Retire, Terms, Vacate,
    YieldRequest,
};
use crate::protocol::pattern::Pattern;
use crate::protocol::reply::{BatchReply, Grant, Reply};
use crate::share::Sharing;
use crate::tick::Tick;
use crate::time::ServerTime;
use crate::token::FencingToken;

/// Decodes the batch of a call, or returns `None` if it does not have the form that the script expects.
pub(crate) fn read_call<'a>(
    mut keys: impl Iterator<Item = &'a str>,
    mut args: impl Iterator<Item = &'a str>,
) -> Option<Vec<Op>> {
    let not_after = match args.next()? {
        // Empty if all operations are releases.
        "" => u64::MAX,
        not_after => not_after.parse().ok()?,
    };
    let not_after = ServerTime::from_micros(not_after);
    let mut batch = Vec::new();
    for text in args {
        let command = read_command(&mut keys, &mut Reader(text))?;
        for _ in 1..command.form().keys.len() {
            keys.next()?;
        }
        batch.push(Op { command, not_after });
    }
    keys.next().is_none().then_some(batch)
}

fn read_acquire(
    key: LockKey,
    letter: &str,
    ttl: Duration,
    text: &mut Reader<'_>,
) -> Option<Acquire> {
    let waits = text.take(1)? == "1";
    let reclaims = match text.number(TOKEN_LENGTH).map(FencingToken::new) {
        Some(Ok(token)) if letter == "P" => Reclaim::Propose(token),
        Some(Ok(token)) => Reclaim::From(token),
        Some(Err(_)) => Reclaim::Never,
        None => Reclaim::Ask,
    };
    let (window, counter) = (text.millis(WINDOW_LENGTH)?, text.counter()?);
    let lease = text.lease()?;
    Some(Acquire {
        key,
        claim: text.claim(lease, (ttl, window, counter))?,
        waits,
        reclaims,
    })
}

fn read_renew(key: LockKey, ttl: Duration, text: &mut Reader<'_>) -> Option<Renew> {
    Some(Renew {
        key,
        counter: text.counter()?,
        lease: text.lease()?,
        token: text.token()?,
        floor: match text.0 {
            "" => None,
            _ => Some(text.token()?),
        },
        ttl,
    })
}

fn read_release(
    key: LockKey,
    letter: &str,
    ttl: Duration,
    text: &mut Reader<'_>,
) -> Option<Release> {
    let (window, counter) = (text.millis(WINDOW_LENGTH)?, text.counter()?);
    let lease = text.lease()?;
    // 0 stands for none.
    let token = FencingToken::new(text.number(TOKEN_LENGTH)?).ok();
    Some(Release {
        key,
        claim: text.claim(lease, (ttl, window, counter))?,
        token,
        completes: letter == "C",
    })
}

fn read_command<'a>(
    keys: &mut impl Iterator<Item = &'a str>,
    text: &mut Reader<'a>,
) -> Option<Command> {
    let written = text.take(1)?;
    let letter = written.to_ascii_uppercase();
    let ttl = text.millis(TIME_LENGTH)?;
    if letter == "L" {
        let cursor = text.number(CURSOR_LENGTH)?;
        let pattern = Pattern::of_glob(text.0)?;
        return Some(Command::List(List { pattern, cursor }));
    }
    let key = LockKey::of_lock(keys.next()?)?;
    Some(match &*letter {
        "A" | "P" => Command::Acquire(read_acquire(key, &letter, ttl, text)?),
        "M" => Command::Admit(Admit(read_acquire(key, &letter, ttl, text)?)),
        "R" => Command::Renew(read_renew(key, ttl, text)?),
        "X" | "W" => Command::Extend(Extend {
            renew: read_renew(key, ttl, text)?,
            reads: letter == "W",
        }),
        "H" => {
            let (from, token) = (text.lease()?, text.token()?);
            let (window, counter) = (text.millis(WINDOW_LENGTH)?, text.counter()?);
            let lease = text.lease()?;
            Command::Accept(Accept {
                key,
                lease: from,
                token,
                claim: text.claim(lease, (ttl, window, counter))?,
            })
        }
        "T" => Command::Retire(Retire {
            key,
            counter: text.counter()?,
            lease: text.lease()?,
            token: text.token()?,
            ttl,
        }),
        "Z" => Command::Resize(Resize {
            key,
            counter: text.counter()?,
            sharing: Sharing::of_kind(text.take(1)?)?,
            capacity: text.number(UNITS_LENGTH)?.try_into().ok()?,
        }),
        "D" | "C" => Command::Release(read_release(key, &letter, ttl, text)?),
        "V" => Command::Vacate(Vacate(read_release(key, &letter, ttl, text)?)),
        "E" => Command::Enter(Enter {
            key,
            incarnation: text.incarnation()?,
            // The lower-case letter only checks.
            terms: match written {
                "E" => Some(text.terms(ttl)?),
                _ => None,
            },
        }),
        "F" => Command::ForceRelease(ForceRelease {
            key,
            token: text.token()?,
        }),
        "Y" => Command::AskYield(AskYield {
            key,
            token: text.token()?,
            within: ttl,
            by: Owner::labelled(text.0).ok()?,
        }),
        "I" => Command::Inspect(Inspect { key }),
        _ => return None,
    })
}

/// The unread part of an operation's text.
struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a str> {
        let (part, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(part)
    }

    fn number(&mut self, length: usize) -> Option<u64> {
        self.take(length)?.parse().ok()
    }

    fn millis(&mut self, length: usize) -> Option<Duration> {
        self.number(length).map(Duration::from_millis)
    }

    fn counter(&mut self) -> Option<Counter> {
        let retention = self.millis(TIME_LENGTH)?;
        Some(if retention.is_zero() {
            Counter::Dense
        } else {
            Counter::ClockFloor { retention }
        })
    }

    fn lease(&mut self) -> Option<LeaseId> {
        self.take(LEASE_LENGTH)?.parse().ok()
    }

    fn client(&mut self) -> Option<ClientId> {
        let id = u64::from_str_radix(self.take(CLIENT_LENGTH)?, 16);
        id.ok().map(ClientId)
    }

    fn incarnation(&mut self) -> Option<Incarnation> {
        self.take(LEASE_LENGTH)?.parse().ok()
    }

    fn terms(&mut self, longest: Duration) -> Option<Terms> {
        let (mut remember, mut watch, mut forget) = (Vec::new(), Vec::new(), Vec::new());
        while !self.0.is_empty() {
            match self.take(1)? {
                "-" => forget.push(self.incarnation()?),
                "?" => watch.push(self.incarnation()?),
                _ => remember.push(self.incarnation()?),
            }
        }
        Some(Terms {
            longest,
            remember,
            watch,
            forget,
        })
    }

    fn token(&mut self) -> Option<FencingToken> {
        FencingToken::new(self.number(TOKEN_LENGTH)?).ok()
    }

    fn claim(
        &mut self,
        lease: LeaseId,
        (ttl, window, counter): (Duration, Duration, Counter),
    ) -> Option<Claim> {
        let client = self.client()?;
        let owner = Owner::of_stored(self.take(1)?, self.0);
        Some(Claim {
            lease,
            client,
            owner: owner.ok()?,
            counter,
            ttl,
            window,
        })
    }
}

/// Encodes the script's reply: the server's time alone, or with the fields of the outcomes that are not
/// common.
pub(crate) fn write_reply(batch: &[Op], BatchReply { time, replies }: &BatchReply) -> Vec<String> {
    let mut fields = vec![time.map_or(0, ServerTime::as_micros).to_string()];
    let nothing_done = match replies.first() {
        Some(Ok(Reply::Late)) => Some("late"),
        Some(Ok(Reply::Forgot)) => Some("forgot"),
        _ => None,
    };
    if let Some(why) = nothing_done {
        fields.push(why.to_owned());
        return fields;
    }
    for (place, (op, reply)) in batch.iter().zip(replies).enumerate() {
        if *reply == op.command.common_reply(*time) {
            continue;
        }
        fields.push((place + 1).to_string());
        let count = fields.len();
        fields.push(String::new());
        match reply {
            Ok(reply) => write_fields(&op.command, reply, &mut fields),
            Err(error) => {
                let key = op.command.key().map(LockKey::lock);
                let texts = ["error".to_owned(), error.to_string()];
                fields.extend(texts);
                fields.push(key.unwrap_or_default().to_owned());
            }
        }
        fields[count] = (fields.len() - count - 1).to_string();
    }
    fields
}

fn write_fields(command: &Command, reply: &Reply, fields: &mut Vec<String>) {
    let mut push = |field: &dyn ToString| fields.push(field.to_string());
    match reply {
        // `Late` and `Forgot` are replies to a whole batch, `Intact` is the common outcome, and no store
        // sends `NotDurable`.
        Reply::Late | Reply::Forgot | Reply::Intact | Reply::NotDurable(_) => {}
        Reply::Held(Grant { token, expires }) => {
            push(&"held");
            push(token);
            push(&expires.millis());
        }
        Reply::Admitted(Grant { token, expires }, admission) => {
            push(&"admitted");
            push(token);
            push(&expires.millis());
            write_admission(admission, &mut push);
        }
        Reply::Excess { capacity } => {
            push(&"excess");
            push(capacity);
        }
        Reply::Resized { epoch } => {
            push(&"resized");
            push(epoch);
        }
        Reply::Busy { expires, place } => {
            push(&"busy");
            push(&expires.millis());
            push(&place.map_or(0, std::num::NonZeroU32::get));
        }
        Reply::Reclaimable { token } => {
            push(&"reclaimable");
            push(token);
        }
        Reply::Full { waiting } => {
            push(&"full");
            push(waiting);
        }
        Reply::Completed => push(&"completed"),
        Reply::Renewed { expires } => {
            push(&"renewed");
            push(&expires.millis());
        }
        Reply::Wanted { expires, request } => {
            push(&"wanted");
            push(&expires.millis());
            write_request(request, &mut push);
        }
        Reply::Asked => push(&"asked"),
        Reply::Gone => push(&"gone"),
        Reply::Taken => push(&"taken"),
        Reply::Released => push(&"released"),
        Reply::HandedOver {
            lease,
            grant,
            admission,
        } => {
            push(&"handed_over");
            push(lease);
            push(&grant.token);
            push(&grant.expires.millis());
            if let Some(admission) = admission {
                write_admission(admission, &mut push);
            }
        }
        Reply::Entered(Entered {
            incarnation,
            age,
            longest,
            known,
            watched,
        }) => {
            push(&"entered");
            push(incarnation);
            push(&age.as_millis());
            push(&longest.as_millis());
            for known in known {
                push(known);
            }
            for (watched, age) in watched {
                push(&format!("{watched}{}", age.as_millis()));
            }
        }
        Reply::Inspected(inspected) => write_inspected(inspected, &mut push),
        Reply::Listed { cursor, names } => {
            push(&"listed");
            push(&cursor.unwrap_or(0));
            if let Command::List(List { pattern, .. }) = command {
                for name in names {
                    push(&pattern.key_of(name));
                }
            }
        }
    }
}

fn write_inspected(inspected: &Inspected, push: &mut impl FnMut(&dyn ToString)) {
    if let Some(job) = &inspected.job {
        push(&"job");
        push(&job.completed.as_ref().map_or(0, |done| done.tick.get()));
        if let Some(done) = &job.completed {
            push(&done.token);
            push(&done.at.millis());
            push(&done.by);
        }
        push(&job.begun.map_or(0, Tick::get));
    }
    if let Some(shared) = &inspected.shared {
        push(&"shared");
        push(&shared.sharing.kind());
        push(&shared.capacity);
        push(&shared.epoch);
        push(&shared.generation.map_or(0, FencingToken::get));
        push(&shared.used);
        push(&shared.held);
        push(&shared.holders.len());
        for holder in &shared.holders {
            push(&holder.token);
            push(&holder.expires.millis());
            push(&holder.weight);
            push(&stored_slots(&holder.slots));
            push(&holder.by);
        }
    }
    if let Some(holder) = &inspected.holder {
        push(&"held");
        push(&holder.token);
        push(&holder.expires.millis());
        push(&holder.owner.kind());
        push(&holder.owner.stored());
    } else {
        push(&"free");
        push(&inspected.last_token.map_or(0, FencingToken::get));
    }
    push(&inspected.waiting);
    push(&inspected.line.len());
    for waiter in &inspected.line {
        push(&waiter.owner.kind());
        push(&waiter.owner.stored());
        push(&waiter.since.as_micros());
    }
    if let Some(request) = &inspected.wanted {
        write_request(request, push);
    }
}

fn write_admission(admission: &Admission, push: &mut impl FnMut(&dyn ToString)) {
    push(&admission.capacity);
    push(&admission.epoch);
    push(&admission.generation.map_or(0, FencingToken::get));
    push(&admission.stored_slots());
}

fn write_request(YieldRequest { until, by }: &YieldRequest, push: &mut impl FnMut(&dyn ToString)) {
    push(&until.millis());
    push(by);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryServer;
    use crate::name::Name;
    use crate::protocol::{decode, encode};

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 33) % limit
        }

        fn index(&mut self, limit: usize) -> usize {
            let limit = u64::try_from(limit).expect("a small limit");
            usize::try_from(self.below(limit)).expect("below the limit")
        }

        fn claim(&mut self, of_job: bool) -> Claim {
            let lease = LeaseId(u128::from(self.below(6)) << 64 | 7);
            let owner = match self.below(3) {
                _ if of_job => {
                    Tick::new(1 + self.below(4)).and_then(|tick| Owner::runner("ö", tick))
                }
                0 => Owner::reclaimable("a:b"),
                1 => Owner::reclaimable("ö"),
                _ => Owner::labelled("m".repeat(1 + self.index(Owner::MAX_BYTES))),
            };
            let counter = if self.below(3) == 0 {
                Counter::Dense
            } else {
                let retention = Duration::from_secs(3_600 * (1 + self.below(2)));
                Counter::ClockFloor { retention }
            };
            Claim {
                lease,
                client: ClientId(self.below(3)),
                owner: owner.expect("a short label is valid"),
                counter,
                ttl: Duration::from_millis(10 + self.below(50)),
                window: Duration::from_millis(12),
            }
        }

        fn enter(&mut self, key: &LockKey) -> Enter {
            let mut incarnation = || Incarnation(u128::from(self.below(3)) << 64 | 5);
            let ids = [(); 4].map(|()| incarnation());
            let [remember, watch, forget] = [1, 2, 3].map(|id| vec![ids[id]; self.index(4)]);
            Enter {
                key: key.mark(),
                incarnation: ids[0],
                terms: (ids[1] != ids[2]).then(|| Terms {
                    longest: Duration::from_secs(60 + self.below(2)),
                    remember,
                    watch,
                    forget,
                }),
            }
        }

        fn command(&mut self) -> Command {
            let name = ["a", "*b}%", "ö:c"][self.index(3)];
            let of_job = name == "a";
            let claim = self.claim(of_job);
            let name = Name::new(name).expect("a short name is valid");
            let key = LockKey::new("n:s*", &name).expect("a short namespace is valid");
            let below = self.below(18);
            let token = FencingToken::new(1_600_000_000_000_000 + self.below(99)).ok();
            match below {
                0..5 => Command::Acquire(Acquire {
                    key,
                    claim,
                    waits: below.is_multiple_of(2),
                    reclaims: match (self.below(4), token) {
                        (0, Some(token)) => Reclaim::From(token),
                        (1, Some(token)) => Reclaim::Propose(token),
                        (2, _) => Reclaim::Ask,
                        _ => Reclaim::Never,
                    },
                }),
                5 => Command::Renew(Renew {
                    key,
                    lease: claim.lease,
                    token: token.unwrap_or(FencingToken::MAX),
                    counter: claim.counter,
                    ttl: claim.ttl,
                    floor: token.filter(|_| self.below(2) == 0),
                }),
                6..9 => Command::Release(Release {
                    key,
                    claim,
                    token: token.filter(|_| below == 6),
                    completes: below == 7,
                }),
                9 => Command::ForceRelease(ForceRelease {
                    key,
                    token: token.unwrap_or(FencingToken::MAX),
                }),
                10 => Command::Inspect(Inspect { key }),
                14 | 15 => Command::AskYield(AskYield {
                    key,
                    token: token.unwrap_or(FencingToken::MAX),
                    within: Duration::from_millis(self.below(60)),
                    by: claim.owner,
                }),
                11 | 12 => Command::Enter(self.enter(&key)),
                16 if !of_job => Command::Accept(Accept {
                    key,
                    lease: LeaseId(u128::from(self.below(6)) << 64 | 7),
                    token: token.unwrap_or(FencingToken::MAX),
                    claim,
                }),
                13 => Command::Retire(Retire {
                    key,
                    lease: claim.lease,
                    token: token.unwrap_or(FencingToken::MAX),
                    counter: claim.counter,
                    ttl: claim.ttl,
                }),
                _ => {
                    let patterns = ["*", r"\**", "ö*c", r"*\**"];
                    let pattern = patterns[self.index(4)];
                    let pattern = Pattern::new("n:s*", pattern).expect("a valid pattern");
                    Command::List(List { pattern, cursor: 0 })
                }
            }
        }
    }

    /// Makes requests to yield, renewals and accepts name the lock's tenure.
    fn aim(server: &MemoryServer, now: ServerTime, command: &mut Command) {
        let tenure = command.key().and_then(|key| server.tenure(now, key));
        let Some(tenure) = tenure.cloned() else {
            return;
        };
        match command {
            Command::AskYield(ask) => ask.token = tenure.token,
            Command::Renew(renew) => (renew.lease, renew.token) = (tenure.lease, tenure.token),
            Command::Accept(accept) => (accept.lease, accept.token) = (tenure.lease, tenure.token),
            _ => {}
        }
    }

    /// Catches a part of a call or reply that is read at the wrong place or as something else.
    #[test]
    fn a_call_does_what_its_batch_does() {
        let (mut server, mut random) = (MemoryServer::new(), Random(1));
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..20_000 {
            let now = ServerTime::from_micros(1_600_000_000_000_000 + round * 4_000);
            let not_after = if random.below(50) == 0 {
                ServerTime::from_micros(5)
            } else {
                now + Duration::from_secs(1)
            };
            let op = |random: &mut Random| {
                let mut command = random.command();
                aim(&server, now, &mut command);
                Op { command, not_after }
            };
            let batch: Vec<_> = (0..random.below(4)).map(|_| op(&mut random)).collect();
            let mut by_call = server.clone();
            if random.below(100) == 0 {
                server.begin_anew(random.below(3));
                by_call = server.clone();
            }
            let reply = server.execute(now, &batch);
            let call = encode(&batch);
            let returned = by_call.call(now, call.keys(), call.args());
            let returned = returned.expect("the call is well-formed");
            assert_eq!(decode(&batch, &returned), Ok(reply), "{batch:?}");
            assert_eq!(server.take_pushes(), by_call.take_pushes());
            seen.extend(returned.into_iter().filter(|field| field.len() > 3));
        }
        for status in [
            "held",
            "busy",
            "free",
            "gone",
            "taken",
            "listed",
            "late",
            "handed_over",
            "reclaimable",
            "entered",
            "forgot",
            "asked",
            "wanted",
        ] {
            assert!(seen.contains(status), "no reply was {status}");
        }
    }

    /// Catches batches that are cut by sizes that are not those of their operations.
    #[test]
    fn the_size_of_a_command_is_about_what_is_sent() {
        let mut random = Random(2);
        for _ in 0..5_000 {
            let (command, not_after) = (random.command(), ServerTime::from_micros(5));
            let (size, shown) = (command.size(), format!("{command:?}"));
            let call = encode(&[Op { command, not_after }]);
            let sent: usize = call.parts().map(<[u8]>::len).sum();
            assert!(
                (sent..sent + 256).contains(&size),
                "{size} for {sent}: {shown}"
            );
        }
    }

    #[test]
    fn malformed_calls_are_refused() {
        let mut server = MemoryServer::new();
        let now = ServerTime::from_micros(1);
        let time = "0000000000000009";
        let cases: [(&[&str], &[&str]); 7] = [
            (&[], &[]),
            (&[], &["x"]),
            (&["{n:a}"], &[time]),
            (&["{n:a}"], &[time, "I00000000000100"]),
            (&["{n:a}", "{n:a}:line"], &[time, "X00000000000100"]),
            (&["{n:a}"], &[time, "R"]),
            (&[], &[time, "L0000000000000000000000000000000x"]),
        ];
        for (keys, args) in cases {
            let returned = server.call(now, keys.iter().copied(), args.iter().copied());
            assert_eq!(returned, None, "{keys:?} {args:?}");
        }
    }
}

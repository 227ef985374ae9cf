//! Encodes calls of the script and decodes its replies.

mod call;
mod fields;
mod serve;
mod text;

use super::ops::{Command, Op};
use super::reply::{BatchReply, Reply};
use super::server_error::{refused, server_error};
use crate::error::Error;

pub(crate) use call::is_timeless;
pub use call::{ScriptCall, encode};
pub(crate) use serve::{read_call, write_reply};

pub(super) use fields::{Fields, unexpected};
pub(super) use text::Writer;

/// Decodes the script's reply to `batch`: a list of strings, or one string as a list of one.
pub fn decode<F: AsRef<[u8]>>(batch: &[Op], answer: &[F]) -> Result<BatchReply, Error> {
    let mut fields = Fields { rest: answer };
    let time = fields.time()?;
    if let ([why], Some(_)) = (fields.rest, time)
        && let Some(nothing_done) = nothing_done(why.as_ref())
    {
        let replies = batch.iter().map(|_| Ok(nothing_done())).collect();
        return Ok(BatchReply { time, replies });
    }
    if time.is_none() && (!is_timeless(batch) || !fields.rest.is_empty()) {
        return Err(unexpected());
    }
    let mut replies = Vec::with_capacity(batch.len());
    let mut other = fields.next_other(0, batch.len())?;
    for (place, op) in batch.iter().enumerate() {
        if other != Some(place) {
            replies.push(op.command.common_reply(time));
            continue;
        }
        let count = usize::try_from(fields.number()?).map_err(|_| unexpected())?;
        // An operation with malformed fields fails alone; the others keep their replies.
        replies.push(outcome(&op.command, fields.split(count)?));
        other = fields.next_other(place + 1, batch.len())?;
    }
    Ok(BatchReply { time, replies })
}

/// Returns the reply to each operation of a batch that was not executed, or `None` if `why` is no reason for
/// that.
fn nothing_done(why: &[u8]) -> Option<fn() -> Reply> {
    match why {
        b"late" => Some(|| Reply::Late),
        b"forgot" => Some(|| Reply::Forgot),
        _ => None,
    }
}

fn outcome<F: AsRef<[u8]>>(command: &Command, mut fields: Fields<'_, F>) -> Result<Reply, Error> {
    let reply = match fields.text()? {
        "error" => return Err(refusal(&mut fields, command)?),
        status => command.reply(status, &mut fields)?,
    };
    fields.end()?;
    Ok(reply)
}

fn refusal<F: AsRef<[u8]>>(fields: &mut Fields<'_, F>, command: &Command) -> Result<Error, Error> {
    let text = fields.lossy()?;
    let key = fields.lossy()?;
    match command.key() {
        Some(own) if own.has(&key) => Ok(server_error(&text, Some(&key))),
        None if key.is_empty() => {
            let start = match command {
                Command::List(list) => Some(list.pattern.start()),
                _ => None,
            };
            Ok(refused(&text, None, start))
        }
        _ => Err(unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::name::{Name, Owner};
    use crate::protocol::limits::{SLOT_LENGTH, TIME_LENGTH};
    use crate::protocol::{
        Acquire, Admit, Counter, Holder, Inspect, Inspected, LeaseId, List, LockKey, Pattern,
        Reclaim, Release, Renew, Vacate,
    };
    use crate::testing::claim_for;
    use crate::time::ServerTime;
    use crate::token::FencingToken;
    use std::time::Duration;

    const NOW: &str = "1700000000000077";

    fn inspect() -> Vec<Op> {
        batch_of(Command::Inspect(Inspect { key: key() }))
    }

    #[test]
    fn a_reply_of_the_script_is_decoded() {
        let batch = decode(
            &inspect(),
            &[NOW, "1", "7", "held", "34", "2", "r", "job-7", "0", "0"],
        );
        let owner = Owner::reclaimable("job-7").expect("a valid owner");
        let token = FencingToken::new(34).expect("a valid token");
        let expires = ServerTime::from_millis(2);
        let holder = Some(Holder {
            token,
            expires,
            owner,
        });
        let reply = Reply::Inspected(Inspected {
            holder,
            last_token: Some(token),
            job: None,
            shared: None,
            waiting: 0,
            line: Vec::new(),
            wanted: None,
        });
        let time = ServerTime::from_micros(1_700_000_000_000_077);
        assert_eq!(
            batch,
            Ok(BatchReply {
                time: Some(time),
                replies: vec![Ok(reply)]
            })
        );
    }

    #[test]
    fn a_refusal_names_the_key_and_its_kind() {
        let answer = [
            NOW,
            "1",
            "3",
            "error",
            "WRONGTYPE Operation against a key",
            "{ns:n}:line",
        ];
        let batch = decode(&inspect(), &answer).expect("the batch itself went well");
        let error = batch.replies[0]
            .clone()
            .expect_err("the command was refused");
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(error.to_string().contains("{ns:n}:line"), "{error}");
    }

    #[test]
    fn malformed_replies_are_errors() {
        let cases: [&[&str]; 34] = [
            &[],
            &["x"],
            &["0"],
            &["0", "late"],
            &["0", "1", "4", "free", "0", "0", "0"],
            &["-5", "late"],
            &["77", "late"],
            &["170000000000007", "late"],
            &["17000000000000077", "late"],
            &["0700000000000077", "late"],
            &["+700000000000077", "late"],
            &["170000000000007x", "late"],
            &[NOW],
            &[NOW, "late", "more"],
            &[NOW, "1"],
            &[NOW, "0", "1", "free"],
            &[NOW, "2", "1", "free"],
            &[NOW, "x", "1", "free"],
            &[NOW, "1", "2", "free"],
            &[NOW, "1", "1", "late"],
            &[
                NOW, "1", "4", "free", "0", "0", "0", "1", "4", "free", "0", "0", "0",
            ],
            &[NOW, "1", "1", "held"],
            &[NOW, "1", "1", "released"],
            &[NOW, "1", "7", "held", "0", "2", "r", "job", "0", "0"],
            &[NOW, "1", "7", "held", "34", "2", "x", "job", "0", "0"],
            &[NOW, "1", "7", "held", "34", "-2", "l", "job", "0", "0"],
            &[NOW, "1", "7", "held", "34", "-1", "l", "job", "0", "0"],
            &[NOW, "1", "4", "free", "9007199254740992", "0", "0"],
            &[NOW, "1", "2", "free", "0"],
            &[NOW, "1", "4", "free", "0", "1", "1"],
            &[NOW, "1", "4", "free", "0", "4294967296", "0"],
            &[NOW, "1", "7", "free", "0", "1", "1", "l", "job", "-1"],
            &[NOW, "1", "4", "free", "0", "0", "101"],
            &[NOW, "1", "18446744073709551616", "late"],
        ];
        for answer in cases {
            let batch = decode(&inspect(), answer);
            let taken = batch.is_ok_and(|batch| batch.replies.iter().all(Result::is_ok));
            assert!(!taken, "{answer:?} was accepted");
        }
    }

    fn renew() -> Vec<Op> {
        let name = Name::new("n").expect("a valid name");
        let key = LockKey::new("ns", &name).expect("a valid namespace");
        let renew = Renew {
            key,
            lease: LeaseId(7),
            token: FencingToken::new(34).expect("a valid token"),
            counter: Counter::Dense,
            ttl: Duration::from_secs(1),
            floor: None,
        };
        vec![Op {
            command: Command::Renew(renew),
            not_after: ServerTime::from_micros(9),
        }]
    }

    /// Catches a proxy's number, or an error code, that is taken for the reply "every operation succeeded".
    #[test]
    fn only_a_time_of_16_digits_says_that_everything_succeeded() {
        assert!(decode(&renew(), &[NOW]).is_ok());
        for number in [
            "0",
            "1",
            "42",
            "-5",
            "-700000000000077",
            "170000000000007",
            "17000000000000077",
            "0000000000000001",
            "1700000000000077 ",
            "1.70000000000007",
            "",
        ] {
            let error = decode(&renew(), &[number]).expect_err(number);
            assert_eq!(error.kind(), ErrorKind::Store, "{number}");
        }
    }

    #[test]
    fn one_malformed_reply_does_not_spoil_its_neighbors() {
        let batch: Vec<Op> = inspect().into_iter().chain(inspect()).collect();
        let answer = [
            NOW, "1", "4", "free", "x", "0", "0", "2", "4", "free", "5", "0", "0",
        ];
        let replies = decode(&batch, &answer).expect("the frame is whole").replies;
        assert!(replies[0].is_err());
        let last_token = FencingToken::new(5).ok();
        assert_eq!(
            replies[1],
            Ok(Reply::Inspected(Inspected {
                holder: None,
                last_token,
                job: None,
                shared: None,
                waiting: 0,
                line: Vec::new(),
                wanted: None,
            }))
        );
    }

    fn key() -> LockKey {
        let name = Name::new("n").expect("a valid name");
        LockKey::new("ns", &name).expect("a valid namespace")
    }

    fn acquire() -> Acquire {
        Acquire {
            key: key(),
            claim: claim_for(Duration::from_millis(1_234)),
            waits: true,
            reclaims: Reclaim::Never,
        }
    }

    fn batch_of(command: Command) -> Vec<Op> {
        let not_after = ServerTime::from_micros(9);
        vec![Op { command, not_after }]
    }

    /// Catches a release that takes nothing out of the line, because its claim differs from the one in the line.
    #[test]
    fn what_ends_a_claim_has_its_time_to_live() {
        let acquire = acquire();
        let release = Release {
            key: key(),
            claim: acquire.claim.clone(),
            token: None,
            completes: false,
        };
        for command in [
            Command::Acquire(acquire.clone()),
            Command::Admit(Admit(acquire)),
            Command::Release(release.clone()),
            Command::Vacate(Vacate(release)),
        ] {
            let call = encode(&batch_of(command.clone()));
            let text = call.args().last().expect("one text per command");
            let ttl = text[1..=TIME_LENGTH].parse();
            assert_eq!(ttl, Ok(1_234), "{command:?}");
        }
    }

    /// Catches slots that are read or written wrongly, and a claim that can never fit and waits forever.
    #[test]
    fn the_answers_to_a_claim_of_a_part_are_read() {
        let batch = batch_of(Command::Admit(Admit(acquire())));
        let answer = |fields: &[&str]| {
            let count = fields.len().to_string();
            let answer = [&[NOW, "1", count.as_str()], fields].concat();
            let mut batch = decode(&batch, &answer).expect("the frame is whole");
            batch.replies.pop().expect("one reply per command")
        };
        let slots = format!("{:0SLOT_LENGTH$}{:0SLOT_LENGTH$}", 3, 12);
        let reply = answer(&["admitted", "34", "2", "20", "1", "0", &slots]);
        let Ok(Reply::Admitted(grant, admission)) = reply else {
            panic!("{reply:?} is no admission");
        };
        assert_eq!((grant.token.get(), admission.capacity), (34, 20));
        assert_eq!(*admission.slots, [3, 12]);
        assert_eq!(admission.stored_slots(), slots);
        let excess = answer(&["excess", "20"]);
        assert_eq!(excess, Ok(Reply::Excess { capacity: 20 }));
    }

    /// Catches a shared name that cannot be inspected because as many holders are named as may be.
    #[test]
    fn as_many_holders_are_read_as_may_be_named() {
        let read = |named: usize| {
            let mut fields: Vec<String> = ["shared", "u", "999", "1", "0", "9", "999"]
                .map(Into::into)
                .into();
            fields.push(named.to_string());
            let holder = ["34", "2", "1", "", "me"];
            fields.extend(vec![holder.map(Into::into); named].into_iter().flatten());
            fields.extend(["free", "34", "0", "0"].map(Into::into));
            let frame = [NOW.into(), "1".into(), fields.len().to_string()];
            let answer = [frame.to_vec(), fields].concat();
            let mut batch = decode(&inspect(), &answer).expect("the frame is whole");
            match batch.replies.pop() {
                Some(Ok(Reply::Inspected(seen))) => seen.shared.map(|shared| shared.holders.len()),
                _ => None,
            }
        };
        let most = Inspect::MOST_NAMED;
        assert_eq!([0, 1, most].map(read), [0, 1, most].map(Some));
        assert_eq!(read(most + 1), None);
    }

    /// Catches a refused listing whose cause, a missing right, is not told.
    #[test]
    fn a_refused_listing_says_why() {
        let pattern = Pattern::new("shop", "*").expect("a valid pattern");
        let batch = batch_of(Command::List(List { pattern, cursor: 0 }));
        let refused = "NOPERM this user has no permissions to run the 'scan' command";
        let answer = [NOW, "1", "3", "error", refused, ""];
        let replies = decode(&batch, &answer).expect("the frame is whole").replies;
        let error = replies[0].clone().expect_err("the command was refused");
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert!(error.to_string().contains("{shop:"), "{error}");
    }
}

//! From the script's answer to replies. What comes from a server is not trusted: anything that
//! is not exactly of the expected form is an error, never a guess.

use std::num::NonZeroU32;

use super::command::{BatchReply, Command, Grant, Holder, Inspected, List, Op, Reply, Waiter};
use super::pattern::Pattern;
use super::server_error::server_error;
use crate::error::{Error, ErrorKind};
use crate::name::{Name, Owner};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// Decodes the script's flat list of strings, the answer to `batch`.
pub fn decode<F: AsRef<[u8]>>(batch: &[Op], answer: &[F]) -> Result<BatchReply, Error> {
    let mut fields = Fields { rest: answer };
    let time = ServerTime::from_micros(fields.number()?);
    let mut replies = Vec::with_capacity(batch.len());
    for op in batch {
        let count = usize::try_from(fields.number()?).map_err(|_| unexpected())?;
        // What is wrong with one operation's fields is not its neighbours' trouble.
        replies.push(outcome(&op.command, fields.split(count)?));
    }
    fields.end()?;
    Ok(BatchReply { time, replies })
}

fn outcome<F: AsRef<[u8]>>(command: &Command, mut fields: Fields<'_, F>) -> Result<Reply, Error> {
    let reply = match fields.text()? {
        "late" => Reply::Late,
        "error" => return Err(refusal(&mut fields, command)?),
        status => reply(command, status, &mut fields)?,
    };
    fields.end()?;
    Ok(reply)
}

fn reply<F: AsRef<[u8]>>(
    command: &Command,
    status: &str,
    fields: &mut Fields<'_, F>,
) -> Result<Reply, Error> {
    Ok(match (command, status) {
        (Command::Acquire(_), "held") => Reply::Held(Grant {
            token: fields.token()?,
            expires: fields.millis()?,
        }),
        (Command::Acquire(_), "busy") => Reply::Busy {
            expires: fields.expiry()?,
            place: NonZeroU32::new(fields.count()?),
        },
        (Command::Acquire(_), "reclaimable") => Reply::Reclaimable {
            token: fields.token()?,
        },
        (Command::Acquire(_), "full") => Reply::Full {
            waiting: fields.count()?,
        },
        (Command::Renew(_), "renewed") => Reply::Renewed {
            expires: fields.millis()?,
        },
        (Command::Renew(_) | Command::Release(_) | Command::ForceRelease(_), "gone") => Reply::Gone,
        (Command::Renew(_) | Command::Release(_) | Command::ForceRelease(_), "taken") => {
            Reply::Taken
        }
        (Command::Release(_) | Command::ForceRelease(_), "released") => Reply::Released,
        (Command::Inspect(_), "held" | "free") => inspected(status == "held", fields)?,
        (Command::List(List { pattern, .. }), "listed") => Reply::Listed {
            cursor: Some(fields.number()?).filter(|cursor| *cursor != 0),
            names: fields.names(pattern),
        },
        _ => return Err(unexpected()),
    })
}

fn inspected<F: AsRef<[u8]>>(is_held: bool, fields: &mut Fields<'_, F>) -> Result<Reply, Error> {
    let holder = is_held.then(|| fields.holder()).transpose()?;
    let last_token = match &holder {
        Some(holder) => Some(holder.token),
        None => match fields.text()? {
            "0" => None,
            digits => Some(token(digits)?),
        },
    };
    let waiting = fields.count()?;
    let named = fields.number()?;
    if named > Command::MOST_NAMED as u64 {
        return Err(unexpected());
    }
    let line = (0..named)
        .map(|_| fields.waiter())
        .collect::<Result<_, _>>()?;
    Ok(Reply::Inspected(Inspected {
        holder,
        last_token,
        waiting,
        line,
    }))
}

fn refusal<F: AsRef<[u8]>>(fields: &mut Fields<'_, F>, command: &Command) -> Result<Error, Error> {
    let text = fields.lossy()?;
    let key = fields.lossy()?;
    match command.key() {
        Some(own) if own.has(&key) => Ok(server_error(&text, Some(&key))),
        None if key.is_empty() => Ok(server_error(&text, None)),
        _ => Err(unexpected()),
    }
}

struct Fields<'a, F> {
    rest: &'a [F],
}

impl<'a, F: AsRef<[u8]>> Fields<'a, F> {
    fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let (first, rest) = self.rest.split_first().ok_or_else(unexpected)?;
        self.rest = rest;
        Ok(first.as_ref())
    }

    fn text(&mut self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| unexpected())
    }

    fn lossy(&mut self) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn number(&mut self) -> Result<u64, Error> {
        let text = self.text()?;
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| plain).ok_or_else(unexpected)
    }

    fn millis(&mut self) -> Result<ServerTime, Error> {
        Ok(ServerTime::from_millis(self.number()?))
    }

    fn expiry(&mut self) -> Result<Option<ServerTime>, Error> {
        if self
            .rest
            .first()
            .is_some_and(|field| field.as_ref() == b"-1")
        {
            self.bytes()?;
            return Ok(None);
        }
        self.millis().map(Some)
    }

    fn token(&mut self) -> Result<FencingToken, Error> {
        token(self.text()?)
    }

    fn count(&mut self) -> Result<u32, Error> {
        u32::try_from(self.number()?).map_err(|_| unexpected())
    }

    /// All the rest. Keys that are not of a name's lock are somebody else's.
    fn names(&mut self, pattern: &Pattern) -> Vec<Name> {
        let keys = std::mem::take(&mut self.rest);
        let text = |key: &'a F| std::str::from_utf8(key.as_ref()).ok();
        let names = keys
            .iter()
            .filter_map(text)
            .filter_map(|key| pattern.name_of(key));
        names.collect()
    }

    fn waiter(&mut self) -> Result<Waiter, Error> {
        Ok(Waiter {
            owner: self.owner()?,
            since: ServerTime::from_micros(self.number()?),
        })
    }

    fn holder(&mut self) -> Result<Holder, Error> {
        Ok(Holder {
            token: self.token()?,
            expires: self.expiry()?,
            owner: self.owner()?,
        })
    }

    fn owner(&mut self) -> Result<Owner, Error> {
        let reclaimable = match self.text()? {
            "r" => true,
            "l" => false,
            _ => return Err(unexpected()),
        };
        let label = self.lossy()?;
        let owner = if reclaimable {
            Owner::reclaimable(label)
        } else {
            Owner::labelled(label)
        };
        owner.map_err(|_| unexpected())
    }

    fn split(&mut self, count: usize) -> Result<Fields<'a, F>, Error> {
        let (own, rest) = self.rest.split_at_checked(count).ok_or_else(unexpected)?;
        self.rest = rest;
        Ok(Fields { rest: own })
    }

    fn end(&self) -> Result<(), Error> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(unexpected())
        }
    }
}

fn token(digits: &str) -> Result<FencingToken, Error> {
    digits.parse().map_err(|_| unexpected())
}

fn unexpected() -> Error {
    Error::new(
        ErrorKind::Store,
        "the server's answer to the lock script is not of the expected form; is there a proxy or \
         an incompatible server in between?",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::protocol::{Inspect, LockKey};

    fn inspect() -> Vec<Op> {
        let name = Name::new("n").expect("a valid name");
        let key = LockKey::new("ns", &name).expect("a valid namespace");
        vec![Op {
            command: Command::Inspect(Inspect { key }),
            not_after: ServerTime::from_micros(9),
        }]
    }

    #[test]
    fn what_the_script_sends_is_read() {
        let batch = decode(
            &inspect(),
            &["77", "7", "held", "34", "2", "r", "job-7", "0", "0"],
        );
        let owner = Owner::reclaimable("job-7").expect("a valid owner");
        let token = FencingToken::new(34).expect("a valid token");
        let expires = Some(ServerTime::from_millis(2));
        let holder = Some(Holder {
            token,
            expires,
            owner,
        });
        let reply = Reply::Inspected(Inspected {
            holder,
            last_token: Some(token),
            waiting: 0,
            line: Vec::new(),
        });
        let time = ServerTime::from_micros(77);
        assert_eq!(
            batch,
            Ok(BatchReply {
                time,
                replies: vec![Ok(reply)]
            })
        );
    }

    #[test]
    fn a_refusal_names_the_key_and_its_kind() {
        let answer = [
            "77",
            "3",
            "error",
            "WRONGTYPE Operation against a key",
            "{ns:n}:token",
        ];
        let batch = decode(&inspect(), &answer).expect("the batch itself went well");
        let error = batch.replies[0]
            .clone()
            .expect_err("the command was refused");
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(error.to_string().contains("{ns:n}:token"), "{error}");
    }

    #[test]
    fn anything_else_is_an_error() {
        let cases: [&[&str]; 19] = [
            &[],
            &["x"],
            &["-5", "1", "late"],
            &["77"],
            &["77", "2", "late"],
            &["77", "1", "late", "more"],
            &["77", "2", "late", "more"],
            &["77", "1", "held"],
            &["77", "1", "released"],
            &["77", "7", "held", "0", "2", "r", "job", "0", "0"],
            &["77", "7", "held", "34", "2", "x", "job", "0", "0"],
            &["77", "7", "held", "34", "-2", "l", "job", "0", "0"],
            &["77", "4", "free", "9007199254740992", "0", "0"],
            &["77", "2", "free", "0"],
            &["77", "4", "free", "0", "1", "1"],
            &["77", "4", "free", "0", "4294967296", "0"],
            &["77", "7", "free", "0", "1", "1", "l", "job", "-1"],
            &["77", "4", "free", "0", "0", "101"],
            &["77", "18446744073709551616", "late"],
        ];
        for answer in cases {
            let batch = decode(&inspect(), answer);
            let taken = batch.is_ok_and(|batch| batch.replies.iter().all(Result::is_ok));
            assert!(!taken, "{answer:?} was taken");
        }
    }

    #[test]
    fn one_malformed_reply_does_not_spoil_its_neighbours() {
        let batch: Vec<Op> = inspect().into_iter().chain(inspect()).collect();
        let answer = ["77", "4", "free", "x", "0", "0", "4", "free", "5", "0", "0"];
        let replies = decode(&batch, &answer).expect("the frame is whole").replies;
        assert!(replies[0].is_err());
        let last_token = FencingToken::new(5).ok();
        assert_eq!(
            replies[1],
            Ok(Reply::Inspected(Inspected {
                holder: None,
                last_token,
                waiting: 0,
                line: Vec::new(),
            }))
        );
    }
}

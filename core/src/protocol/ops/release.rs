//! Release.

use super::{Form, Lua, Operation, WORDS};
use crate::error::Error;
use crate::protocol::claim::Claim;
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Arguments, Fields, unexpected};

/// Frees the lock if it is this lease's, for the next in line; else the claim leaves the line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// The lock's keys.
    pub key: LockKey,
    /// Whose lease or place in line ends.
    pub claim: Claim,
}

impl Operation for Release {
    const FORM: Form = Form {
        name: "release",
        keys: LockKey::ALL,
        args: 1,
    };
    const LUA: Lua = Lua {
        common: Some(include_str!("release.lua")),
        rest: Some(include_str!("release_rest.lua")),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn push_args(&self, args: &mut Arguments<'_>) {
        args.push(&self.claim);
    }

    fn text_size(&self) -> usize {
        WORDS + self.claim.owner.label().len()
    }

    fn reply<F: AsRef<[u8]>>(&self, status: &str, _: &mut Fields<'_, F>) -> Result<Reply, Error> {
        Ok(match status {
            "released" => Reply::Released,
            "gone" => Reply::Gone,
            "taken" => Reply::Taken,
            _ => return Err(unexpected()),
        })
    }
}

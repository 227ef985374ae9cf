//! The operations. Each is one file here, `NAME.rs`: its struct, its keys and text, and which
//! replies it takes; with its Lua beside it, `NAME.lua`. One with a common case has the statements of
//! that there, and all else in `NAME_rest.lua`.
//!
//! A new operation is these files and its line in the list below, and `mod`. From that list come
//! [`Command`], what this crate does with one, and how the script finds it. What is left are its
//! replies, if it has new ones, in [`Reply`], and the operation in the model,
//! [`MemoryServer`](crate::MemoryServer), which does not compile without.

mod acquire;
mod enter;
mod force_release;
mod inspect;
mod list;
mod release;
mod renew;

use std::time::Duration;

use super::key::LockKey;
use super::reply::Reply;
use super::wire::{Fields, Writer, unexpected};
use crate::error::Error;
use crate::time::{MILLIS, ServerTime, in_parts};

pub use acquire::Reclaim;
pub use enter::{Entered, Terms};
pub use inspect::{Holder, Inspected, Waiter};

/// A command with the moment, on the server's clock, past which it must do nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// What to do.
    pub command: Command,
    /// The server refuses to act later than this; of a batch, than the earliest.
    pub not_after: ServerTime,
}

/// What an operation has to say for itself.
pub(super) trait Operation {
    const FORM: Form;
    const LUA: Lua;

    /// The keys of the lock that it is about; `None` if it is not about one.
    fn key(&self) -> Option<&LockKey>;

    /// Whether it is what the script does without its rest, if all goes well.
    fn is_common(&self) -> bool {
        false
    }

    /// Which of its letters it has.
    fn letter(&self) -> u8 {
        Self::FORM.letters[0]
    }

    /// For how long it is to have the lock, if it is about that.
    fn ttl(&self) -> Duration {
        Duration::ZERO
    }

    /// Writes what is behind its letter and its time to live, as the head of its Lua says.
    fn write(&self, text: &mut Writer<'_>);

    /// About how many bytes its texts have.
    fn text_size(&self) -> usize {
        0
    }

    /// What the reply is if it is the common one.
    fn common_reply(&self, _: Option<ServerTime>) -> Result<Reply, Error> {
        Err(unexpected())
    }

    /// Reads the reply that begins with this status, unless it is one that any operation may get.
    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error>;
}

/// How an operation is called and how much belongs to it, on the wire and in the script.
pub(super) struct Form {
    /// Its name, which in Lua is that of its function.
    pub(super) name: &'static str,
    /// What its text begins with: one of these capital letters, or the small one of it for the common case.
    pub(super) letters: &'static [u8],
    /// The suffixes of its keys.
    pub(super) keys: &'static [&'static str],
}

/// The Lua of an operation. It is apart from its form, because nothing but the script may have it:
/// it would be in every program once more, with its comments.
pub(super) struct Lua {
    /// The statements of its common case, if it has one.
    pub(super) common: Option<&'static str>,
    /// The function that is only made when it is needed: for all else.
    pub(super) rest: &'static str,
}

macro_rules! operations {
    ($($file:ident::$name:ident,)*) => {
        $(pub use $file::$name;)*

        /// One operation of the protocol, of which a batch is made.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Command {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name),)*
        }

        pub(super) const OPERATIONS: &[(Form, Lua)] = &[$(($name::FORM, $name::LUA),)*];

        impl Command {
            /// The keys of the lock that the command is about; `None` if it is not about one.
            pub fn key(&self) -> Option<&LockKey> {
                match self { $(Self::$name(operation) => operation.key(),)* }
            }

            pub(super) fn form(&self) -> &'static Form {
                match self { $(Self::$name(_) => const { &$name::FORM },)* }
            }

            pub(super) fn write(&self, text: &mut Writer<'_>) {
                match self { $(Self::$name(operation) => write(operation, text),)* }
            }

            pub(super) fn common_reply(&self, time: Option<ServerTime>) -> Result<Reply, Error> {
                match self { $(Self::$name(operation) => operation.common_reply(time),)* }
            }

            fn text_size(&self) -> usize {
                match self { $(Self::$name(operation) => operation.text_size(),)* }
            }

            pub(super) fn reply<F: AsRef<[u8]>>(
                &self,
                status: &str,
                fields: &mut Fields<'_, F>,
            ) -> Result<Reply, Error> {
                match self { $(Self::$name(operation) => operation.reply(status, fields),)* }
            }
        }
    };
}

// In the order in which the script looks for them: most are renewals.
operations! {
    renew::Renew,
    acquire::Acquire,
    release::Release,
    enter::Enter,
    force_release::ForceRelease,
    inspect::Inspect,
    list::List,
}

fn write<T: Operation>(operation: &T, text: &mut Writer<'_>) {
    let letter = operation.letter();
    let letter = if operation.is_common() {
        letter.to_ascii_lowercase()
    } else {
        letter
    };
    text.letter(letter);
    text.millis(operation.ttl());
    operation.write(text);
}

/// When a lease expires that begins at this time of the server.
fn expiry(time: ServerTime, ttl: Duration) -> ServerTime {
    ServerTime::from_millis(time.millis()) + Duration::from_millis(in_parts(ttl, MILLIS))
}

impl Command {
    /// About how many bytes it takes to send.
    pub(crate) fn size(&self) -> usize {
        let keys = self.form().keys.len();
        WORDS + self.text_size() + keys * self.key().map_or(0, LockKey::size)
    }
}

/// About how many bytes the numbers and ids of a command have, or those of a claim.
const WORDS: usize = 128;

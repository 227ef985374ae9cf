//! The operations. Each is one file here, `NAME.rs`: its struct, its keys and arguments, and which
//! replies it takes; with its Lua beside it, `NAME.lua`. A common one keeps there what every call of
//! the script defines, and the rest of it in `NAME_rest.lua`.
//!
//! A new operation is these files and its line in the list below, and `mod`. From that list come
//! [`Command`], what this crate does with one, and how the script finds it. What is left are its
//! replies, if it has new ones, in [`Reply`], and the operation in the model,
//! [`MemoryServer`](crate::MemoryServer), which does not compile without.

mod acquire;
mod force_release;
mod inspect;
mod list;
mod release;
mod renew;

use super::key::LockKey;
use super::reply::Reply;
use super::wire::{Arguments, Fields};
use crate::error::Error;
use crate::time::ServerTime;

pub use acquire::Reclaim;
pub use inspect::{Holder, Inspected, Waiter};

/// A command with the moment, on the server's clock, past which it must do nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// What to do.
    pub command: Command,
    /// The server refuses to act later than this.
    pub not_after: ServerTime,
}

/// What an operation has to say for itself.
pub(super) trait Operation {
    const FORM: Form;
    const LUA: Lua;

    /// The keys of the lock that it is about; `None` if it is not about one.
    fn key(&self) -> Option<&LockKey>;

    /// Pushes as many as [`FORM`](Self::FORM) says.
    fn push_args(&self, args: &mut Arguments<'_>);

    /// About how many bytes its texts have.
    fn text_size(&self) -> usize {
        0
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
    /// The suffixes of its keys.
    pub(super) keys: &'static [&'static str],
    /// How many arguments it has.
    pub(super) args: usize,
}

/// The Lua of an operation. It is apart from its form, because nothing but the script may have it:
/// it would be in every program once more, with its comments.
pub(super) struct Lua {
    /// If it is a common operation: what every call of the script defines.
    pub(super) common: Option<&'static str>,
    /// What is only defined when it is needed: what the common one leaves to it, or all.
    pub(super) rest: Option<&'static str>,
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

            pub(super) fn push_args(&self, args: &mut Arguments<'_>) {
                match self { $(Self::$name(operation) => operation.push_args(args),)* }
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
    force_release::ForceRelease,
    inspect::Inspect,
    list::List,
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

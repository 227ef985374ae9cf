//! List.

use super::{Form, Lua, Operation};
use crate::error::Error;
use crate::protocol::key::LockKey;
use crate::protocol::pattern::Pattern;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Arguments, Fields, unexpected};

/// One step of a walk over the locks that are held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    /// Which of them.
    pub pattern: Pattern,
    /// Where the last step ended; 0 to begin.
    pub cursor: u64,
}

impl Operation for List {
    const FORM: Form = Form {
        name: "list",
        keys: &[],
        args: 2,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: Some(include_str!("list.lua")),
    };

    fn key(&self) -> Option<&LockKey> {
        None
    }

    fn push_args(&self, args: &mut Arguments<'_>) {
        args.push(self.cursor);
        args.push(self.pattern.glob());
    }

    fn text_size(&self) -> usize {
        self.pattern.glob().len()
    }

    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error> {
        match status {
            "listed" => Ok(Reply::Listed {
                cursor: Some(fields.number()?).filter(|cursor| *cursor != 0),
                // Keys that are not of a name's lock are somebody else's.
                names: fields
                    .rest_as_text()
                    .filter_map(|key| self.pattern.name_of(key))
                    .collect(),
            }),
            _ => Err(unexpected()),
        }
    }
}

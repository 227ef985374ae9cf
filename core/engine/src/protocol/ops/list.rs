//! The `List` operation.

use super::{Form, Lua, Operation};
use crate::error::Error;
use crate::protocol::key::LockKey;
use crate::protocol::limits::CURSOR_LENGTH;
use crate::protocol::pattern::Pattern;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};

/// Lists some of the held locks: one step of a `SCAN`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    /// Selects the names to list.
    pub pattern: Pattern,
    /// The cursor that the last step returned; 0 to begin.
    pub cursor: u64,
}

impl Operation for List {
    const FORM: Form = Form {
        name: "list",
        letters: b"L",
        keys: &[],
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("list.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        None
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.number(self.cursor, CURSOR_LENGTH);
        text.text(self.pattern.glob());
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
                // Other hashes in the namespace that match the glob are not locks.
                names: fields
                    .rest_as_text()
                    .filter_map(|key| self.pattern.name_of(key))
                    .collect(),
            }),
            _ => Err(unexpected()),
        }
    }
}

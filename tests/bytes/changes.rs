//! Random changes of valid inputs.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A change of a text or of any other list.
#[derive(Clone, Debug)]
enum Change<T> {
    Replace(Index, T),
    Insert(Index, Vec<T>),
    Cut(Index, Index),
    Repeat(Index, Index),
}

impl<T: Clone> Change<T> {
    fn apply(&self, to: &mut Vec<T>) {
        if to.is_empty() {
            if let Self::Insert(_, new) = self {
                to.extend_from_slice(new);
            }
            return;
        }
        let range = |one: &Index, other: &Index, length: usize| {
            let (one, other) = (one.index(length), other.index(length));
            one.min(other)..one.max(other) + 1
        };
        match self {
            Self::Replace(at, new) => {
                let at = at.index(to.len());
                to[at] = new.clone();
            }
            Self::Insert(at, new) => {
                let at = at.index(to.len() + 1);
                to.splice(at..at, new.iter().cloned());
            }
            Self::Cut(from, until) => {
                to.drain(range(from, until, to.len()));
            }
            Self::Repeat(from, until) => {
                let range = range(from, until, to.len());
                let again = to[range.clone()].to_vec();
                to.splice(range.start..range.start, again);
            }
        }
    }
}

/// Bytes that formats give a meaning to, and any others.
fn byte() -> impl Strategy<Value = u8> + Clone {
    prop_oneof![
        select(&b"\0\r\n :/@%{}[]+-.,?#&=\"'\\0189afz\x7f\xff"[..]),
        any::<u8>(),
    ]
}

fn changes<T: Clone + std::fmt::Debug + 'static>(
    item: impl Strategy<Value = T> + Clone + 'static,
) -> impl Strategy<Value = Vec<Change<T>>> {
    let change = prop_oneof![
        (any::<Index>(), item.clone()).prop_map(|(at, new)| Change::Replace(at, new)),
        (any::<Index>(), vec(item, 1..5)).prop_map(|(at, new)| Change::Insert(at, new)),
        any::<(Index, Index)>().prop_map(|(from, until)| Change::Cut(from, until)),
        any::<(Index, Index)>().prop_map(|(from, until)| Change::Repeat(from, until)),
    ];
    vec(change, 0..4)
}

fn changed<T: Clone>(of: &[T], changes: &[Change<T>]) -> Vec<T> {
    let mut of = of.to_vec();
    for change in changes {
        change.apply(&mut of);
    }
    of
}

/// Returns these inputs with a few bytes changed, and other bytes.
pub(crate) fn bytes(valid: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let near = (select(valid), changes(byte()));
    prop_oneof![
        9 => near.prop_map(|(valid, changes)| changed(valid.as_bytes(), &changes)),
        1 => vec(byte(), 0..300),
    ]
}

/// Returns the texts among [`bytes`], and others with replacement characters.
pub(crate) fn texts(valid: &'static [&'static str]) -> impl Strategy<Value = String> {
    bytes(valid).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Changes of a list of fields: of the list itself, and of the bytes of one field.
#[derive(Clone, Debug)]
pub(crate) struct FieldChanges {
    list: Vec<Change<Vec<u8>>>,
    at: Index,
    inside: Vec<Change<u8>>,
}

impl FieldChanges {
    pub(crate) fn apply(&self, fields: &[String]) -> Vec<Vec<u8>> {
        let fields = fields.iter().map(|field| field.clone().into_bytes());
        let mut fields = changed(&fields.collect::<Vec<_>>(), &self.list);
        if !fields.is_empty() {
            let at = self.at.index(fields.len());
            fields[at] = changed(&fields[at], &self.inside);
        }
        fields
    }
}

pub(crate) fn of_fields() -> impl Strategy<Value = FieldChanges> {
    let field = prop_oneof![vec(byte(), 0..20), Just(b"18446744073709551615".to_vec()),];
    let parts = (changes(field), any::<Index>(), changes(byte()));
    parts.prop_map(|(list, at, inside)| FieldChanges { list, at, inside })
}

//! What the parts of a quorum work with.

use super::entries::Entries;
use super::members::Members;
use crate::engine::ctx::Ctx;

#[derive(Debug)]
pub(super) struct Env {
    pub(super) cx: Ctx,
    pub(super) members: Members,
    pub(super) entries: Entries,
}

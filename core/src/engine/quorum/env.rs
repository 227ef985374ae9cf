//! What the parts of a quorum work with.

use super::entries::Entries;
use super::members::Members;
use super::proposal::Proposals;
use crate::engine::ctx::Ctx;
use crate::token::FencingToken;

#[derive(Debug)]
pub(super) struct Env {
    pub(super) cx: Ctx,
    pub(super) members: Members,
    pub(super) entries: Entries,
    pub(super) proposals: Proposals,
}

impl Env {
    /// A token for all members, of which one may have given this one already.
    pub(super) fn propose(&mut self, given: Option<FencingToken>) -> Option<FencingToken> {
        let clocks = self.members.clocks(self.cx.now);
        self.proposals.next(clocks, given)
    }
}

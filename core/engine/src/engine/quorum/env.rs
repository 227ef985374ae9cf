//! What the parts of a quorum work with.

use super::entries::{Entries, Standing};
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
    /// True if this member is asked by holders alone for now, because the others suffice for everybody else.
    pub(super) fn is_for_holders(&self, at: usize) -> bool {
        let is_reserved = |at| self.entries.is_reserved(self.cx.now, at);
        let is_for_all = |at: &usize| {
            let votes = self.entries.standing(*at) == Standing::Votes;
            votes && self.members.is_able(*at) && !is_reserved(*at)
        };
        let all = 0..self.members.len();
        is_reserved(at) && all.filter(is_for_all).count() >= self.members.majority()
    }

    /// A token for all members, of which one may have given this one already.
    pub(super) fn propose(&mut self, given: Option<FencingToken>) -> Option<FencingToken> {
        let clocks = self.members.clocks(self.cx.now);
        self.proposals.next(clocks, given)
    }
}

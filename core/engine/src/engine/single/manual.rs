//! Renewals that the program asks for: for which time to live, with which floor, and which calls wait for them.

use std::time::Duration;

use super::Single;
use super::renewing::Renewing;
use crate::engine::clock::Margin;
use crate::engine::front::{Keeping, Renewal, Tenure, Who};
use crate::engine::io::{CallId, LockSpec};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// What a tenure has that the program ever renewed by hand.
#[derive(Debug, Default)]
pub(super) struct Manual {
    /// Calls that wait for a renewal.
    renewals: Vec<CallId>,
    /// Calls that wait for the one after it, because it does not ask for what they do.
    later: Vec<CallId>,
    /// The time to live that the program asked for by hand, and the one that it has got.
    wanted: Option<Duration>,
    ttl: Option<Duration>,
    /// The time that the holder may count on once the last renewal succeeds: the time that the renewal is for, even
    /// if the store was asked for more. And the longest time that the store was ever asked for.
    counted: Option<Duration>,
    longest: Duration,
    /// The highest floor that no renewal has confirmed yet, and the one that the last had.
    floor: Option<FencingToken>,
    carried: Option<FencingToken>,
}

impl Keeping for Renewing {
    fn cancel_renewal(&mut self, call: CallId) {
        if let Some(manual) = &mut self.manual {
            manual.renewals.retain(|renewal| *renewal != call);
            manual.later.retain(|renewal| *renewal != call);
        }
    }

    fn take_renewals(&mut self) -> Vec<CallId> {
        let mut calls = self.take_renewals_under_way();
        if let Some(manual) = &mut self.manual {
            calls.append(&mut manual.later);
        }
        calls
    }
}

impl Renewing {
    pub(super) fn take_renewals_under_way(&mut self) -> Vec<CallId> {
        let manual = self.manual.as_mut();
        manual
            .map(|manual| std::mem::take(&mut manual.renewals))
            .unwrap_or_default()
    }

    /// Whether calls wait for a renewal.
    pub(super) fn is_asked(&self) -> bool {
        let manual = self.manual.as_ref();
        manual.is_some_and(|manual| !manual.renewals.is_empty() || !manual.later.is_empty())
    }

    /// The time to live that the store gave it last.
    pub(super) fn ttl(&self, spec: &LockSpec) -> Duration {
        let changed = self.manual.as_ref().and_then(|manual| manual.ttl);
        changed.unwrap_or(spec.ttl)
    }

    /// The time to live that renewals ask for.
    pub(super) fn wanted_ttl(&self, spec: &LockSpec) -> Duration {
        let changed = self.manual.as_ref().and_then(|manual| manual.wanted);
        changed.unwrap_or(spec.ttl)
    }

    /// The longest time to live that the store may have given it.
    pub(super) fn longest_ttl(&self, spec: &LockSpec) -> Duration {
        let changed = self.manual.as_ref().map(|manual| manual.longest);
        changed.unwrap_or_default().max(spec.ttl)
    }

    /// The most that the holder may count on once the last renewal succeeds, from when it was sent.
    pub(super) fn counted(&self, spec: &LockSpec) -> Duration {
        let changed = self.manual.as_ref().and_then(|manual| manual.counted);
        changed.unwrap_or(spec.ttl)
    }

    /// The floor that a renewal has which leaves now.
    pub(super) fn carry_floor(&mut self) -> Option<FencingToken> {
        let manual = self.manual.as_mut()?;
        manual.carried = manual.floor;
        manual.floor
    }

    /// What the last renewal had is done.
    pub(super) fn confirm_floor(&mut self) {
        if let Some(manual) = &mut self.manual
            && manual.floor == manual.carried
        {
            manual.floor = None;
        }
    }

    /// What the last renewal asked for is got, unless a later one asks for something else.
    pub(super) fn confirm_ttl(&mut self) {
        if let Some(manual) = &mut self.manual
            && manual.later.is_empty()
        {
            manual.ttl = manual.wanted;
        }
    }
}

impl Tenure<Renewing> {
    /// What the store is asked for now. A shorter time to live than before, or a wider margin, must
    /// not cut short what the holder was promised: the store may act on it while the holder still
    /// counts on the rest.
    pub(super) fn ask(
        &mut self,
        spec: &LockSpec,
        now: Timestamp,
        (margin, wanted): (Margin, Duration),
    ) -> Duration {
        let asked = margin.covering(self.deadline.since(now), wanted);
        if asked != spec.ttl || self.kept.manual.is_some() {
            let manual = self.kept.manual.get_or_insert_default();
            manual.counted = Some(wanted);
            manual.longest = manual.longest.max(asked);
        }
        asked
    }

    pub(super) fn renew_by_hand(&mut self, env: &mut Single, who: &Who, renewal: Renewal) {
        let Renewal { call, ttl, floor } = renewal;
        let (under_way, looks) = (self.kept.attempt.is_under_way(), self.kept.looks);
        let manual = self.kept.manual.get_or_insert_default();
        manual.wanted = ttl.or(manual.wanted);
        manual.floor = floor.max(manual.floor);
        // What is under way asks for another time to live, or only for the one that is left, or has
        // not got the floor.
        let asks_less = ttl.is_some() || who.spec.fixed && looks || floor > manual.carried;
        if under_way && asks_less {
            manual.later.push(call);
        } else {
            manual.renewals.push(call);
        }
        if !under_way {
            self.renew(env, who);
        }
    }

    /// Begins the renewal that waited for the one before, which asked for another time to live.
    pub(super) fn renew_later(&mut self, env: &mut Single, who: &Who) {
        let manual = self.kept.manual.as_mut();
        if let Some(manual) = manual.filter(|manual| !manual.later.is_empty()) {
            manual.renewals = std::mem::take(&mut manual.later);
            self.renew(env, who);
        }
    }
}

//! Renewals that the program asks for: for which time to live, with which floor, and which calls wait for them.

use std::time::Duration;

use super::attempt::Doubt;
use crate::engine::front::Renewal;
use crate::engine::io::{CallId, LockSpec};
use crate::token::FencingToken;

/// Wishes of the program for one tenure, and its doubt. Few tenures have either.
#[derive(Debug, Default)]
pub(super) struct Manual(Option<Box<Wishes>>);

#[derive(Debug, Default)]
struct Wishes {
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
    /// An earlier attempt of the acquisition may have taken the lock again by then, after it was
    /// freed: whoever ends the tenure sees to it. It is here because few tenures have it, either.
    doubt: Option<Doubt>,
}

impl Manual {
    pub(super) fn doubt(&self) -> Option<Doubt> {
        self.0.as_ref()?.doubt
    }

    pub(super) fn set_doubt(&mut self, doubt: Option<Doubt>) {
        if doubt.is_some() || self.0.is_some() {
            self.0.get_or_insert_default().doubt = doubt;
        }
    }
}

/// Calls that wait.
impl Manual {
    /// A renewal is to be begun, or waits for the one that is under way. `looks` is whether that one asks only for the
    /// time that is left.
    pub(super) fn wish(&mut self, renewal: Renewal, is_under_way: bool, looks: bool) {
        let Renewal { call, ttl, floor } = renewal;
        let wishes = self.0.get_or_insert_default();
        wishes.wanted = ttl.or(wishes.wanted);
        wishes.floor = floor.max(wishes.floor);
        // What is under way asks for another time to live, or has not got the floor.
        let asks_less = ttl.is_some() || looks || floor > wishes.carried;
        if is_under_way && asks_less {
            wishes.later.push(call);
        } else {
            wishes.renewals.push(call);
        }
    }

    pub(super) fn cancel(&mut self, call: CallId) {
        if let Some(wishes) = &mut self.0 {
            for calls in [&mut wishes.renewals, &mut wishes.later] {
                calls.retain(|renewal| *renewal != call);
            }
        }
    }

    pub(super) fn take_all(&mut self) -> Vec<CallId> {
        let mut calls = self.take_under_way();
        if let Some(wishes) = &mut self.0 {
            calls.append(&mut wishes.later);
        }
        calls
    }

    pub(super) fn take_under_way(&mut self) -> Vec<CallId> {
        let wishes = self.0.as_mut();
        wishes
            .map(|wishes| std::mem::take(&mut wishes.renewals))
            .unwrap_or_default()
    }

    /// The renewal that waited for the one before begins, if there is one.
    pub(super) fn begin_later(&mut self) -> bool {
        let wishes = self.0.as_mut();
        let Some(wishes) = wishes.filter(|wishes| !wishes.later.is_empty()) else {
            return false;
        };
        wishes.renewals = std::mem::take(&mut wishes.later);
        true
    }

    /// True if calls wait for a renewal.
    pub(super) fn is_asked(&self) -> bool {
        let wishes = self.0.as_ref();
        wishes.is_some_and(|wishes| !wishes.renewals.is_empty() || !wishes.later.is_empty())
    }
}

/// Times to live and floors.
impl Manual {
    /// The time to live that the store gave it last.
    pub(super) fn ttl(&self, spec: &LockSpec) -> Duration {
        self.or_own(spec, |wishes| wishes.ttl)
    }

    /// The time to live that renewals ask for.
    pub(super) fn wanted_ttl(&self, spec: &LockSpec) -> Duration {
        self.or_own(spec, |wishes| wishes.wanted)
    }

    /// The most that the holder may count on once the last renewal succeeds, from when it was sent.
    pub(super) fn counted(&self, spec: &LockSpec) -> Duration {
        self.or_own(spec, |wishes| wishes.counted)
    }

    /// The longest time to live that the store may have given it.
    pub(super) fn longest_ttl(&self, spec: &LockSpec) -> Duration {
        let longest = self.or_own(spec, |wishes| Some(wishes.longest));
        longest.max(spec.ttl)
    }

    fn or_own(&self, spec: &LockSpec, of: impl Fn(&Wishes) -> Option<Duration>) -> Duration {
        let changed = self.0.as_ref().and_then(|wishes| of(wishes));
        changed.unwrap_or(spec.ttl)
    }

    /// The store is asked for so long a time, of which the holder may count on what it wanted.
    pub(super) fn asks(&mut self, spec: &LockSpec, (asked, wanted): (Duration, Duration)) {
        if asked != spec.ttl || self.0.is_some() {
            let wishes = self.0.get_or_insert_default();
            wishes.counted = Some(wanted);
            wishes.longest = wishes.longest.max(asked);
        }
    }

    /// The floor that a renewal has which leaves now.
    pub(super) fn carry_floor(&mut self) -> Option<FencingToken> {
        let wishes = self.0.as_mut()?;
        wishes.carried = wishes.floor;
        wishes.floor
    }

    /// The floor of the last renewal is confirmed.
    pub(super) fn confirm_floor(&mut self) {
        if let Some(wishes) = &mut self.0
            && wishes.floor == wishes.carried
        {
            wishes.floor = None;
        }
    }

    /// The time to live of the last renewal is granted, unless a later one asks for something else.
    pub(super) fn confirm_ttl(&mut self) {
        if let Some(wishes) = &mut self.0
            && wishes.later.is_empty()
        {
            wishes.ttl = wishes.wanted;
        }
    }
}

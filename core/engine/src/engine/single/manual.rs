//! The parts of a tenure that few tenures have: renewals that the program asks for, with their times to live, their
//! floors and the calls that wait for them; a doubt; and a request to yield.

use std::time::Duration;

use super::attempt::Doubt;
use crate::engine::front::Renewal;
use crate::engine::io::CallId;
use crate::engine::spec::LockSpec;
use crate::time::ServerTime;
use crate::token::FencingToken;

/// The program's requests for one tenure, the doubt about its acquisition, and a request to yield. Few tenures
/// have any of them, so they share a box.
#[derive(Debug, Default)]
pub(super) struct Manual(Option<Box<ManualState>>);

#[derive(Debug, Default)]
struct ManualState {
    /// Calls that wait for a renewal.
    renewals: Vec<CallId>,
    /// Calls that wait for the renewal after that, because the one in flight does not ask for enough.
    later: Vec<CallId>,
    /// The time to live that the program asked for by hand, and the one that the store has granted.
    wanted: Option<Duration>,
    ttl: Option<Duration>,
    /// The time that the holder may count on once the last renewal succeeds: the time that the renewal is
    /// for, even if it asked the store for more. And the longest time that any renewal asked the store for.
    counted: Option<Duration>,
    longest: Duration,
    /// The highest floor that no renewal has confirmed yet, and the floor of the last renewal.
    floor: Option<FencingToken>,
    carried: Option<FencingToken>,
    /// Earlier attempts of the acquisition that may take the lock again after it was freed, until this time.
    /// Whatever ends the tenure handles them. Stored here because few tenures have a doubt.
    doubt: Option<Doubt>,
    /// The end of the last request to yield that a renewal reported, by the server's clock. It tells one
    /// request from another, because a later one of the tenure ends at another time.
    wanted_until: Option<ServerTime>,
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

/// Calls that wait for renewals.
impl Manual {
    /// Records a request for a renewal. The call waits for the renewal in flight, or for the one after it.
    /// `checks` is true if the one in flight asks only for the time that is left.
    pub(super) fn request(&mut self, renewal: Renewal, is_under_way: bool, checks: bool) {
        let Renewal { call, ttl, floor } = renewal;
        let state = self.0.get_or_insert_default();
        state.wanted = ttl.or(state.wanted);
        state.floor = floor.max(state.floor);
        // The renewal in flight asks for another time to live, or lacks the floor.
        let asks_less = ttl.is_some() || checks || floor > state.carried;
        if is_under_way && asks_less {
            state.later.push(call);
        } else {
            state.renewals.push(call);
        }
    }

    pub(super) fn cancel(&mut self, call: CallId) {
        if let Some(state) = &mut self.0 {
            for calls in [&mut state.renewals, &mut state.later] {
                calls.retain(|renewal| *renewal != call);
            }
        }
    }

    pub(super) fn take_all(&mut self) -> Vec<CallId> {
        let mut calls = self.take_under_way();
        if let Some(state) = &mut self.0 {
            calls.append(&mut state.later);
        }
        calls
    }

    pub(super) fn take_under_way(&mut self) -> Vec<CallId> {
        let state = self.0.as_mut();
        state
            .map(|state| std::mem::take(&mut state.renewals))
            .unwrap_or_default()
    }

    /// Moves the calls for the next renewal to the current one. Returns true if there are any, so that the
    /// caller starts that renewal.
    pub(super) fn begin_later(&mut self) -> bool {
        let state = self.0.as_mut();
        let Some(state) = state.filter(|state| !state.later.is_empty()) else {
            return false;
        };
        state.renewals.append(&mut state.later);
        true
    }

    /// True if calls wait for a renewal.
    pub(super) fn is_asked(&self) -> bool {
        let state = self.0.as_ref();
        state.is_some_and(|state| !state.renewals.is_empty() || !state.later.is_empty())
    }
}

/// Requests to yield.
impl Manual {
    /// Returns true if no renewal has reported the request that ends at this time, and remembers it.
    pub(super) fn is_first(&mut self, until: ServerTime) -> bool {
        let state = self.0.get_or_insert_default();
        state.wanted_until.replace(until) != Some(until)
    }
}

/// Times to live and floors.
impl Manual {
    /// Returns the time to live that the store granted last.
    pub(super) fn ttl(&self, spec: &LockSpec) -> Duration {
        self.or_own(spec, |state| state.ttl)
    }

    /// Returns the time to live that renewals ask for.
    pub(super) fn wanted_ttl(&self, spec: &LockSpec) -> Duration {
        self.or_own(spec, |state| state.wanted)
    }

    /// Returns the most that the holder may count on once the last renewal succeeds, measured from when it
    /// was sent.
    pub(super) fn counted(&self, spec: &LockSpec) -> Duration {
        self.or_own(spec, |state| state.counted)
    }

    /// Returns the longest time to live that the store may have granted.
    pub(super) fn longest_ttl(&self, spec: &LockSpec) -> Duration {
        let longest = self.or_own(spec, |state| Some(state.longest));
        longest.max(spec.ttl)
    }

    fn or_own(&self, spec: &LockSpec, of: impl Fn(&ManualState) -> Option<Duration>) -> Duration {
        let changed = self.0.as_ref().and_then(|state| of(state));
        changed.unwrap_or(spec.ttl)
    }

    /// Records that a renewal asks the store for `asked`, of which the holder may count on `wanted`.
    pub(super) fn asks(&mut self, spec: &LockSpec, (asked, wanted): (Duration, Duration)) {
        if asked != spec.ttl || self.0.is_some() {
            let state = self.0.get_or_insert_default();
            state.counted = Some(wanted);
            state.longest = state.longest.max(asked);
        }
    }

    /// True if a floor waits for its confirmation.
    pub(super) fn has_floor(&self) -> bool {
        let state = self.0.as_ref();
        state.is_some_and(|state| state.floor.is_some())
    }

    /// Returns the floor for a renewal that leaves now.
    pub(super) fn carry_floor(&mut self) -> Option<FencingToken> {
        let state = self.0.as_mut()?;
        state.carried = state.floor;
        state.floor
    }

    /// Records that the last renewal succeeded with its floor.
    pub(super) fn confirm_floor(&mut self) {
        if let Some(state) = &mut self.0
            && state.floor == state.carried
        {
            state.floor = None;
        }
    }

    /// Records the time to live that the last renewal got, unless a later one asks for another.
    pub(super) fn confirm_ttl(&mut self) {
        if let Some(state) = &mut self.0
            && state.later.is_empty()
        {
            state.ttl = state.wanted;
        }
    }
}

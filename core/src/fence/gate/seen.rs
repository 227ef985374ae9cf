//! The gate's table: the greatest token of each resource, and the line of waiting writes.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::Waker;

use leasehold_engine::{Error, ErrorKind, FencingToken};
use serde::{Deserialize, Serialize};

use super::Gate;
use crate::fence::check_resource;

/// Marks the absence of a slot.
const NONE: usize = usize::MAX;

/// Waiters in order of arrival, each with its unique ticket.
type Line = VecDeque<(u64, Waker)>;

/// A place in a slot's line.
#[derive(Copy, Clone)]
pub(super) struct Place {
    slot: usize,
    ticket: u64,
}

/// A token that passed the check.
#[must_use = "the overtaken are to be woken"]
pub(super) struct Admitted {
    slot: usize,
    overtaken: Line,
}

impl Admitted {
    /// Wakes the waiters with smaller tokens, which are refused now.
    pub(super) fn wake_overtaken(self) {
        for (_, waker) in self.overtaken {
            waker.wake();
        }
    }
}

/// The table of resources.
///
/// A slot goes to another resource only while it is idle, so its number stays valid while a write holds it or
/// waits for it.
pub(super) struct Seen {
    capacity: usize,
    /// At least the greatest token of every evicted resource.
    floor: Option<FencingToken>,
    index: HashMap<Arc<str>, usize>,
    slots: Vec<Slot>,
    /// Slots without a resource.
    free: Vec<usize>,
    /// The ends of the linked list of idle slots, in order of last use.
    newest: usize,
    oldest: usize,
    tickets: u64,
}

struct Slot {
    resource: Arc<str>,
    highest: FencingToken,
    writing: bool,
    /// True once a token counts permanently: then the resource stays in the table when idle.
    kept: bool,
    /// The line. All its waiters have the highest token: a greater token empties the line, a smaller one is
    /// not admitted.
    line: Line,
    newer: usize,
    older: usize,
}

impl Slot {
    /// Exactly the idle slots are in the linked list and may be evicted.
    fn is_idle(&self) -> bool {
        !self.writing && self.line.is_empty()
    }
}

impl Seen {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            floor: None,
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            tickets: 0,
        }
    }

    pub(super) fn highest(&self, resource: &str) -> Option<FencingToken> {
        match self.index.get(resource) {
            Some(&slot) => Some(self.slots[slot].highest),
            None => self.floor,
        }
    }

    /// Applies the rule. A token that passes is recorded at once and makes the resource the most recently
    /// used one. A new resource is remembered if `kept`, or once a write to it has changed something.
    pub(super) fn admit(
        &mut self,
        resource: &str,
        token: FencingToken,
        kept: bool,
    ) -> Result<Admitted, Error> {
        let Some(&slot) = self.index.get(resource) else {
            if let Some(floor) = self.floor.filter(|floor| token < *floor) {
                return Err(Error::stale(resource, token, floor));
            }
            let slot = self.remember(resource, token, kept)?;
            let overtaken = Line::new();
            return Ok(Admitted { slot, overtaken });
        };
        let highest = self.slots[slot].highest;
        if token < highest {
            return Err(Error::stale(resource, token, highest));
        }
        if self.slots[slot].is_idle() {
            self.unlink(slot);
        }
        let entry = &mut self.slots[slot];
        entry.kept |= kept;
        let mut overtaken = Line::new();
        if token > highest {
            entry.highest = token;
            overtaken = mem::take(&mut entry.line);
        }
        if entry.is_idle() {
            self.link(slot);
        }
        Ok(Admitted { slot, overtaken })
    }

    /// Begins a write to an admitted resource, if nobody else writes or waits.
    pub(super) fn begin(&mut self, admitted: &Admitted) -> Option<usize> {
        let slot = admitted.slot;
        if !self.slots[slot].is_idle() {
            return None;
        }
        self.unlink(slot);
        self.slots[slot].writing = true;
        Some(slot)
    }

    /// Joins the line.
    pub(super) fn wait(&mut self, admitted: &Admitted, waker: &Waker) -> Result<Place, Error> {
        let (slot, ticket) = (admitted.slot, self.tickets);
        let Slot { resource, line, .. } = &mut self.slots[slot];
        if line.len() >= Gate::MAX_WAITING {
            let most = Gate::MAX_WAITING;
            let message =
                format!("too many writes wait for the resource {resource:?} (at most {most})");
            return Err(Error::new(ErrorKind::Overloaded, message));
        }
        self.tickets += 1;
        line.push_back((ticket, waker.clone()));
        Ok(Place { slot, ticket })
    }

    /// Returns the slot if it is this place's turn, or an error if a greater token came.
    ///
    /// Drop `retired` after the lock is released: dropping a waker may run foreign code.
    pub(super) fn turn(
        &mut self,
        place: Place,
        (resource, token): (&str, FencingToken),
        waker: &Waker,
        retired: &mut Option<Waker>,
    ) -> Result<Option<usize>, Error> {
        let entry = &mut self.slots[place.slot];
        match entry.position(place.ticket) {
            Some(0) if !entry.writing => {
                *retired = entry.line.pop_front().map(|(_, waker)| waker);
                entry.writing = true;
                Ok(Some(place.slot))
            }
            Some(position) => {
                let known = &mut entry.line[position].1;
                if !known.will_wake(waker) {
                    *retired = Some(mem::replace(known, waker.clone()));
                }
                Ok(None)
            }
            None => {
                let highest = self.highest(resource).unwrap_or(token);
                Err(Error::stale(resource, token, highest))
            }
        }
    }

    /// Returns true if the waiter must be admitted again: a greater token emptied the line, but its write
    /// changed nothing and it was forgotten.
    pub(super) fn overtaken_by_nothing(
        &self,
        place: Place,
        (resource, token): (&str, FencingToken),
    ) -> bool {
        self.slots[place.slot].position(place.ticket).is_none()
            && self
                .highest(resource)
                .is_none_or(|highest| highest <= token)
    }

    /// Leaves the line. Returns the waiter to wake instead.
    pub(super) fn leave(&mut self, place: Place, retired: &mut Option<Waker>) -> Option<Waker> {
        let entry = &mut self.slots[place.slot];
        let position = entry.position(place.ticket)?;
        *retired = entry.line.remove(position).map(|(_, waker)| waker);
        if entry.writing || position > 0 {
            return None;
        }
        self.pass_on(place.slot)
    }

    /// Ends a write and returns the waiter to wake. If nobody `wrote` to a new resource, the gate forgets it.
    pub(super) fn end(&mut self, slot: usize, wrote: bool) -> Option<Waker> {
        let entry = &mut self.slots[slot];
        entry.writing = false;
        entry.kept |= wrote;
        self.pass_on(slot)
    }

    fn pass_on(&mut self, slot: usize) -> Option<Waker> {
        let next = self.slots[slot].line.front();
        let next = next.map(|(_, waker)| waker.clone());
        if next.is_none() {
            // There are many idle slots: do not keep the memory of a burst in each.
            let entry = &mut self.slots[slot];
            entry.line = Line::new();
            if entry.kept {
                self.link(slot);
            } else {
                self.index.remove(&*entry.resource);
                entry.resource = "".into();
                self.free.push(slot);
            }
        }
        next
    }

    /// Returns a slot for a new resource; at capacity, that of the least recently used idle resource.
    fn remember(
        &mut self,
        resource: &str,
        token: FencingToken,
        kept: bool,
    ) -> Result<usize, Error> {
        let entry = Slot {
            resource: resource.into(),
            highest: token,
            writing: false,
            kept,
            line: Line::new(),
            newer: NONE,
            older: NONE,
        };
        let mut slot = self.free.pop().unwrap_or(self.slots.len());
        if slot >= self.capacity {
            slot = self.oldest;
            if slot == NONE {
                let message = format!(
                    "the gate is full: all {} resources are being written to; raise its capacity",
                    self.capacity
                );
                return Err(Error::new(ErrorKind::Overloaded, message));
            }
            self.unlink(slot);
            let forgotten = &self.slots[slot];
            self.floor = self.floor.max(Some(forgotten.highest));
            self.index.remove(&*forgotten.resource);
        }
        self.index.insert(entry.resource.clone(), slot);
        if slot == self.slots.len() {
            self.slots.push(entry);
        } else {
            self.slots[slot] = entry;
        }
        self.link(slot);
        Ok(slot)
    }

    /// Adds a slot to the idle list as the most recently used.
    fn link(&mut self, slot: usize) {
        let older = mem::replace(&mut self.newest, slot);
        self.slots[slot].older = older;
        self.slots[slot].newer = NONE;
        match self.slots.get_mut(older) {
            Some(older) => older.newer = slot,
            None => self.oldest = slot,
        }
    }

    fn unlink(&mut self, slot: usize) {
        let Slot { newer, older, .. } = self.slots[slot];
        match self.slots.get_mut(newer) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut seen = Vec::with_capacity(self.slots.len());
        let mut slot = self.oldest;
        while let Some(entry) = self.slots.get(slot) {
            seen.push((entry.resource.clone(), entry.highest));
            slot = entry.newer;
        }
        // Slots in use are not in the idle list, and count as most recently used.
        let used = self.slots.iter().filter(|entry| !entry.is_idle());
        seen.extend(used.map(|entry| (entry.resource.clone(), entry.highest)));
        Snapshot {
            capacity: self.capacity,
            floor: self.floor,
            seen,
        }
    }

    pub(super) fn restore(snapshot: Snapshot) -> Result<Self, Error> {
        let bad = |message: String| Error::new(ErrorKind::Config, message);
        let Snapshot {
            capacity,
            floor,
            seen: entries,
        } = snapshot;
        if capacity == 0 || entries.len() > capacity {
            let (length, most) = (entries.len(), capacity);
            return Err(bad(format!(
                "the capacity of a gate must be at least 1 and at least its {length} resources; got {most}"
            )));
        }
        let mut seen = Self::new(capacity);
        for (resource, token) in entries {
            check_resource(&resource)?;
            if seen.index.contains_key(&resource) {
                return Err(bad(format!("the resource {resource:?} is listed twice")));
            }
            seen.remember(&resource, token, true)?;
        }
        seen.floor = floor;
        Ok(seen)
    }
}

impl Slot {
    fn position(&self, ticket: u64) -> Option<usize> {
        self.line.iter().position(|(other, _)| *other == ticket)
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("capacity", &self.capacity)
            .field("remembered", &self.index.len())
            .field("floor", &self.floor)
            .finish_non_exhaustive()
    }
}

/// The serialized form of a gate, least recently used resource first.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Gate", deny_unknown_fields)]
pub(super) struct Snapshot {
    capacity: usize,
    floor: Option<FencingToken>,
    seen: Vec<(Arc<str>, FencingToken)>,
}

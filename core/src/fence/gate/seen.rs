//! What a gate remembers: the greatest token of each resource, and who waits to write to it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::Waker;

use leasehold_engine::{Error, ErrorKind, FencingToken};
use serde::{Deserialize, Serialize};

use super::Gate;
use crate::fence::check_resource;

/// No slot.
const NONE: usize = usize::MAX;

/// Those who wait, first come first: each with its ticket, which no other ever has.
type Line = VecDeque<(u64, Waker)>;

/// A place in the line of a slot.
#[derive(Copy, Clone)]
pub(super) struct Place {
    slot: usize,
    ticket: u64,
}

/// A token that passed.
#[must_use = "the overtaken are to be woken"]
pub(super) struct Admitted {
    slot: usize,
    overtaken: Line,
}

impl Admitted {
    /// Those who waited with a smaller token learn that they are refused.
    pub(super) fn wake_overtaken(self) {
        for (_, waker) in self.overtaken {
            waker.wake();
        }
    }
}

/// A slot is given to another resource only while it is idle, so the number of one that is being
/// written to, or waited for, stays good.
pub(super) struct Seen {
    capacity: usize,
    /// No less than the token of whatever was forgotten.
    floor: Option<FencingToken>,
    index: HashMap<Arc<str>, usize>,
    slots: Vec<Slot>,
    /// Slots without a resource.
    free: Vec<usize>,
    /// The ends of the list of idle slots, by their last use.
    newest: usize,
    oldest: usize,
    tickets: u64,
}

struct Slot {
    resource: Arc<str>,
    highest: FencingToken,
    writing: bool,
    /// Whether a token was accepted, so that the resource is remembered once it is idle.
    kept: bool,
    /// All of them have the highest token: a greater one empties the line, a smaller one does not
    /// get into it.
    line: Line,
    newer: usize,
    older: usize,
}

impl Slot {
    /// Exactly the idle ones are in the list, and may be forgotten.
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

    /// The rule. What passes is noted at once, and is the one that was used last. The gate goes on
    /// remembering a new resource if `kept`, or once a write to it has written.
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

    /// Begins a write to what was admitted, if nobody else writes or waits.
    pub(super) fn begin(&mut self, admitted: &Admitted) -> Option<usize> {
        let slot = admitted.slot;
        if !self.slots[slot].is_idle() {
            return None;
        }
        self.unlink(slot);
        self.slots[slot].writing = true;
        Some(slot)
    }

    /// Gets into the line.
    pub(super) fn wait(&mut self, admitted: &Admitted, waker: &Waker) -> Result<Place, Error> {
        let (slot, ticket) = (admitted.slot, self.tickets);
        let line = &mut self.slots[slot].line;
        if line.len() >= Gate::MAX_WAITING {
            let message = format!("{} writes to the resource are waiting", line.len());
            return Err(Error::new(ErrorKind::Overloaded, message));
        }
        self.tickets += 1;
        line.push_back((ticket, waker.clone()));
        Ok(Place { slot, ticket })
    }

    /// The slot, if it is this place's turn; an error if a greater token came. What is retired is
    /// to be dropped without the lock, because that may run the code of others.
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

    /// Whether a greater token emptied the line and was then forgotten, because its request wrote
    /// nothing: the waiter has to be admitted again.
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

    /// Leaves the line; who is to be woken in its stead.
    pub(super) fn leave(&mut self, place: Place, retired: &mut Option<Waker>) -> Option<Waker> {
        let entry = &mut self.slots[place.slot];
        let position = entry.position(place.ticket)?;
        *retired = entry.line.remove(position).map(|(_, waker)| waker);
        if entry.writing || position > 0 {
            return None;
        }
        self.pass_on(place.slot)
    }

    /// Ends a write; who is to be woken. If nobody `wrote` to a new resource, the gate forgets it.
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
            // Idle slots are many, and keep no memory of a burst.
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

    /// A slot for a resource that is not remembered; at capacity, the idle one that was used
    /// longest ago.
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
                let message = format!("all {} resources are being written to", self.capacity);
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

    /// Into the list of the idle, as the newest.
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
        // What is in use is not in the list, and is the newest.
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
                "a gate for {most} resources cannot have seen {length}"
            )));
        }
        let mut seen = Self::new(capacity);
        for (resource, token) in entries {
            check_resource(&resource)?;
            if seen.index.contains_key(&resource) {
                return Err(bad(format!("the resource {resource:?} is there twice")));
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

/// All of it, as it is stored; the resource first that was used longest ago.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Gate", deny_unknown_fields)]
pub(super) struct Snapshot {
    capacity: usize,
    floor: Option<FencingToken>,
    seen: Vec<(Arc<str>, FencingToken)>,
}

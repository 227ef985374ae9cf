//! The state that the tasks of the page share.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use leasehold::Name;
use tokio::sync::{broadcast, watch};

use crate::lock_table::{LockTable, MOST_KNOWN};

/// The most pages that may be open at once.
const MOST_VIEWS: usize = 32;
/// How many messages a slow page may be behind.
const BEHIND: usize = 64;

/// A message to all pages.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) event: &'static str,
    /// JSON.
    pub(crate) data: Arc<str>,
}

pub(crate) struct State {
    table: Mutex<LockTable>,
    /// Locks that the server reports as changed.
    changed: Mutex<HashSet<Name>>,
    /// How often the server may have left changes unreported.
    gaps: AtomicU64,
    views: Mutex<HashMap<String, View>>,
    shown: watch::Sender<Arc<HashSet<Name>>>,
    messages: broadcast::Sender<Message>,
    /// JSON.
    findings: Mutex<Arc<str>>,
}

/// The locks that one page shows.
#[derive(Default, Debug)]
pub(crate) struct View {
    pub(crate) names: Vec<Name>,
    pub(crate) open: Option<Name>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            table: Mutex::new(LockTable::new()),
            changed: Mutex::default(),
            gaps: AtomicU64::new(0),
            views: Mutex::default(),
            shown: watch::Sender::default(),
            messages: broadcast::Sender::new(BEHIND),
            findings: Mutex::new("[]".into()),
        }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, LockTable> {
        lock(&self.table)
    }

    /// Returns the locks that the pages show, now and later.
    pub(crate) fn shown(&self) -> watch::Receiver<Arc<HashSet<Name>>> {
        self.shown.subscribe()
    }

    pub(crate) fn messages(&self) -> broadcast::Receiver<Message> {
        self.messages.subscribe()
    }

    pub(crate) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Acquire)
    }

    /// Notes that changes until now may not have been reported, so that a scan is needed.
    pub(crate) fn gap(&self) {
        self.gaps.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that these locks may have changed.
    pub(crate) fn changed(&self, names: impl Iterator<Item = Name>) {
        let mut changed = lock(&self.changed);
        for name in names {
            if changed.len() < MOST_KNOWN {
                changed.insert(name);
            }
        }
    }

    pub(crate) fn take_changed(&self) -> HashSet<Name> {
        std::mem::take(&mut lock(&self.changed))
    }

    /// Sends the pages what changed.
    pub(crate) fn send_changes(&self, now: Instant) {
        // Under the lock, so that a page which is just opened misses nothing.
        let mut table = self.table();
        if let Some(delta) = table.delta(now) {
            self.send("delta", delta);
        }
    }

    pub(crate) fn send_sum(&self, now: Instant) {
        let mut table = self.table();
        table.sample(now);
        if let Ok(sum) = serde_json::to_string(&table.sum(now)) {
            self.send("sum", sum);
        }
    }

    pub(crate) fn findings(&self) -> Arc<str> {
        lock(&self.findings).clone()
    }

    pub(crate) fn set_findings(&self, findings: String) {
        // Under the lock, as above.
        let _table = self.table();
        *lock(&self.findings) = findings.as_str().into();
        self.send("findings", findings);
    }

    fn send(&self, event: &'static str, data: String) {
        let data = data.into();
        let _ = self.messages.send(Message { event, data });
    }

    /// Adds a page. Returns `false` if there are too many.
    pub(crate) fn add_view(&self, id: &str) -> bool {
        let mut views = lock(&self.views);
        let room = views.len() < MOST_VIEWS;
        if room {
            views.insert(id.to_owned(), View::default());
        }
        room
    }

    pub(crate) fn has_view(&self, id: &str) -> bool {
        lock(&self.views).contains_key(id)
    }

    /// Sets what a page shows from now on; `None` closes it. Returns `false` if there is no such page.
    pub(crate) fn set_view(&self, id: &str, view: Option<View>) -> bool {
        let mut views = lock(&self.views);
        let known = views.remove(id).is_some();
        if !known {
            return false;
        }
        if let Some(view) = view {
            views.insert(id.to_owned(), view);
        }
        let opened = views.values().filter_map(|view| view.open.clone());
        let opened: HashSet<_> = opened.collect();
        let mut shown = opened.clone();
        {
            let mut table = self.table();
            // Rows have to be known already, so that no request makes the poller inspect anything else.
            let names = views.values().flat_map(|view| &view.names);
            shown.extend(names.filter(|name| table.knows(name)).cloned());
            table.open(opened);
        }
        self.shown.send_replace(Arc::new(shown));
        true
    }
}

/// Locks a mutex, even after a panic of its holder: the next inspections correct the state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! What the tasks of `leasehold serve` share.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use leasehold::Name;
use tokio::sync::{broadcast, watch};

use super::board::{Board, MOST_KNOWN};

/// Pages that are open at once, at the most.
const MOST_VIEWS: usize = 32;
/// What a page that is slow may be behind, in messages.
const BEHIND: usize = 64;

/// What all pages are sent.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) event: &'static str,
    /// The locks as JSON.
    pub(super) data: Arc<str>,
}

pub(super) struct State {
    board: Mutex<Board>,
    changed: Mutex<HashSet<Name>>,
    follows: AtomicBool,
    /// How often something may have changed that the server did not say.
    gaps: AtomicU64,
    views: Mutex<HashMap<String, View>>,
    seen: watch::Sender<Arc<HashSet<Name>>>,
    messages: broadcast::Sender<Message>,
    /// The findings of `doctor` as JSON.
    findings: Mutex<Arc<str>>,
}

/// What one page shows.
#[derive(Default, Debug)]
pub(super) struct View {
    pub(super) names: Vec<Name>,
    pub(super) open: Option<Name>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            board: Mutex::new(Board::new()),
            changed: Mutex::default(),
            follows: AtomicBool::new(false),
            gaps: AtomicU64::new(0),
            views: Mutex::default(),
            seen: watch::Sender::default(),
            messages: broadcast::Sender::new(BEHIND),
            findings: Mutex::new("[]".into()),
        }
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    pub(super) fn seen(&self) -> watch::Receiver<Arc<HashSet<Name>>> {
        self.seen.subscribe()
    }

    pub(super) fn messages(&self) -> broadcast::Receiver<Message> {
        self.messages.subscribe()
    }

    pub(super) fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    pub(super) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Acquire)
    }

    /// What changed until now may not have been said: so a walk is needed.
    pub(super) fn gap(&self) {
        self.gaps.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn set_follows(&self, follows: bool) {
        self.follows.store(follows, Ordering::Relaxed);
        self.board().follows = follows;
    }

    /// The server says that these may have changed.
    pub(super) fn changed(&self, names: impl Iterator<Item = Name>) {
        let mut changed = lock(&self.changed);
        for name in names {
            if changed.len() < MOST_KNOWN {
                changed.insert(name);
            }
        }
    }

    pub(super) fn take_changed(&self) -> HashSet<Name> {
        std::mem::take(&mut lock(&self.changed))
    }

    /// Sends the pages what changed.
    pub(super) fn send_changes(&self, now: Instant) {
        // Under the lock, so that a page which is just opened misses nothing.
        let mut board = self.board();
        if let Some(delta) = board.delta(now) {
            self.send("delta", delta);
        }
    }

    pub(super) fn send_sum(&self, now: Instant) {
        let mut board = self.board();
        board.sample(now);
        if let Ok(sum) = serde_json::to_string(&board.sum(now)) {
            self.send("sum", sum);
        }
    }

    pub(super) fn findings(&self) -> Arc<str> {
        lock(&self.findings).clone()
    }

    pub(super) fn set_findings(&self, findings: String) {
        // Under the lock, as above.
        let _board = self.board();
        *lock(&self.findings) = findings.as_str().into();
        self.send("findings", findings);
    }

    fn send(&self, event: &'static str, data: String) {
        let data = data.into();
        let _ = self.messages.send(Message { event, data });
    }

    /// Takes up a page; `false` if there are too many.
    pub(super) fn add_view(&self, id: &str) -> bool {
        let mut views = lock(&self.views);
        let room = views.len() < MOST_VIEWS;
        if room {
            views.insert(id.to_owned(), View::default());
        }
        room
    }

    pub(super) fn has_view(&self, id: &str) -> bool {
        lock(&self.views).contains_key(id)
    }

    /// What a page shows from now on; nothing if it is closed. `false` if there is no such page.
    pub(super) fn set_view(&self, id: &str, view: Option<View>) -> bool {
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
        let mut seen = opened.clone();
        {
            let mut board = self.board();
            // What is only in a table has to be known already: so nobody can make it look at anything else.
            let names = views.values().flat_map(|view| &view.names);
            seen.extend(names.filter(|name| board.knows(name)).cloned());
            board.open(opened);
        }
        self.seen.send_replace(Arc::new(seen));
        true
    }
}

/// What a panic has left is as good as any: it is looked at again.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

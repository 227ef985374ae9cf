//! The servers of a locker: one store, or the members of a quorum.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_engine::engine::{ServerId, check_members, majority, too_few};
use leasehold_engine::protocol::ClientId;
use leasehold_engine::{Error, ErrorKind, Finding};

use super::sink::ServerSink;
use super::store::Store;
use super::{Driver, Input};
use crate::adapter::fred::Dial;
use crate::adapter::is_away;
use crate::clock::Clock;
use crate::url::Kind;

pub(crate) struct Stores(Vec<Store>);

impl Stores {
    /// A single store.
    pub(crate) fn one(store: Store) -> Self {
        Self(vec![store])
    }

    /// Connects to the members of a quorum, of which a majority must be up.
    pub(crate) async fn quorum(urls: &[String], dial: Dial<'_>) -> Result<Self, Error> {
        check_members(urls.len())?;
        for (at, url) in urls.iter().enumerate() {
            if dial.url(url).is_ok_and(|url| url.kind == Kind::Cluster) {
                let message = "a cluster cannot be a member of a quorum; give standalone servers";
                return Err(Error::new(ErrorKind::Unsupported, message).of(place(at)));
            }
        }
        let connecting = urls.iter().map(|url| Store::connect(url, dial));
        let connected = futures::future::join_all(connecting).await;
        let (mut stores, mut missing) = (Vec::new(), Vec::new());
        for ((at, url), connected) in urls.iter().enumerate().zip(connected) {
            let named = |error: Error| error.of(place(at));
            let store = match connected {
                Err(error) if is_away(&error) => {
                    missing.push((at, error));
                    // The server may come up later.
                    Store::connect_lazily(url, dial)
                }
                connected => connected,
            };
            stores.push(store.map_err(named)?);
        }
        let needed = majority(urls.len());
        if missing.len() > urls.len() - needed {
            return Err(too_few((needed, urls.len()), missing.into_iter()));
        }
        let quorum = Self(stores);
        quorum.check()?;
        Ok(quorum)
    }

    /// Checks that the members are independent.
    fn check(&self) -> Result<(), Error> {
        let remote = self.0.iter().filter(|store| store.is_remote()).count();
        if remote > 0 && remote < self.0.len() {
            let rule = "must have servers that are all Redis, or all in memory";
            return Err(Error::bad_option("quorum", rule));
        }
        let mut seen = BTreeMap::new();
        for (at, store) in self.0.iter().enumerate() {
            let identity = store.identity();
            if let Some(first) = identity.and_then(|identity| seen.insert(identity, at)) {
                let (first, second) = (place(first), place(at));
                let rule = format!("must list each server once: {second} is {first}");
                return Err(Error::bad_option("quorum", rule));
            }
        }
        Ok(())
    }

    /// Returns the number of members, or `None` for a single store.
    pub(super) fn members(&self) -> Option<usize> {
        Some(self.0.len()).filter(|len| *len > 1)
    }

    /// Returns the store of a server. With a single store that is the store of all its servers.
    pub(super) fn of(&self, server: ServerId) -> &Store {
        let at = usize::try_from(server.0).unwrap_or(usize::MAX);
        self.0.get(at).unwrap_or(&self.0[0])
    }

    fn each(&self) -> impl Iterator<Item = (ServerId, &Store)> {
        (0..).map(ServerId).zip(&self.0)
    }

    pub(super) fn clock(&self) -> Clock {
        self.0[0].clock()
    }

    /// Returns the findings so far.
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.0.iter().flat_map(Store::findings).collect()
    }

    /// Returns true if a call takes time, so that waiting to merge calls pays.
    pub(super) fn are_remote(&self) -> bool {
        self.0[0].is_remote()
    }

    /// Returns true for a cluster, whose servers hold a part of the locks each.
    pub(super) fn is_clustered(&self) -> bool {
        self.0[0].is_cluster()
    }

    /// Returns true if requests without a key can be sent to a given server.
    pub(crate) fn are_addressed(&self) -> bool {
        self.0[0].is_addressed()
    }

    /// Returns the inputs that the engine starts with.
    pub(super) fn opening(&self) -> Vec<Input> {
        let inputs = self.each().map(|(server, store)| store.opening(server));
        inputs.flatten().collect()
    }

    /// Returns the cursors at which a walk over all locks begins.
    pub(super) fn walks(&self) -> Result<Vec<u64>, Error> {
        let servers = self.0[0].walked()?;
        Ok(servers.into_iter().map(ServerId::walk).collect())
    }

    pub(super) fn watch_links(&self, driver: &Arc<Driver>) {
        for (server, store) in self.each() {
            store.watch_link(driver, ServerSink::new(driver, server));
        }
    }

    pub(super) fn abandon(&self, client: ClientId) {
        self.0.iter().for_each(|store| store.abandon(client));
    }

    pub(super) async fn close(&self, client: ClientId) {
        let closing = self.0.iter().map(|store| store.close(client));
        futures::future::join_all(closing).await;
    }
}

fn place(at: usize) -> String {
    format!("server {} of the quorum", at + 1)
}

//! Keeps the slot map up to date.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_engine::{Error, ErrorKind};

use super::{Cluster, Member, nobody};
use crate::adapter::Adapter;
use crate::adapter::fred::first_of;
use crate::adapter::slots::Map;
use crate::clock::Clock;
use crate::driver::Input;

/// The first pause between attempts while the map is incomplete or a node is down. It doubles up to the
/// longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The timeout of each node.
const LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn keep(cluster: Arc<Cluster>) {
    let mut pause = FIRST_PAUSE;
    if cluster.is_settled() {
        cluster.doubt.notified().await;
    }
    loop {
        let found = cluster.look().await;
        if cluster.driver().is_none() {
            return;
        }
        match found {
            Ok(map) => cluster.take(map),
            Err(error) => {
                tracing::debug!(
                    target: "leasehold",
                    %error,
                    "the cluster's slot map could not be read"
                );
                cluster.miss(error);
            }
        }
        // A limit on the rate, however often the map is doubted.
        Clock::Machine.sleep(FIRST_PAUSE).await;
        if cluster.is_settled() {
            pause = FIRST_PAUSE;
            cluster.doubt.notified().await;
        } else {
            tokio::select! {
                () = cluster.doubt.notified() => {}
                () = Clock::Machine.sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Cluster {
    /// Returns true if a reachable node serves each slot.
    fn is_settled(&self) -> bool {
        let state = self.state();
        let is_up = |node| {
            let server = state.numbers.get(node);
            let member = server.and_then(|server| state.members.get(server));
            member.is_some_and(|member| member.link.is_up())
        };
        state.map.gaps().is_empty() && state.map.nodes().into_iter().all(is_up)
    }

    /// Reads the map from a member that is up; if there is none, from the seed nodes.
    async fn look(&self) -> Result<Map, Error> {
        let mut up = self.members();
        up.retain(|member| member.link.is_up());
        if up.is_empty() {
            let (_, client, map) = self.nodes.find().await?;
            client.close().await;
            return Ok(map);
        }
        // Take turns, so that no member is always asked first.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let first = turn % up.len();
        up.rotate_left(first);
        let map = first_of(up.into_iter().map(|member| async move {
            let asked = tokio::time::timeout(LIMIT, member.client.ask_for_map(&member.node));
            let late = |_| Error::new(ErrorKind::Timeout, "a node of the cluster did not answer");
            asked.await.map_err(late)?
        }));
        map.await
    }

    /// Reports that no node could be asked, if there is no map yet.
    fn miss(&self, error: Error) {
        let knows_nothing = self.state().map.0.is_empty();
        if let Some(driver) = self.driver().filter(|_| knows_nothing) {
            driver.feed(nobody(error));
        }
    }

    /// Applies a new map.
    fn take(&self, map: Map) {
        let Some(driver) = self.driver() else { return };
        for node in map.nodes() {
            self.server_at(node);
        }
        let (routes, gone) = {
            let state = &mut *self.state();
            let is_new = state.map != map || std::mem::take(&mut state.is_amended);
            state.map = map;
            // Keep a node that is a replica by now: a slot may be migrating to it.
            let is_gone = |member: &Member| !member.link.is_up() && !state.map.has(&member.node);
            let gone: Vec<_> = state
                .members
                .values()
                .filter(|member| is_gone(member))
                .cloned()
                .collect();
            for member in &gone {
                state.members.remove(&member.server);
                state.numbers.remove(&member.node);
            }
            (is_new.then(|| state.routes()), gone)
        };
        for route in routes.into_iter().flatten() {
            driver.feed(route);
        }
        for member in gone {
            let error = Error::new(
                ErrorKind::Unavailable,
                "the store cannot be reached: the node has left the cluster",
            );
            let server = member.server;
            driver.feed(Input::Disconnected { server, error });
            driver.runtime.spawn(async move {
                member.remote.close().await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::fred::{Dial, Nodes};
    use crate::adapter::slots::Stretch;
    use leasehold_engine::engine::ServerId;
    use leasehold_engine::protocol::LockKey;

    fn cluster() -> Cluster {
        let dial = Dial {
            tls: None,
            timeout: LIMIT,
        };
        let url = dial.url("redis-cluster://a:1,b:2").expect("valid");
        let nodes = Nodes::new(url, dial).expect("valid");
        Cluster::connect_lazily(nodes).expect("valid")
    }

    /// Makes the two nodes serve the slots up to this one.
    fn serve(cluster: &Cluster, last: u16) {
        let [one, other] = &*cluster.nodes.seeds else {
            panic!("there are two nodes");
        };
        let map = [(one, 0, 99), (other, 100, last)];
        let map = map.map(|(node, first, last)| Stretch {
            first,
            last,
            node: node.clone(),
        });
        cluster.state().map = Map::new(map.to_vec());
    }

    /// Catches a map that is not read again although one of its nodes is down: nobody would report that a
    /// replica has taken over.
    #[tokio::test]
    async fn a_map_is_settled_once_all_its_nodes_are_up() {
        let cluster = cluster();
        let last = LockKey::SLOTS - 1;
        serve(&cluster, last);
        assert!(!cluster.is_settled(), "no node is known");
        for node in &cluster.nodes.seeds {
            assert!(!cluster.is_settled(), "{node} is not known");
            let connected = cluster.connect_node_lazily(node).expect("valid");
            let state = &mut *cluster.state();
            let added = cluster.add(state, node, connected, true);
            added.expect("there is room");
        }
        assert!(cluster.is_settled());
        serve(&cluster, last - 1);
        assert!(!cluster.is_settled(), "no node serves the last slot");
        serve(&cluster, last);
        for number in [1, 2] {
            let server = ServerId(number);
            let member = cluster.member(server).expect("it was added");
            let error = Error::no_answer();
            member.link.hear(&Input::Disconnected { server, error });
            assert!(!cluster.is_settled(), "{} is down", member.node);
            member.link.hear(&Input::Connected { server });
            assert!(cluster.is_settled());
        }
    }
}

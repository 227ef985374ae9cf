//! The slot map of a cluster, and its redirections.

use leasehold_engine::protocol::LockKey;

use crate::url::Node;

/// The most masters of a cluster that this crate connects to. Redis recommends at most 1,000.
pub(crate) const MOST_NODES: usize = 1_024;

/// The ranges of slots that are served, in order, each with its master.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Map(pub(crate) Vec<Stretch>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) node: Node,
}

impl Map {
    pub(crate) fn new(mut stretches: Vec<Stretch>) -> Self {
        stretches.sort_by_key(|stretch| stretch.first);
        Self(stretches)
    }

    /// Returns the masters, each once.
    pub(crate) fn nodes(&self) -> Vec<&Node> {
        let mut nodes: Vec<_> = self.0.iter().map(|stretch| &stretch.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.truncate(MOST_NODES);
        nodes
    }

    pub(crate) fn has(&self, node: &Node) -> bool {
        self.0.iter().any(|stretch| stretch.node == *node)
    }

    /// Returns the ranges that no master serves.
    pub(crate) fn gaps(&self) -> Vec<(u16, u16)> {
        let (mut gaps, mut next) = (Vec::new(), 0);
        for stretch in &self.0 {
            if stretch.first > next {
                gaps.push((next, stretch.first - 1));
            }
            next = next.max(stretch.last + 1);
        }
        if next < LockKey::SLOTS {
            gaps.push((next, LockKey::SLOTS - 1));
        }
        gaps
    }
}

impl Stretch {
    /// Reads a range as the node at address `asked` reports it. Returns `None` if it is invalid.
    pub(crate) fn new(
        (first, last): (u16, u16),
        (host, port): (&str, u16),
        asked: &Node,
    ) -> Option<Self> {
        let node = node_of(host, port, asked)?;
        (first <= last && last < LockKey::SLOTS).then_some(Self { first, last, node })
    }
}

fn node_of(host: &str, port: u16, asked: &Node) -> Option<Node> {
    let host = match host {
        "" => &asked.host,
        // The node does not know its own host.
        "?" => return None,
        host => host,
    };
    (port > 0).then(|| Node {
        host: host.to_owned(),
        port,
    })
}

/// A redirection to another node.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Redirection {
    pub(crate) slot: u16,
    pub(crate) to: Node,
    /// True for `ASK`: the slot is being migrated, and only this request is redirected.
    pub(crate) once: bool,
}

impl Redirection {
    /// Reads `MOVED slot host:port` or `ASK slot host:port`, as the node at address `asked` said it.
    pub(crate) fn read(said: &str, asked: &Node) -> Option<Self> {
        let mut words = said.split(' ');
        let once = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok()?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let to = node_of(host, port.parse().ok()?, asked)?;
        (slot < LockKey::SLOTS).then_some(Self { slot, to, once })
    }
}

/// Returns true for errors that say that the slot map is out of date.
pub(crate) fn is_about_slots(said: &str) -> bool {
    let code = said.split(' ').next().unwrap_or_default();
    matches!(code, "MOVED" | "ASK" | "CLUSTERDOWN")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16) -> Node {
        let host = host.into();
        Node { host, port }
    }

    #[test]
    fn redirections_are_read_as_servers_write_them() {
        let read = |said| Redirection::read(said, &node("asked", 1));
        let expected = |once, host| {
            let (slot, to) = (3_999, node(host, 6_381));
            Some(Redirection { slot, to, once })
        };
        assert_eq!(
            read("MOVED 3999 127.0.0.1:6381"),
            expected(false, "127.0.0.1")
        );
        assert_eq!(read("ASK 3999 ::1:6381"), expected(true, "::1"));
        assert_eq!(read("MOVED 3999 :6381"), expected(false, "asked"));
        for said in [
            "MOVED",
            "MOVED 3999",
            "MOVED 16384 h:1",
            "MOVED x h:1",
            "ASK 1 h:65536",
            "ASK 1 ?:1",
            "ASK 1 h:0",
            "TRYAGAIN Multiple keys request during rehashing of slot",
        ] {
            assert_eq!(read(said), None, "{said}");
        }
    }
}

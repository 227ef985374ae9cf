//! What the nodes of a cluster say of who serves which slots.

use ::fred::clients::Client;
use ::fred::error::Error as FredError;
use ::fred::interfaces::ClientLike;
use ::fred::types::{ClusterHash, CustomCommand, Value};

use crate::driver::url::Node;
use crate::error::{Error, ErrorKind};
use crate::protocol::LockKey;

/// More masters than a cluster is made for.
pub(super) const MOST_NODES: usize = 1_024;

/// The stretches of slots that are served, in order, and by whom.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Map(pub(super) Vec<Stretch>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stretch {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) node: Node,
}

impl Map {
    /// Asks a node, which was reached by this address.
    pub(super) async fn ask(client: &Client, asked: &Node) -> Result<Self, FredError> {
        let command = CustomCommand::new_static("CLUSTER", ClusterHash::FirstKey, false);
        let said: Value = client.custom(command, vec!["SLOTS"]).await?;
        Ok(Self::read(&said, asked))
    }

    /// What cannot be read is left out.
    fn read(said: &Value, asked: &Node) -> Self {
        let Value::Array(said) = said else {
            return Self::default();
        };
        let mut stretches: Vec<_> = said
            .iter()
            .take(usize::from(LockKey::SLOTS))
            .filter_map(|stretch| Stretch::read(stretch, asked))
            .collect();
        stretches.sort_by_key(|stretch| stretch.first);
        Self(stretches)
    }

    /// The masters, each once.
    pub(super) fn nodes(&self) -> Vec<&Node> {
        let mut nodes: Vec<_> = self.0.iter().map(|stretch| &stretch.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.truncate(MOST_NODES);
        nodes
    }

    pub(super) fn has(&self, node: &Node) -> bool {
        self.0.iter().any(|stretch| stretch.node == *node)
    }

    /// The stretches that nobody serves.
    pub(super) fn gaps(&self) -> Vec<(u16, u16)> {
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
    /// Of `[first, last, [host, port, …], replicas…]`.
    fn read(said: &Value, asked: &Node) -> Option<Self> {
        let Value::Array(said) = said else {
            return None;
        };
        let slot = |at: usize| u16::try_from(said.get(at)?.as_i64()?).ok();
        let (first, last) = (slot(0)?, slot(1)?);
        let Value::Array(node) = said.get(2)? else {
            return None;
        };
        let host = match node.first()? {
            // It does not say, and means the address that it was asked by.
            Value::Null => String::new(),
            host => host.as_string()?,
        };
        let port = u16::try_from(node.get(1)?.as_i64()?).ok()?;
        let node = node_of(&host, port, asked)?;
        (first <= last && last < LockKey::SLOTS).then_some(Self { first, last, node })
    }
}

fn node_of(host: &str, port: u16, asked: &Node) -> Option<Node> {
    let host = match host {
        "" => &asked.host,
        // It does not know.
        "?" => return None,
        host => host,
    };
    (port > 0).then(|| Node {
        host: host.to_owned(),
        port,
    })
}

/// Where else to ask.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Redirection {
    pub(super) slot: u16,
    pub(super) to: Node,
    /// For this once, because the slot is only on its way there.
    pub(super) once: bool,
}

impl Redirection {
    /// Of `MOVED slot host:port` and `ASK slot host:port`, as the node said that was asked by this address.
    pub(super) fn read(said: &str, asked: &Node) -> Option<Self> {
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

/// What a node that refused to say who serves which slots means by that.
pub(super) fn no_map(error: &FredError, converted: Error) -> Error {
    if error.details().contains("cluster support disabled") {
        let message = "the server is no node of a cluster; connect to redis://";
        return Error::new(ErrorKind::Config, message);
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16) -> Node {
        let host = host.into();
        Node { host, port }
    }

    fn stretch(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = Value::Array(vec![host, port.into(), "id".into(), Value::Array(vec![])]);
        Value::Array(vec![first.into(), last.into(), node])
    }

    /// Catches a slot that stays with whoever had it, because the node's address is said in another way.
    #[test]
    fn a_map_is_read_as_servers_write_it() {
        let said = Value::Array(vec![
            stretch(10_000, 16_383, "::1".into(), 7_002),
            stretch(0, 99, Value::Null, 7_000),
            stretch(100, 200, "".into(), 7_001),
            // None of these can be.
            stretch(300, 400, "?".into(), 7_001),
            stretch(300, 16_384, "h".into(), 7_001),
            stretch(300, 299, "h".into(), 7_001),
            stretch(300, 400, "h".into(), 0),
            Value::Array(vec![]),
            Value::Null,
        ]);
        let map = Map::read(&said, &node("seed", 1));
        let expected = [
            (0, 99, node("seed", 7_000)),
            (100, 200, node("seed", 7_001)),
            (10_000, 16_383, node("::1", 7_002)),
        ];
        let stretches = expected.map(|(first, last, node)| Stretch { first, last, node });
        assert_eq!(map.0, stretches);
        assert_eq!(map.gaps(), [(201, 9_999)]);
        assert_eq!(map.nodes().len(), 3);
        assert_eq!(Map::default().gaps(), [(0, 16_383)]);
        assert_eq!(Map::read(&Value::Null, &node("h", 1)), Map::default());
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

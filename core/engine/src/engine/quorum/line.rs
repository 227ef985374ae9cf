//! Selects the servers of a quorum at which the line of waiters for a name stands.
//!
//! All lockers rank the servers for a name by rendezvous hashing over the servers'
//! [incarnations](Incarnation), which every locker sees alike, whatever its URLs and their order. So lockers
//! agree on the order of servers for a name, and different names have their lines at different servers.

use crate::engine::pace::mix;
use crate::protocol::{Incarnation, LockKey};

/// The largest number of servers of a quorum.
const MOST: usize = 7;

/// The servers where a waiter for a name stands in line, best first.
pub(super) type Lines = [Option<usize>; MOST / 2 + 1];

/// The servers of a quorum in the order in which a name prefers them.
#[derive(Copy, Clone, Debug)]
pub(super) struct Order {
    /// Indexes beyond the last server are 0.
    places: [usize; MOST],
    len: usize,
    /// True if the incarnation of every server is known, so that all lockers have this order.
    is_agreed: bool,
}

impl Order {
    /// Ranks servers by their incarnations. Servers with an unknown incarnation come last.
    pub(super) fn new(key: &LockKey, servers: impl Iterator<Item = Option<Incarnation>>) -> Self {
        let (mut ranks, mut len) = ([(false, 0, 0); MOST], 0);
        // The sort of the standard library would add much code to the browser build.
        for id in servers.take(MOST) {
            let rank = (id.is_none(), id.map_or(0, |id| weight(key, id)), len);
            let mut place = len;
            while place > 0 && ranks[place - 1] > rank {
                ranks[place] = ranks[place - 1];
                place -= 1;
            }
            ranks[place] = rank;
            len += 1;
        }
        Self {
            places: ranks.map(|(.., at)| at),
            len,
            is_agreed: !ranks.iter().any(|(is_unknown, ..)| *is_unknown),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.places.into_iter().take(self.len)
    }

    pub(super) fn is_agreed(&self) -> bool {
        self.is_agreed
    }

    pub(super) fn first(&self) -> usize {
        self.places[0]
    }

    /// Returns where a waiter stands in line: at the first servers that make a majority, as far as they are
    /// usable. So no locker gets a majority of the other servers, and dead clients that hold a minority leave
    /// one of these free. If none is usable, or lockers may not agree on the order, returns only the first
    /// usable server of all.
    pub(super) fn lines(&self, may_be_used: impl Fn(usize) -> bool) -> Lines {
        let most = if self.is_agreed { self.len / 2 + 1 } else { 0 };
        let usable = self.iter().take(most).filter(|at| may_be_used(*at));
        let mut lines = Lines::default();
        for (line, at) in lines.iter_mut().zip(usable) {
            *line = Some(at);
        }
        if lines[0].is_none() {
            lines[0] = self.iter().find(|at| may_be_used(*at));
        }
        lines
    }
}

/// Returns how much a name prefers a server; less is better.
fn weight(key: &LockKey, id: Incarnation) -> u64 {
    // FNV-1a (Fowler, Noll and Vo).
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = key.lock().bytes().chain(id.0.to_be_bytes());
    mix(bytes.fold(0xcbf2_9ce4_8422_2325, fold))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    fn key(name: &str) -> LockKey {
        LockKey::new("test", &Name::new(name).expect("valid")).expect("valid")
    }

    fn order(name: &str, ids: &[u128]) -> Vec<u128> {
        let servers = ids.iter().map(|id| Some(Incarnation(*id)));
        let order = Order::new(&key(name), servers);
        order.iter().map(|at| ids[at]).collect()
    }

    /// Catches lockers whose waiters line up at different servers because they list the servers differently.
    #[test]
    fn the_order_depends_on_incarnations_and_not_on_positions() {
        for name in ["a", "b", "orders/42"] {
            let all = order(name, &[11, 22, 33, 44, 55]);
            assert_eq!(order(name, &[55, 33, 11, 44, 22]), all);
            // Without the first server, the others keep their order.
            let rest: Vec<_> = all[1..].iter().rev().copied().collect();
            assert_eq!(order(name, &rest), all[1..]);
        }
    }

    #[test]
    fn lines_of_many_names_spread_over_the_servers() {
        let ids = [3 << 64 | 1, 3 << 64 | 2, 7 << 64 | 1];
        let mut firsts = [0; 3];
        for name in 0..3_000 {
            let first = order(&name.to_string(), &ids)[0];
            let at = ids
                .iter()
                .position(|id| *id == first)
                .expect("the first server is one of the three");
            firsts[at] += 1;
        }
        assert!(firsts.iter().all(|count| *count > 800), "{firsts:?}");
    }

    #[test]
    fn a_line_moves_on_from_servers_that_may_not_be_used() {
        let servers = [1, 2, 3].map(|id| Some(Incarnation(id)));
        let order = Order::new(&key("a"), servers.into_iter());
        let all: Vec<_> = order.iter().collect();
        let lines = |may_be_used: &dyn Fn(usize) -> bool| -> Vec<_> {
            order.lines(may_be_used).into_iter().flatten().collect()
        };
        assert_eq!(lines(&|_| true), all[..2]);
        assert_eq!(lines(&|at| at != all[0]), all[1..2]);
        assert_eq!(lines(&|at| at != all[1]), all[..1]);
        assert_eq!(lines(&|at| at == all[2]), all[2..]);
        assert!(lines(&|_| false).is_empty());
    }

    /// Catches a locker that gets a majority of servers where no waiters stand.
    #[test]
    fn there_are_lines_at_a_majority() {
        for (servers, majority) in [(3, 2), (4, 3), (5, 3), (7, 4)] {
            let servers = (0..servers).map(|id| Some(Incarnation(id)));
            let lines = Order::new(&key("a"), servers).lines(|_| true);
            assert_eq!(lines.into_iter().flatten().count(), majority);
        }
    }

    /// Catches a turn at a "second" server that other lockers do not rank second.
    #[test]
    fn unless_every_server_is_known_there_is_one_line() {
        let servers = [None, Some(Incarnation(2)), Some(Incarnation(3))];
        let order = Order::new(&key("a"), servers.into_iter());
        assert_eq!(order.iter().last(), Some(0));
        let lines = order.lines(|_| true);
        assert_eq!(
            lines.into_iter().flatten().collect::<Vec<_>>(),
            [order.first()]
        );
    }
}

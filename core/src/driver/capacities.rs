//! Names whose capacity at the store differs from the program's.

use std::collections::BTreeMap;

use leasehold_engine::{Finding, LeaseEvent, Name};

/// The most names that are remembered; the findings of further ones are only events and traces.
const MOST: usize = 64;

/// The names whose capacity differed when they were last acquired, each with the store's capacity and the wanted one.
#[derive(Default)]
pub(super) struct Capacities(BTreeMap<Name, (u32, u32)>);

impl Capacities {
    pub(super) fn follow(&mut self, event: &LeaseEvent) {
        let LeaseEvent::CapacityDiffers {
            name,
            capacity,
            wanted,
            ..
        } = event
        else {
            return;
        };
        if self.0.len() < MOST || self.0.contains_key(name) {
            self.0.insert(name.clone(), (*capacity, *wanted));
        }
    }

    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> {
        self.0
            .iter()
            .map(|(name, (capacity, wanted))| Finding::Capacity {
                name: name.clone(),
                capacity: *capacity,
                wanted: *wanted,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_engine::FencingToken;

    /// Catches a program with many names whose findings grow without bound, and one whose finding is out of date.
    #[test]
    fn the_last_difference_of_a_bounded_number_of_names_is_found() {
        let mut capacities = Capacities::default();
        for (number, capacity) in (0..100).map(|number| (number, 3)).chain([(0, 4)]) {
            capacities.follow(&LeaseEvent::CapacityDiffers {
                name: Name::new(format!("name-{number}")).expect("a valid name"),
                token: FencingToken::MAX,
                capacity,
                wanted: 5,
            });
        }
        let found: Vec<_> = capacities.findings().collect();
        let first = Finding::Capacity {
            name: Name::new("name-0").expect("a valid name"),
            capacity: 4,
            wanted: 5,
        };
        assert_eq!((found.len(), &found[0]), (MOST, &first));
        assert!(
            first
                .to_string()
                .contains("\"name-0\" is 4, but this program asks for 5"),
            "{first}"
        );
    }
}

//! A first-in, first-out queue.

use std::ops::{Index, IndexMut};

/// A small subset of the standard library's `VecDeque`. A browser loads the code of a queue for each item
/// type, so this has only what the engine needs.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// The items. Slots before `first` are empty.
    items: Vec<Option<T>>,
    /// The number of empty slots at the front.
    first: usize,
}

/// The capacity that an empty queue keeps.
const MOST_KEPT: usize = 256;

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self {
            items: Vec::new(),
            first: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len() - self.first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push_back(&mut self, item: T) {
        // Compacts instead of growing if that frees more than half of the slots.
        if self.items.len() == self.items.capacity() && self.first > self.items.len() / 2 {
            self.retain(&|_| true);
        }
        self.items.push(Some(item));
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let item = self.items.get_mut(self.first)?.take();
        self.first += 1;
        if self.is_empty() {
            self.items.clear();
            // Returns a burst's memory.
            self.items.shrink_to(MOST_KEPT);
            self.first = 0;
        }
        item
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.iter().next()
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.items.get_mut(self.first.checked_add(place)?)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items[self.first..].iter().filter_map(Option::as_ref)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items[self.first..]
            .iter_mut()
            .filter_map(Option::as_mut)
    }

    pub(super) fn retain(&mut self, keep: &dyn Fn(&T) -> bool) {
        self.items.retain(|item| item.as_ref().is_some_and(keep));
        self.first = 0;
    }

    pub(super) fn swap(&mut self, one: usize, other: usize) {
        self.items.swap(self.first + one, self.first + other);
    }

    /// Returns the position of the item with this key. The items must be sorted by their keys.
    pub(super) fn binary_search_by_key<K: Ord>(
        &self,
        key: &K,
        of: impl Fn(&T) -> K,
    ) -> Option<usize> {
        let order = |item: &Option<T>| item.as_ref().map(&of).as_ref().cmp(&Some(key));
        self.items[self.first..].binary_search_by(order).ok()
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Index<usize> for Queue<T> {
    type Output = T;

    fn index(&self, place: usize) -> &T {
        let item = self.items[self.first + place].as_ref();
        item.expect("items are only removed at the front")
    }
}

impl<T> IndexMut<usize> for Queue<T> {
    fn index_mut(&mut self, place: usize) -> &mut T {
        self.get_mut(place).expect("the place is within the queue")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn a_queue_does_what_a_deque_does() {
        let (mut queue, mut real) = (Queue::new(), VecDeque::new());
        let mut random = 3_u64;
        for round in 0..100_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            match random >> 61 {
                0..=3 => {
                    queue.push_back(round);
                    real.push_back(round);
                }
                4..=6 => assert_eq!(queue.pop_front(), real.pop_front()),
                _ if (random >> 50).is_multiple_of(50) => {
                    queue.retain(&|item| item % 3 > 0);
                    real.retain(|item| item % 3 > 0);
                }
                _ => {
                    let place = usize::try_from((random >> 40) % 50).expect("it is below 50");
                    assert_eq!(queue.get_mut(place), real.get_mut(place));
                    let found = queue.binary_search_by_key(&(round / 2), |item| *item);
                    assert_eq!(found, real.binary_search(&(round / 2)).ok());
                }
            }
            assert_eq!((queue.len(), queue.front()), (real.len(), real.front()));
            assert_eq!(queue.is_empty(), real.is_empty());
        }
        assert!(queue.iter().eq(&real) && queue.len() > 1);
        queue.swap(0, 1);
        assert_eq!((queue[0], queue[1]), (real[1], real[0]));
    }

    /// Catches memory that grows with the number of items ever queued.
    #[test]
    fn removed_items_need_no_memory() {
        let mut queue = Queue::new();
        queue.push_back(0);
        for item in 0..100_000 {
            queue.push_back(item);
            queue.pop_front();
        }
        assert!(queue.items.capacity() <= 8, "{}", queue.items.capacity());
    }
}

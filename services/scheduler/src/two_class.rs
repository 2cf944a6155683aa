//! The queue of two classes without flows, until all of its users have flows.

use std::collections::VecDeque;

use crate::fair_queue::{BATCH_TURN, Priority};

/// Waiting work of both classes. The work of each class is in the order of its arrival.
#[derive(Debug)]
pub struct TwoClassQueue<T> {
    interactive: VecDeque<T>,
    batch: VecDeque<T>,
    /// Turns so far, modulo [`BATCH_TURN`].
    turn: usize,
}

impl<T> Default for TwoClassQueue<T> {
    fn default() -> Self {
        Self { interactive: VecDeque::new(), batch: VecDeque::new(), turn: 0 }
    }
}

impl<T> TwoClassQueue<T> {
    fn class(&self, priority: Priority) -> &VecDeque<T> {
        match priority {
            Priority::Interactive => &self.interactive,
            Priority::Batch => &self.batch,
        }
    }

    fn class_mut(&mut self, priority: Priority) -> &mut VecDeque<T> {
        match priority {
            Priority::Interactive => &mut self.interactive,
            Priority::Batch => &mut self.batch,
        }
    }

    /// Adds `work`.
    pub fn push(&mut self, work: T, priority: Priority) {
        self.class_mut(priority).push_back(work);
    }

    /// Adds `work`. If the queue of its class would have to grow, first removes the work for which `is_wanted` is
    /// false: a pass over a long queue is expensive, but so is growing it.
    pub fn push_after_cleaning(
        &mut self,
        work: T,
        priority: Priority,
        is_wanted: impl FnMut(&T) -> bool,
    ) {
        let class = self.class_mut(priority);
        if class.len() == class.capacity() {
            class.retain(is_wanted);
        }
        class.push_back(work);
    }

    /// Removes and returns the work whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        self.turn = (self.turn + 1) % BATCH_TURN;
        match self.turn {
            0 => self.batch.pop_front().or_else(|| self.interactive.pop_front()),
            _ => self.interactive.pop_front().or_else(|| self.batch.pop_front()),
        }
    }

    /// Returns how much work of both classes waits.
    pub fn len(&self) -> usize {
        self.interactive.len() + self.batch.len()
    }

    /// Returns how much work of one class waits.
    pub fn len_of(&self, priority: Priority) -> usize {
        self.class(priority).len()
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.interactive.is_empty() && self.batch.is_empty()
    }
}

impl<T> IntoIterator for TwoClassQueue<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<
        std::collections::vec_deque::IntoIter<T>,
        std::collections::vec_deque::IntoIter<T>,
    >;

    /// Returns all waiting work, in no particular order.
    fn into_iter(self) -> Self::IntoIter {
        self.interactive.into_iter().chain(self.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_work_has_one_turn_in_eight_and_all_when_it_is_alone() {
        let mut queue = TwoClassQueue::default();
        (0..14).for_each(|n| queue.push(n, Priority::Interactive));
        (100..104).for_each(|n| queue.push(n, Priority::Batch));
        assert_eq!((queue.len(), queue.len_of(Priority::Batch)), (18, 4));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let first: Vec<_> = (0..7).chain([100]).chain(7..14).chain([101, 102, 103]).collect();
        assert_eq!(order, first);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_class_is_cleaned_only_when_it_would_grow() {
        let mut queue = TwoClassQueue::default();
        queue.push(0, Priority::Batch);
        let room = queue.batch.capacity() - 1;
        (0..room).for_each(|n| queue.push_after_cleaning(n, Priority::Batch, |_| panic!("early")));
        queue.push_after_cleaning(99, Priority::Batch, |n| *n == 1);
        let left: Vec<_> = queue.into_iter().collect();
        assert_eq!(left, [1, 99]);
    }
}

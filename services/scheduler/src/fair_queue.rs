//! A fair queue with two priority classes.

use std::collections::VecDeque;

use crate::flow::{Cost, Flow};
use crate::flow_queue::FlowQueue;

/// One in this many pops of the queue serves batch work first, if any waits, so that interactive work cannot starve it.
pub const BATCH_TURN: usize = 8;

/// The class of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A caller waits for the answer.
    Interactive,
    /// Background work, such as a backfill.
    Batch,
}

/// Waiting work of both classes. Within a class, flows are served in proportion to their weights, and the work of each
/// flow leaves in the order of its arrival. The queue has no limit of its own. Its owner has to refuse work that
/// exceeds a limit.
#[derive(Debug)]
pub struct FairQueue<T> {
    interactive: FlowQueue<T>,
    batch: FlowQueue<T>,
    /// The number of pops so far, modulo [`BATCH_TURN`]. The pop that makes it 0 serves batch work first.
    turn: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { interactive: FlowQueue::default(), batch: FlowQueue::default(), turn: 0 }
    }
}

impl<T: Cost> FairQueue<T> {
    fn class(&self, priority: Priority) -> &FlowQueue<T> {
        match priority {
            Priority::Interactive => &self.interactive,
            Priority::Batch => &self.batch,
        }
    }

    fn class_mut(&mut self, priority: Priority) -> &mut FlowQueue<T> {
        match priority {
            Priority::Interactive => &mut self.interactive,
            Priority::Batch => &mut self.batch,
        }
    }

    /// Returns the classes in the order in which pop number `turn` looks for work.
    fn order(turn: usize) -> [Priority; 2] {
        match turn {
            0 => [Priority::Batch, Priority::Interactive],
            _ => [Priority::Interactive, Priority::Batch],
        }
    }

    /// Adds a piece of work.
    #[inline]
    pub fn push(&mut self, work: T, flow: Flow, priority: Priority) {
        self.class_mut(priority).push(work, flow);
    }

    /// Adds `work`. If the buffer of the flow's waiting work would have to grow, first removes from it the work for
    /// which `is_wanted` is false. Removing takes long if the buffer is large, but so does growing the buffer.
    pub fn push_after_cleaning(
        &mut self,
        work: T,
        flow: Flow,
        priority: Priority,
        is_wanted: impl FnMut(&T) -> bool,
    ) {
        let class = self.class_mut(priority);
        class.clean_if_full(flow, is_wanted);
        class.push(work, flow);
    }

    /// Removes and returns the next piece of work.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.turn = (self.turn + 1) % BATCH_TURN;
        match self.turn {
            0 => self.batch.pop().or_else(|| self.interactive.pop()),
            _ => self.interactive.pop().or_else(|| self.batch.pop()),
        }
    }

    /// Removes and returns the next piece of work for which `is_wanted` is true. The unwanted work before it is removed
    /// too, and its flows are not charged for it.
    #[inline]
    pub fn pop_wanted(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Option<T> {
        self.turn = (self.turn + 1) % BATCH_TURN;
        let mut order = Self::order(self.turn).into_iter();
        order.find_map(|priority| self.class_mut(priority).pop_wanted(&mut is_wanted))
    }

    /// Returns the piece of work that is served next if only flows for which `may` returns true may be served. `may`
    /// gets the id of a flow and the flow's first piece of work.
    pub fn first(&self, may: impl Fn(u64, &T) -> bool) -> Option<&T> {
        let mut order = Self::order((self.turn + 1) % BATCH_TURN).into_iter();
        order.find_map(|priority| self.class(priority).first(&may))
    }

    /// Removes and returns the work that [`first`](Self::first) returns.
    pub fn pop_first(&mut self, may: impl Fn(u64, &T) -> bool) -> Option<T> {
        let turn = (self.turn + 1) % BATCH_TURN;
        let mut order = Self::order(turn).into_iter();
        let work = order.find_map(|priority| self.class_mut(priority).pop_first(&may))?;
        self.turn = turn;
        Some(work)
    }

    /// Removes and returns the next piece of work, together with further work of the same flow. `joins` gets that piece
    /// and the remaining work of its flow. It returns the ascending indexes of the remaining work to remove as well.
    pub fn pop_with(
        &mut self,
        joins: impl Fn(&T, &VecDeque<T>) -> Vec<usize>,
    ) -> Option<(T, Vec<T>)> {
        self.turn = (self.turn + 1) % BATCH_TURN;
        let mut order = Self::order(self.turn).into_iter();
        order.find_map(|priority| self.class_mut(priority).pop_with(&joins))
    }

    /// Removes and returns a piece of work for which `is_it` is true, if there is one.
    pub fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        self.interactive.remove(&is_it).or_else(|| self.batch.remove(&is_it))
    }

    /// Returns the number of waiting pieces of work of both classes.
    pub fn len(&self) -> usize {
        self.interactive.len() + self.batch.len()
    }

    /// Returns the number of waiting pieces of work of one class.
    pub fn len_of(&self, priority: Priority) -> usize {
        self.class(priority).len()
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the total cost of a flow's waiting work in both classes.
    pub fn cost_of(&self, flow: Flow) -> u64 {
        self.interactive.cost_of(flow) + self.batch.cost_of(flow)
    }

    /// Estimates the cost of the work of the same class that would be served before new work of `flow`.
    pub fn cost_before(&self, flow: Flow, priority: Priority) -> u64 {
        self.class(priority).cost_before(flow)
    }

    /// Returns all waiting work, in no particular order.
    pub fn into_work(self) -> impl Iterator<Item = T> {
        self.interactive.into_work().chain(self.batch.into_work())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Cost for u32 {
        fn cost(&self) -> u32 {
            1
        }
    }

    #[test]
    fn batch_work_has_one_turn_in_eight_and_all_when_it_is_alone() {
        let mut queue = FairQueue::default();
        let flow = Flow::default();
        (0..14).for_each(|n| queue.push(n, flow, Priority::Interactive));
        (100..104).for_each(|n| queue.push(n, flow, Priority::Batch));
        assert_eq!((queue.len(), queue.len_of(Priority::Batch)), (18, 4));
        let order: Vec<_> = std::iter::from_fn(|| {
            let first = queue.first(|_, _| true).copied();
            let popped =
                if queue.len() % 2 == 0 { queue.pop() } else { queue.pop_first(|_, _| true) };
            assert_eq!(popped, first);
            popped
        })
        .collect();
        let first: Vec<_> = (0..7).chain([100]).chain(7..14).chain([101, 102, 103]).collect();
        assert_eq!(order, first);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_turn_that_no_flow_may_take_is_not_lost() {
        let mut queue = FairQueue::default();
        (0..7).for_each(|n| queue.push(n, Flow::default(), Priority::Interactive));
        queue.push(100, Flow::new(1, 1), Priority::Batch);
        (0..7).for_each(|n| assert_eq!(queue.pop(), Some(n)));
        assert_eq!(queue.pop_first(|flow, _| flow == 0), None);
        assert_eq!(queue.pop_first(|flow, _| flow == 1), Some(100));
    }

    #[test]
    fn a_flow_is_cleaned_only_when_it_would_grow() {
        let mut queue = FairQueue::default();
        let (one, other) = (Flow::new(1, 1), Flow::new(2, 1));
        queue.push(0, one, Priority::Batch);
        queue.push(7, other, Priority::Batch);
        // The first piece of work gives a flow's buffer a capacity of four.
        for n in 0..3 {
            queue.push_after_cleaning(n, one, Priority::Batch, |_| panic!("early"));
        }
        queue.push_after_cleaning(99, one, Priority::Batch, |n| *n == 1);
        assert_eq!((queue.len(), queue.cost_of(one)), (3, 2));
        let mut left: Vec<_> = queue.into_work().collect();
        left.sort_unstable();
        assert_eq!(left, [1, 7, 99]);
    }
}

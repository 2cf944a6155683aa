//! Waiting places that flows share.

use std::collections::HashMap;

use crate::flow::Flow;

/// A flow may have at most this many times as many places as are free, so a flow that is alone has at most 7 of 8, and
/// there is always room for another. Of two that ask for all, each has 7 of 15.
const PLACES_PER_FREE: usize = 7;

/// Returns whether a flow with `of_flow` of the `taken` places may take `more`, of `max` places in all.
pub fn has_room(of_flow: usize, more: usize, taken: usize, max: usize) -> bool {
    let free = max.saturating_sub(taken);
    more <= free && of_flow + more <= free.saturating_mul(PLACES_PER_FREE)
}

/// A bounded number of places, with a count for each flow that has some.
#[derive(Debug)]
pub struct Places {
    max: usize,
    taken: usize,
    flows: HashMap<u64, usize>,
}

impl Places {
    /// Creates `max` places.
    pub fn new(max: usize) -> Self {
        Self { max, taken: 0, flows: HashMap::new() }
    }

    /// Takes a place for a flow, if there is room for it. Returns whether there is.
    #[must_use]
    pub fn take(&mut self, flow: Flow) -> bool {
        let of_flow = self.taken_by(flow);
        let fits = has_room(of_flow, 1, self.taken, self.max);
        if fits {
            self.taken += 1;
            self.flows.insert(flow.id(), of_flow + 1);
        }
        fits
    }

    /// Gives a place of a flow back.
    ///
    /// # Panics
    /// If the flow has none, which is a defect.
    pub fn give_back(&mut self, flow: Flow) {
        let of_flow = self.flows.get_mut(&flow.id()).expect("the flow has a place");
        *of_flow -= 1;
        if *of_flow == 0 {
            self.flows.remove(&flow.id());
        }
        self.taken -= 1;
    }

    /// Returns the number of places that a flow has.
    pub fn taken_by(&self, flow: Flow) -> usize {
        self.flows.get(&flow.id()).copied().unwrap_or_default()
    }

    /// Returns the number of places that are taken.
    pub fn taken(&self) -> usize {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(places: &mut Places, flow: Flow) -> usize {
        std::iter::from_fn(|| places.take(flow).then_some(())).count()
    }

    #[test]
    fn a_flow_leaves_room_for_others() {
        let [a, b, c] = [1, 2, 3].map(|id| Flow::new(id, 1));
        let mut places = Places::new(1024);
        assert_eq!(fill(&mut places, a), 896);
        assert_eq!(fill(&mut places, b), 112);
        assert_eq!(fill(&mut places, c), 14);
        assert_eq!((places.taken(), places.taken_by(b)), (1022, 112));
        // As the work of the first one leaves, the others get its places.
        (0..448).for_each(|_| places.give_back(a));
        assert_eq!(fill(&mut places, b), 380);
        assert!(!places.take(b) && places.take(a));
        (0..449).for_each(|_| places.give_back(a));
        assert_eq!(places.flows.len(), 2);
        // Few places can all be taken by one flow, and none beyond.
        for max in 1..=7 {
            assert_eq!(fill(&mut Places::new(max), a), max);
        }
        assert_eq!(fill(&mut Places::new(8), a), 7);
    }

    #[test]
    fn several_places_are_taken_whole_or_not_at_all() {
        assert!(has_room(0, 8, 0, 10) && !has_room(0, 9, 0, 8));
        assert!(has_room(698, 10, 698, 800) && !has_room(699, 10, 699, 800));
        assert!(has_room(0, 100, 700, 800) && !has_room(0, 101, 700, 800));
        assert!(!has_room(0, 1, 9, 8));
    }
}

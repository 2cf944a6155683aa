//! The places of a bounded queue, and how flows share them.

use std::collections::HashMap;

use crate::flow::Flow;

/// The maximum ratio of a flow's places to the free places. A single flow takes at most 7 of 8 places, which leaves
/// room for another flow, if the queue has at least 8. Two flows that both ask for more converge to 7 of 15 each.
const PLACES_PER_FREE: usize = 7;

/// Returns whether a flow may take `more` places of a queue with `max` places. All flows together have taken `taken` of
/// them, and this flow has taken `of_flow`.
pub fn has_room(of_flow: usize, more: usize, taken: usize, max: usize) -> bool {
    let free = max.saturating_sub(taken);
    more <= free && of_flow + more <= free.saturating_mul(PLACES_PER_FREE)
}

/// The places of a bounded queue, with the number of places that each flow occupies.
#[derive(Debug)]
pub struct Places {
    max: usize,
    taken: usize,
    flows: HashMap<u64, usize>,
}

impl Places {
    /// Creates `max` places, all of them free.
    pub fn new(max: usize) -> Self {
        Self { max, taken: 0, flows: HashMap::new() }
    }

    /// Takes a place for a flow if [`has_room`] allows it. Returns whether it did.
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

    /// Gives back a place of a flow.
    ///
    /// # Panics
    /// If the flow has no place, which is a defect.
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
        // As the work of the first flow leaves, others get its places.
        (0..448).for_each(|_| places.give_back(a));
        assert_eq!(fill(&mut places, b), 380);
        assert!(!places.take(b) && places.take(a));
        (0..449).for_each(|_| places.give_back(a));
        assert_eq!(places.flows.len(), 2);
        // One flow can take all places if there are fewer than 8.
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

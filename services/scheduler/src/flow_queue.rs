//! The queue of one class, which implements start-time fair queueing.
//!
//! Virtual time is the service that a flow of weight 1 has received, in rows. Each flow has a start tag: the virtual
//! time at which its first waiting piece of work starts. The flow with the smallest tag is served next. Its tag then
//! grows by the cost of the work divided by the flow's weight.
//!
//! A flow that gets work after its queue was empty starts at the current virtual time, so it does not catch up on
//! service that it did not ask for. If its previous tag is later, that tag is kept, so a flow gains nothing by emptying
//! its queue. A flow that [`FlowQueue::pop_first`] passes over does not catch up on the service that it misses either.
//!
//! As long as two flows both have work waiting, their service divided by their weights differs by at most one piece of
//! work of each. New work of a flow without waiting work waits for at most one piece of work of each other flow, unless
//! the flow's previous tag is later than the current virtual time. Pieces that [`FlowQueue::pop_with`] removes together
//! count as one piece here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use crate::flow::{Cost, Flow};

/// The maximum number of flows that a queue distinguishes. Work of further flows joins flow 0. An access policy has at
/// most 1,000 grants, each with a flow of its own.
pub const FLOWS_MAX: usize = 1024;

/// The number of units of virtual time that a row takes at weight 1. At the maximum weight, a row takes 1,048 units, so
/// the rounding error is less than a thousandth.
const UNITS: u64 = 1 << 20;

/// The virtual time at which all tags are lowered. A queue that serves 10 M rows per second reaches it every 30 hours.
const REBASED_AT: u64 = 1 << 60;

/// The maximum capacity of the buffer that a flow keeps while it has no work, in pieces of work. It does not apply as
/// long as the queue has seen no flow but flow 0. At 40 bytes for a piece, all flows of a queue keep at most 40 MiB.
const IDLE_CAPACITY: usize = 1024;

/// The index of flow 0, which always exists.
const UNKNOWN: u32 = 0;

/// Stands for no flow where an index is expected.
const NONE: u32 = u32::MAX;

/// One flow's waiting work.
#[derive(Debug)]
struct FlowState<T> {
    flow: Flow,
    /// The virtual time that a row of this flow takes.
    row_units: u64,
    /// The virtual time at which the first waiting piece of work starts. If none waits, the time at which the last one
    /// ended.
    tag: u64,
    waiting: VecDeque<T>,
    /// The sum of the costs of the waiting work.
    cost: u64,
}

/// The waiting work of one class.
#[derive(Debug)]
pub(crate) struct FlowQueue<T> {
    flows: Vec<FlowState<T>>,
    /// The index of each flow, by its id.
    places: HashMap<u64, u32>,
    /// Indexes in `flows` that can be reused, because their flows were removed.
    free: Vec<u32>,
    /// The index of the next flow to serve, or `NONE` if no work waits. This flow is not in `order`, so that a single
    /// active flow never changes the heap.
    front: u32,
    /// The flow at `front` stays the next one as long as its tag is below this value.
    front_until: u64,
    /// The tags and indexes of the other flows that have work waiting.
    order: BinaryHeap<Reverse<(u64, u32)>>,
    /// The current virtual time: the time at which the most recently served work started.
    now: u64,
    /// The latest virtual time at which a flow's last waiting work ended. Once no flow has work, virtual time continues
    /// from here, so that all flows start again as equals.
    ends: u64,
    /// The index of the flow to which work was last added. Consecutive work mostly belongs to one request, so this
    /// saves a look-up.
    last: u32,
    len: usize,
}

/// Returns the cost of `work`, which is at least 1, because a flow whose work cost nothing would always be served
/// first.
fn cost<T: Cost>(work: &T) -> u64 {
    u64::from(work.cost().max(1))
}

impl<T> FlowState<T> {
    fn new(flow: Flow) -> Self {
        let row_units = UNITS / u64::from(flow.weight());
        Self { flow, row_units, tag: 0, waiting: VecDeque::new(), cost: 0 }
    }
}

impl<T> Default for FlowQueue<T> {
    fn default() -> Self {
        let unknown = FlowState::new(Flow::default());
        Self {
            places: HashMap::from([(unknown.flow.id(), UNKNOWN)]),
            flows: vec![unknown],
            free: Vec::new(),
            front: NONE,
            front_until: 0,
            order: BinaryHeap::new(),
            now: 0,
            ends: 0,
            last: UNKNOWN,
            len: 0,
        }
    }
}

impl<T: Cost> FlowQueue<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds `work`.
    // `push` and `pop` are called for every row that waits for a drive.
    #[inline]
    pub fn push(&mut self, work: T, flow: Flow) {
        if self.flows[self.last as usize].flow != flow {
            self.find(flow);
        }
        let state = &mut self.flows[self.last as usize];
        let was_empty = state.waiting.is_empty();
        state.cost += cost(&work);
        state.waiting.push_back(work);
        self.len += 1;
        if was_empty {
            self.join(self.last);
        }
    }

    /// If the buffer of `flow` is full, removes from it the work for which `is_wanted` is false.
    pub fn clean_if_full(&mut self, flow: Flow, is_wanted: impl FnMut(&T) -> bool) {
        let Some(&at) = self.places.get(&flow.id()) else { return };
        let state = &mut self.flows[at as usize];
        let before = state.waiting.len();
        if before == 0 || before < state.waiting.capacity() {
            return;
        }
        state.waiting.retain(is_wanted);
        state.cost = state.waiting.iter().map(cost).sum();
        self.len -= before - state.waiting.len();
        self.reorder(at);
    }

    /// Removes and returns the next piece of work.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let state = self.flows.get_mut(self.front as usize)?;
        let work = state.waiting.pop_front()?;
        let cost = cost(&work);
        state.cost -= cost;
        self.now = state.tag.max(self.now);
        state.tag = self.now + cost * state.row_units;
        self.len -= 1;
        if state.tag >= self.front_until || state.waiting.is_empty() {
            self.reorder(self.front);
        }
        Some(work)
    }

    /// Removes and returns the next piece of work for which `is_wanted` is true. The unwanted work before it is removed
    /// too, and its flows are not charged for it.
    #[inline]
    pub fn pop_wanted(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Option<T> {
        loop {
            let state = self.flows.get_mut(self.front as usize)?;
            while let Some(unwanted) = state.waiting.pop_front_if(|work| !is_wanted(work)) {
                state.cost -= cost(&unwanted);
                self.len -= 1;
            }
            if !state.waiting.is_empty() {
                return self.pop();
            }
            self.reorder(self.front);
        }
    }

    /// Returns the first piece of work of the first flow for which `may` is true. `may` gets a flow's id and its first
    /// piece of work.
    pub fn first(&self, may: impl Fn(u64, &T) -> bool) -> Option<&T> {
        let at = self.first_flow(may)?;
        self.flows[at as usize].waiting.front()
    }

    /// Removes and returns the work that [`first`](Self::first) returns.
    pub fn pop_first(&mut self, may: impl Fn(u64, &T) -> bool) -> Option<T> {
        let at = self.first_flow(may)?;
        self.lead(at);
        self.pop()
    }

    fn first_flow(&self, may: impl Fn(u64, &T) -> bool) -> Option<u32> {
        let may = |at: u32| {
            let state = self.flows.get(at as usize)?;
            state.waiting.front().filter(|work| may(state.flow.id(), work)).map(|_| at)
        };
        may(self.front).or_else(|| {
            let order = self.order.iter().map(|Reverse(entry)| *entry);
            order.filter(|(_, at)| may(*at).is_some()).min().map(|(_, at)| at)
        })
    }

    /// Removes and returns the next piece of work, together with further work of the same flow. `joins` gets that piece
    /// and the remaining work of its flow. It returns the ascending indexes of the remaining work to remove as well.
    pub fn pop_with(
        &mut self,
        joins: impl FnOnce(&T, &VecDeque<T>) -> Vec<usize>,
    ) -> Option<(T, Vec<T>)> {
        let at = self.front;
        let first = self.pop()?;
        let state = &mut self.flows[at as usize];
        // Remove from the back, so that the other indexes stay valid.
        let joining = joins(&first, &state.waiting).into_iter().rev();
        let others: Vec<T> = joining.filter_map(|place| state.waiting.remove(place)).collect();
        let costs: u64 = others.iter().map(cost).sum();
        state.cost -= costs;
        state.tag += costs * state.row_units;
        self.len -= others.len();
        if !others.is_empty() {
            self.reorder(at);
        }
        Some((first, others))
    }

    /// Removes and returns a piece of work, of any flow, for which `is_it` is true: the first one of its flow. The flow
    /// is not charged for it.
    pub fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let (at, place) = self.flows.iter().enumerate().find_map(|(at, state)| {
            let place = state.waiting.iter().position(&is_it)?;
            Some((at, place))
        })?;
        let state = &mut self.flows[at];
        let work = state.waiting.remove(place)?;
        state.cost -= cost(&work);
        self.len -= 1;
        if state.waiting.is_empty() {
            self.reorder(at as u32);
        }
        Some(work)
    }

    /// Returns the cost of a flow's waiting work.
    pub fn cost_of(&self, flow: Flow) -> u64 {
        self.places.get(&flow.id()).map_or(0, |&at| self.flows[at as usize].cost)
    }

    /// Estimates the cost of the work that would be served before new work of `flow`, if no other work arrives: all
    /// waiting work of the flow itself, and the work that each other flow's weight entitles it to in the meantime.
    pub fn cost_before(&self, flow: Flow) -> u64 {
        let own = self.cost_of(flow);
        let turns = u128::from(own + 1);
        let order = self.order.iter().map(|Reverse((_, at))| *at);
        let others = order.chain([self.front]).filter_map(|at| self.flows.get(at as usize));
        let others = others.filter(|other| other.flow.id() != flow.id()).map(|other| {
            let meanwhile = turns * u128::from(other.flow.weight()) / u128::from(flow.weight());
            other.cost.min(u64::try_from(meanwhile).unwrap_or(u64::MAX))
        });
        own + others.sum::<u64>()
    }

    /// Returns all waiting work, in no particular order.
    pub fn into_work(self) -> impl Iterator<Item = T> {
        self.flows.into_iter().flat_map(|flow| flow.waiting)
    }

    /// Sets `last` to the index of `flow`, which is added if it is new, or to that of flow 0 if no other flow can be
    /// added. Updates the weight of a known flow.
    #[cold]
    fn find(&mut self, flow: Flow) {
        self.last = match self.places.get(&flow.id()) {
            Some(&at) => at,
            None => self.new_place(flow),
        };
        let state = &mut self.flows[self.last as usize];
        if state.flow.id() == flow.id() {
            (state.flow, state.row_units) = (flow, UNITS / u64::from(flow.weight()));
        }
    }

    fn new_place(&mut self, flow: Flow) -> u32 {
        // Look for idle flows only when the list would have to grow, or is full.
        if self.free.is_empty() && self.flows.len() == self.flows.capacity().min(FLOWS_MAX) {
            self.forget_idle();
        }
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.flows.len() < FLOWS_MAX => {
                self.flows.push(FlowState::new(flow));
                self.flows.len() as u32 - 1
            }
            None => return UNKNOWN,
        };
        let state = &mut self.flows[at as usize];
        (state.flow, state.tag) = (flow, 0);
        self.places.insert(flow.id(), at);
        at
    }

    /// Removes flows that have no work waiting and whose tag is not ahead of virtual time. A flow whose tag is ahead is
    /// not removed: it has been served more than others, and its tag is the record of that.
    fn forget_idle(&mut self) {
        for (at, state) in (0..).zip(&self.flows).skip(1) {
            let is_idle = state.waiting.is_empty() && state.tag <= self.now;
            if is_idle && self.places.get(&state.flow.id()) == Some(&at) {
                self.places.remove(&state.flow.id());
                self.free.push(at);
            }
        }
        self.last = UNKNOWN;
    }

    /// Inserts a flow that had no work into the order.
    #[cold]
    fn join(&mut self, at: u32) {
        let state = &mut self.flows[at as usize];
        state.tag = state.tag.max(self.now);
        self.enter(at);
    }

    /// Moves a flow to the position of its tag in the order, or removes it from the order if it has no work.
    #[cold]
    fn reorder(&mut self, at: u32) {
        match self.front == at {
            true => self.front = self.order.pop().map_or(NONE, |Reverse((_, next))| next),
            false => self.order.retain(|Reverse((_, other))| *other != at),
        }
        match self.flows[at as usize].waiting.is_empty() {
            true => self.has_emptied(at),
            false => self.enter(at),
        }
        if self.front != NONE && self.flows[self.front as usize].tag >= REBASED_AT {
            self.rebase();
        }
        self.set_front_until();
    }

    /// Inserts a flow that is not in the order.
    fn enter(&mut self, at: u32) {
        let tag = self.flows[at as usize].tag;
        match self.flows.get(self.front as usize).map(|front| front.tag) {
            None => self.front = at,
            Some(first) if tag < first => {
                self.order.push(Reverse((first, self.front)));
                self.front = at;
            }
            Some(_) => self.order.push(Reverse((tag, at))),
        }
        self.set_front_until();
    }

    /// Moves a flow that has work to the front.
    fn lead(&mut self, at: u32) {
        if self.front != at {
            self.order.retain(|Reverse((_, other))| *other != at);
            self.order.push(Reverse((self.flows[self.front as usize].tag, self.front)));
            self.front = at;
            self.set_front_until();
        }
    }

    fn set_front_until(&mut self) {
        let next = self.order.peek().map_or(REBASED_AT, |Reverse((tag, _))| *tag);
        self.front_until = next.min(REBASED_AT);
    }

    fn has_emptied(&mut self, at: u32) {
        let is_alone = self.flows.len() == 1;
        let state = &mut self.flows[at as usize];
        assert_eq!(state.cost, 0, "the cost of a queue without work");
        if !is_alone && state.waiting.capacity() > IDLE_CAPACITY {
            state.waiting = VecDeque::new();
        }
        self.ends = self.ends.max(state.tag);
        if self.front == NONE {
            // No work waits, so no flow is owed service. All flows start again at the same virtual time.
            self.now = self.ends;
        }
    }

    /// Subtracts the current virtual time from all tags, so that they never overflow.
    fn rebase(&mut self) {
        let by = self.now;
        for state in &mut self.flows {
            state.tag = state.tag.saturating_sub(by);
        }
        let order = std::mem::take(&mut self.order).into_iter();
        let lower = |Reverse((tag, at)): Reverse<(u64, u32)>| Reverse((tag.saturating_sub(by), at));
        self.order = order.map(lower).collect();
        (self.now, self.ends) = (0, self.ends.saturating_sub(by));
    }
}

#[cfg(test)]
#[path = "flow_queue_tests.rs"]
mod tests;

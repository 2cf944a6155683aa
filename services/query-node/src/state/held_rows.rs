//! The memory that rows hold while they are assembled into an answer, and its division among grants.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use scheduler::Flow;
use traffic::{HeldBytes, Holder, NoRoom, TrafficMemory};

use crate::error::{QueryError, Result};

/// The number of copies of the rows that exist while they are assembled into an answer.
const ROW_COPIES: u64 = 2;

/// One core's memory for rows. It is part of the core's traffic memory.
///
/// Rows hold their memory from before they are fetched, so without a limit a grant whose requests wait for an I/O node
/// could hold all of it. Therefore a grant that already holds memory must leave a part of the free memory to other
/// grants ([`TrafficMemory::hold_for_flow`]).
pub struct RowMemory {
    traffic: Arc<TrafficMemory>,
    /// The bytes that the rows of each flow hold, by the flow's id. Only the core's own thread locks it, so the lock is
    /// never contended.
    flows: Mutex<HashMap<u64, u64>>,
}

/// The memory that the rows of one call, of a subcall, or of several calls that share a look-up, hold.
pub struct HeldRows {
    memory: Arc<RowMemory>,
    /// The flow whose memory this is. `None` before the first [`hold`](Self::hold).
    flow: Option<Flow>,
    held: HeldBytes,
    /// The bytes that the call holds with all its subcalls.
    of_call: Arc<AtomicU64>,
    /// The account of the connection that must take the answer before the memory is given back. `None` until the answer
    /// is complete or begins to be sent in pieces.
    reader: Option<Arc<Holder>>,
}

impl RowMemory {
    pub fn new(traffic: &Arc<TrafficMemory>) -> Arc<Self> {
        Arc::new(Self { traffic: Arc::clone(traffic), flows: Mutex::default() })
    }

    fn flows(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldRows {
    /// Creates an account that holds no memory yet.
    pub fn new(memory: &Arc<RowMemory>) -> Self {
        Self::in_call(memory, Arc::default())
    }

    fn in_call(memory: &Arc<RowMemory>, of_call: Arc<AtomicU64>) -> Self {
        let (flow, held, reader) = Default::default();
        Self { memory: Arc::clone(memory), flow, held, of_call, reader }
    }

    /// Creates an account for a subcall, which runs under the same grant. It holds no memory yet. The flow need not
    /// leave memory to others because of what the call and its other subcalls hold, but all together must fit the
    /// core's memory.
    pub fn of_subcall(&self) -> Self {
        Self::in_call(&self.memory, Arc::clone(&self.of_call))
    }

    /// Raises the memory that is held to what rows of `bytes` bytes in total need: [`ROW_COPIES`] times their size. All
    /// of it counts as memory of the flow that the first call of `hold` names.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`] if the core has too little free traffic memory, and [`QueryError::GrantOutOfMemory`]
    /// if rows of other calls of the flow hold so much that too little would be left to other flows.
    pub fn hold(&mut self, bytes: usize, flow: Flow) -> Result<()> {
        let wanted = (bytes as u64).saturating_mul(ROW_COPIES);
        let Some(more) = wanted.checked_sub(self.held.bytes()).filter(|&more| more > 0) else {
            return Ok(());
        };
        let flow = *self.flow.get_or_insert(flow);
        let mut flows = self.memory.flows();
        let of_flow = flows.get(&flow.id()).copied().unwrap_or_default();
        let of_call = self.of_call.load(Ordering::Relaxed);
        let of_others =
            of_flow.checked_sub(of_call).expect("a call and its subcalls have one flow");
        let held = self.memory.traffic.hold_for_flow(more, self.held.bytes(), of_others);
        let held = held.map_err(|lacks| match lacks {
            NoRoom::OfFlow => QueryError::GrantOutOfMemory { bytes: of_others },
            NoRoom::OfAll => QueryError::OutOfMemory,
        })?;
        flows.insert(flow.id(), of_flow + more);
        drop(flows);
        self.of_call.fetch_add(more, Ordering::Relaxed);
        if let Some(reader) = &self.reader {
            reader.add_ready(more);
        }
        self.held = std::mem::take(&mut self.held).and(held);
        Ok(())
    }

    /// Counts the memory, and all that is held from now on, as that of a complete answer which waits until the
    /// connection of `reader` takes it. If others need the memory and the caller does not read, the connection is ended.
    pub fn wait_for(&mut self, reader: &Arc<Holder>) {
        assert!(self.reader.is_none(), "they wait already");
        reader.add_ready(self.held.bytes());
        self.reader = Some(Arc::clone(reader));
    }
}

impl Drop for HeldRows {
    fn drop(&mut self) {
        let (Some(flow), bytes @ 1..) = (self.flow, self.held.bytes()) else { return };
        if let Some(reader) = &self.reader {
            reader.remove_ready(bytes);
        }
        let of_call = self.of_call.fetch_sub(bytes, Ordering::Relaxed);
        assert!(of_call >= bytes, "the call holds these bytes");
        let mut flows = self.memory.flows();
        let of_flow = flows.get_mut(&flow.id()).expect("the flow holds these bytes");
        *of_flow -= bytes;
        if *of_flow == 0 {
            flows.remove(&flow.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Holds `mib` MiB: two copies of rows of half that size.
    fn rows(memory: &Arc<RowMemory>, flow: Flow, mib: usize) -> Result<HeldRows> {
        let mut held = HeldRows::new(memory);
        held.hold(mib * MIB / 2, flow)?;
        Ok(held)
    }

    #[test]
    fn a_flow_leaves_memory_to_others_and_one_call_may_use_all() {
        let traffic = TrafficMemory::new(160 * MIB as u64);
        let memory = RowMemory::new(&traffic);
        let (one, other) = (Flow::new(1, 1), Flow::new(2, 1));
        let flood: Vec<_> = (0..20).map_while(|_| rows(&memory, one, 10).ok()).collect();
        assert_eq!(flood.len(), 14, "7 of 8 parts");
        let error = rows(&memory, one, 10).err().unwrap();
        assert!(matches!(error, QueryError::GrantOutOfMemory { bytes } if bytes == 140 << 20));
        let of_other = rows(&memory, other, 10).unwrap();
        assert_eq!(traffic.used(), 150 << 20);
        // Without rows of its own a flow may use all that is left, but not more.
        let third = Flow::new(3, 1);
        assert!(matches!(rows(&memory, third, 11).err(), Some(QueryError::OutOfMemory)));
        drop((flood, of_other));
        assert_eq!((traffic.used(), memory.flows().len()), (0, 0));
        // A call that grows is not refused because of its own rows, even beside another call of its flow.
        let mut all = rows(&memory, one, 130).unwrap();
        let small = rows(&memory, one, 2).unwrap();
        all.hold(75 * MIB, one).unwrap();
        drop(small);
        all.hold(80 * MIB, one).unwrap();
        assert_eq!(traffic.used(), 160 << 20);
    }

    #[test]
    fn rows_that_wait_for_a_reader_count_as_ready_until_they_are_dropped() {
        let memory = RowMemory::new(&TrafficMemory::new(160 * MIB as u64));
        let (flow, reader) = (Flow::new(1, 1), Arc::new(Holder::default()));
        let mut first = rows(&memory, flow, 20).unwrap();
        let mut second = HeldRows::new(&memory);
        assert_eq!(reader.ready(), 0);
        for held in [&mut first, &mut second] {
            held.wait_for(&reader);
        }
        assert_eq!(reader.ready(), 20 << 20);
        second.hold(MIB, flow).unwrap();
        assert_eq!(reader.ready(), 22 << 20);
        drop(first);
        assert_eq!(reader.ready(), 2 << 20);
        drop(second);
        assert_eq!(reader.ready(), 0);
    }

    #[test]
    fn subcalls_are_no_other_calls_of_their_flow() {
        let traffic = TrafficMemory::new(160 * MIB as u64);
        let memory = RowMemory::new(&traffic);
        let one = Flow::new(1, 1);
        let call = rows(&memory, one, 20).unwrap();
        // Other calls would have to leave one of eight parts to other flows.
        let mut subcalls = [call.of_subcall(), call.of_subcall()];
        for subcall in &mut subcalls {
            subcall.hold(70 * MIB / 2, one).unwrap();
        }
        assert_eq!(traffic.used(), 160 << 20);
        assert!(matches!(subcalls[0].hold(36 * MIB, one), Err(QueryError::OutOfMemory)));
        assert!(matches!(rows(&memory, one, 1).err(), Some(QueryError::GrantOutOfMemory { .. })));
        let [first, second] = subcalls;
        drop((call, first));
        assert_eq!((traffic.used(), second.of_call.load(Ordering::Relaxed)), (70 << 20, 70 << 20));
        drop(second);
        assert_eq!((traffic.used(), memory.flows().len()), (0, 0));
    }
}

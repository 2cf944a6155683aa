//! The slots of operations in flight. Pure bookkeeping.
//!
//! A slot is free or occupied by one operation. It is vacated in two steps, `take` and `free`, because a read's buffer
//! is lent to its sink in between. Each `take` increments the slot's generation, so that a completion of an earlier
//! operation cannot be mistaken for one of a later operation in the same slot.

/// A slot's index (low 32 bits) and generation (high 32 bits). It is the `user_data` of the slot's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u64);

impl SlotId {
    const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    pub const fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// Returns the index, which is unique within the ring.
    pub const fn index(self) -> usize {
        self.0 as u32 as usize
    }

    const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A range of slots, with indexes from `base` to `base + count - 1`.
pub(crate) struct Slots<W> {
    base: u32,
    entries: Vec<Entry<W>>,
    /// Indexes of the free slots, relative to `base`. The slot freed last is used first, as its buffer is in
    /// the CPU's cache.
    free: Vec<u32>,
    occupied: u32,
}

struct Entry<W> {
    generation: u32,
    work: Option<W>,
}

impl<W> Slots<W> {
    pub fn new(base: u32, count: u32) -> Self {
        let entries = (0..count).map(|_| Entry { generation: 0, work: None }).collect();
        Self { base, entries, free: (0..count).rev().collect(), occupied: 0 }
    }

    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the number of operations in flight.
    pub fn occupied(&self) -> u32 {
        self.occupied
    }

    /// Returns whether the id belongs to these slots.
    pub fn covers(&self, id: SlotId) -> bool {
        id.index().wrapping_sub(self.base as usize) < self.entries.len()
    }

    /// Puts an operation into a free slot. There must be one.
    pub fn occupy(&mut self, work: W) -> SlotId {
        let index = self.free.pop().expect("there is a free slot");
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.work.is_none());
        entry.work = Some(work);
        self.occupied += 1;
        SlotId::new(self.base + index, entry.generation)
    }

    pub fn get_mut(&mut self, id: SlotId) -> Option<&mut W> {
        self.entry(id)?.work.as_mut()
    }

    /// Removes an operation from its slot. The slot is not free yet.
    pub fn take(&mut self, id: SlotId) -> Option<W> {
        let entry = self.entry(id)?;
        let work = entry.work.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.occupied -= 1;
        Some(work)
    }

    /// Frees the slot of an operation that was taken.
    pub fn free(&mut self, id: SlotId) {
        let index = (id.index() - self.base as usize) as u32;
        debug_assert!(self.entries[index as usize].work.is_none());
        self.free.push(index);
    }

    fn entry(&mut self, id: SlotId) -> Option<&mut Entry<W>> {
        let entry = self.entries.get_mut(id.index().wrapping_sub(self.base as usize))?;
        (entry.generation == id.generation()).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_one_operation_and_old_ids_are_rejected() {
        let mut slots = Slots::new(10, 2);
        let first = slots.occupy("a");
        let second = slots.occupy("b");
        assert!(!slots.has_free());
        assert_eq!([first.index(), second.index()], [10, 11]);
        assert!(slots.covers(second) && !slots.covers(SlotId::new(9, 0)));
        assert_eq!(SlotId::from_u64(first.to_u64()), first);

        assert_eq!(slots.take(first), Some("a"));
        assert!(!slots.has_free(), "the slot is not free before its buffer is returned");
        assert_eq!(slots.take(first), None);
        slots.free(first);

        let again = slots.occupy("c");
        assert_eq!(again.index(), first.index());
        assert_ne!(again, first);
        assert_eq!(slots.get_mut(first), None, "the generation was incremented");
        assert_eq!(slots.occupied(), 2);
    }
}

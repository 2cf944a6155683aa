//! The memory that arrays hold. Pure.

use std::collections::HashSet;

use arrow_array::ArrayRef;
use arrow_data::ArrayData;

/// Returns the bytes of memory that `arrays` hold. Memory that several of their buffers share counts once: all columns
/// of a received batch point into one message, and Arrow's own `get_array_memory_size` counts this message for each
/// buffer.
pub fn memory_of<'a>(arrays: impl IntoIterator<Item = &'a ArrayRef>) -> usize {
    let mut held = HeldMemory::default();
    held.add(arrays);
    held.bytes()
}

/// The memory that arrays hold together, while they are collected. All of them must be kept until the last is added.
#[derive(Default)]
pub struct HeldMemory {
    bytes: usize,
    /// The addresses of the buffers' allocations that are counted.
    allocations: HashSet<usize>,
}

impl HeldMemory {
    /// Adds arrays. Memory that they share with each other, or with those added before, counts once.
    pub fn add<'a>(&mut self, arrays: impl IntoIterator<Item = &'a ArrayRef>) {
        arrays.into_iter().for_each(|array| self.add_data(&array.to_data()));
    }

    /// Returns the bytes of memory that the added arrays hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn add_data(&mut self, data: &ArrayData) {
        // The array itself, without its buffers.
        self.bytes += size_of::<ArrayData>();
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        for buffer in data.buffers().iter().chain(nulls) {
            if self.allocations.insert(buffer.data_ptr().as_ptr().addr()) {
                self.bytes += buffer.capacity();
            }
        }
        data.child_data().iter().for_each(|child| self.add_data(child));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{Int32Array, ListArray, RecordBatch, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;
    use crate::ArrowBatch;

    const ROWS: usize = 1000;
    const COLUMNS: usize = 300;

    #[test]
    fn a_received_batch_holds_its_message_once() {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..ROWS as i32));
        let fields = (0..COLUMNS).map(|at| Field::new(at.to_string(), DataType::Int32, true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let sent = RecordBatch::try_new(Arc::clone(&schema), vec![column; COLUMNS]).unwrap();
        let message = prost::Message::encode_to_vec(&ArrowBatch::from_record_batch(&sent).unwrap());
        let received = <ArrowBatch as prost::Message>::decode(&*message).unwrap();
        let rows = received.to_record_batch(&schema).unwrap();
        let (held, values) = (memory_of(rows.columns()), ROWS * COLUMNS * size_of::<i32>());
        assert!((values..values + values / 5).contains(&held), "{held} bytes for {values}");
        assert!(rows.get_array_memory_size() > 100 * values);
    }

    #[test]
    fn each_allocation_counts_once_and_as_a_whole() {
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..ROWS as i32));
        let of_numbers = memory_of([&numbers]);
        assert!((ROWS * 4..ROWS * 5).contains(&of_numbers));
        let slice = numbers.slice(10, 1);
        assert_eq!(memory_of([&slice]), of_numbers);
        let both = memory_of([&numbers, &slice]);
        assert_eq!(both, of_numbers + size_of::<ArrayData>());
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("some text"), None]));
        let lists = [Some(vec![Some(1); 500]), None];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
        let all = memory_of([&numbers, &texts, &lists]);
        assert_eq!(all, of_numbers + memory_of([&texts]) + memory_of([&lists]));
        assert!(memory_of([&lists]) >= 500 * 4);
        assert_eq!(memory_of([]), 0);
    }
}

//! A projection that a client has opened on a Lookup stream, and the memory that it takes. The stream keeps it for as
//! long as the client likes, even if its table does not exist.

use prost::Message;
use traffic::{HeldProjection, ProjectionMemory};
use wire::query::LookupOpen;
use wire::{Fault, Reason};

use crate::call_rules::NAMES_BYTES_MAX;

/// Maximum number of columns of a projection. A column takes memory beyond its name.
const COLUMNS_MAX: usize = 4096;

/// A projection of a Lookup stream.
pub struct StreamProjection {
    /// The request that opened it.
    pub open: LookupOpen,
    _held: HeldProjection,
}

impl StreamProjection {
    /// Creates the projection that `open` asks for, and takes its memory.
    ///
    /// # Errors
    /// `BAD_ARGUMENT` if the request has more than [`NAMES_BYTES_MAX`] bytes or [`COLUMNS_MAX`] columns, and
    /// `OVERLOADED` if there is no memory for another projection. Either ends the stream: remembering the failed handle
    /// would take memory too.
    pub fn new(open: LookupOpen, memory: &ProjectionMemory) -> Result<Self, Fault> {
        let bytes = open.encoded_len();
        if bytes > NAMES_BYTES_MAX {
            let problem = format!(
                "a projection of {bytes} bytes, mostly the names of its table and columns; at most {NAMES_BYTES_MAX} \
                 are taken: name fewer columns"
            );
            return Err(Fault::new(Reason::BadArgument, problem));
        }
        if open.columns.len() > COLUMNS_MAX {
            let count = open.columns.len();
            let problem = format!("a projection of {count} columns; name at most {COLUMNS_MAX}");
            return Err(Fault::new(Reason::BadArgument, problem));
        }
        let names = [&*open.table, &*open.branch, &*open.key_column];
        let held = memory.hold(&open.columns, &names).ok_or_else(|| {
            let what =
                "there is no memory left for another projection; close some, or try again later";
            Fault::new(Reason::Overloaded, what)
        })?;
        Ok(Self { open, _held: held })
    }
}

#[cfg(test)]
mod tests {
    use traffic::TrafficMemory;

    use super::*;

    #[test]
    fn projections_are_small_and_hold_memory_until_they_are_dropped() {
        let all = TrafficMemory::new(32 << 20);
        let memory = ProjectionMemory::of(&all);
        let of = |columns: usize, table: usize| {
            let columns = vec![String::new(); columns];
            LookupOpen { table: "t".repeat(table), columns, ..Default::default() }
        };
        for large in [of(0, NAMES_BYTES_MAX), of(NAMES_BYTES_MAX / 2 + 1, 0)] {
            let refused = StreamProjection::new(large, &memory).err().unwrap();
            assert_eq!(refused.reason, Reason::BadArgument, "{refused}");
            assert!(refused.message.contains("name fewer columns"), "{refused}");
        }
        let many = StreamProjection::new(of(COLUMNS_MAX + 1, 0), &memory).err().unwrap();
        assert!(many.message.contains("name at most 4096"), "{many}");
        assert!(StreamProjection::new(of(COLUMNS_MAX, 0), &memory).is_ok());
        assert_eq!(all.used(), 0);
        let mut held = Vec::new();
        let refused = loop {
            match StreamProjection::new(of(0, 60_000), &memory) {
                Ok(projection) => held.push(projection),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.reason, Reason::Overloaded, "{refused}");
        assert_eq!(held.len(), (4 << 20) / (60_000 + 1024));
        drop(held);
        assert_eq!(all.used(), 0);
    }
}

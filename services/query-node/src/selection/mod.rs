//! Makes the answers that are not simply columns of the table with the best row first: they have nested columns,
//! expressions, positions or descriptors of blobs, or their rows are in the order of some columns. Plain HTTP and gRPC
//! share this module.

mod beside;
mod ordering;
mod select;
mod shape;

pub use beside::beside;
pub use ordering::{Ordering, check_order, rows_to_find};
pub use select::{BlobForm, ROW_ID, Selection};
pub use shape::{Shape, order_of};

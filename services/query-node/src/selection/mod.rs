//! Makes answers that are more than columns of the table, best first: nested columns, expressions, positions and
//! descriptors of blobs, and rows in the order of some columns. Plain HTTP and gRPC share this module.

mod beside;
mod ordering;
mod select;
mod shape;

pub use beside::beside;
pub use ordering::{Ordering, check_order, requested, rows_to_find};
pub use select::{Beside, BlobForm, Columns, Selection};
pub use shape::{Shape, order_of};

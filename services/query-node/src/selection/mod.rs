//! The columns of an answer and the order of its rows, where they are more than columns of the table, best first: nested
//! columns, expressions, positions, descriptors of blobs, and an order by columns. Plain HTTP and gRPC share them.

mod beside;
mod ordering;
mod select;
mod shape;

pub use beside::beside;
pub use ordering::{Order, Ordering, lake_order};
pub use select::{Beside, BlobForm, Columns, Selection};
pub use shape::Shape;

//! The recall curves of a node's tables (`services/recall` has the format). `stages/choose_setting.rs` chooses a search's
//! setting by them.
//!
//! A table's curves are files beside it, which `bireme tune` writes, and files that the setting `recall_curves` names.
//! They are looked for soon after the table is opened, then once a minute, and when a search asks for a recall and no
//! known curve fits its index. A file beside the table is read once: it never changes.
//!
//! Invariants:
//! - A search does not wait until curves are looked for, unless it asks for a recall and no known curve fits.
//! - A file that is damaged, or of an unknown format, is named in the log, counted, and not used.
//! - A curve is used only for an index that it fits.

mod fitted;
mod report;
mod table_curves;

pub use fitted::{FittedCurves, build_of, hash_of};
pub use report::index_recall;
pub use table_curves::{CurveCounts, LOOK_EVERY, TableCurves};

//! Output to stdout: rows, tables and JSON.

mod cell;
mod index_commands;
mod recall;
mod records;
mod rows;
mod shell_word;
mod stages;
mod stdout;
mod text_table;

pub use crate::quantity::{bytes, count, counted, micros, rate};
pub use cell::key_text;
pub use index_commands::{can_build, index_commands};
pub use recall::{recall_json, recall_text};
pub use rows::RowLayout;
pub use shell_word::shell_word;
pub use stages::{stages_json, stages_text};
pub use stdout::Output;
pub use text_table::{Align, TextTable};

//! The query node over real gRPC and real tables, with no I/O node in reach (or none that works): every answer comes from
//! the tables themselves, and is compared to what a plain computation over the same rows says.

mod bad_input;
mod cancel;
mod ejection;
mod fake_io;
mod follow;
mod fuzz;
mod get;
mod node;
mod operate;
mod overload;
mod priority;
mod search;
mod table;
mod take;

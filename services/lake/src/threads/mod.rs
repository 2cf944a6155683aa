//! Threads that do a table's work: a deep stack for plans, the runtime that outlives a caller, and Lance's own pool.

pub(crate) mod cpu_pool;
pub(crate) mod deep_stack;
pub(crate) mod on_runtime;

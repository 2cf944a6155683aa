//! Tests of the whole system: both tiers over real sockets, real files with O_DIRECT and real rings. Some tests of
//! faults use simulated drives instead. Results are compared with Lance's own `take`, with brute force, and with the
//! source data. All tests are in one binary, so that Lance is linked once.

mod aging;
mod audit;
mod bad_input;
mod branches;
mod cluster;
mod computed;
mod damage;
mod endpoints;
mod fetch_oracle;
mod first_reads;
mod folders;
mod index_files;
mod isolation;
mod key_pages;
mod key_runs;
mod key_types;
mod keys;
mod logs;
mod medium;
mod members;
mod membership;
mod overload;
mod parts;
mod peers;
mod predicate_faults;
mod predicates;
mod readiness;
mod reads;
mod recall;
mod relay;
mod restart;
mod rotation;
mod shares;
mod store;
mod telemetry;
mod tls;
mod types;
mod warm;
mod words;

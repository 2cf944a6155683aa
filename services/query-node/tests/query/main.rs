//! Tests of the query node over real gRPC and HTTP and real tables, without a working I/O node. Rows are read from the
//! tables, and searches are compared with a plain computation over the same rows.

mod access;
mod all_rows;
mod bad_input;
mod blobs;
mod branches;
mod cancel;
mod ejection;
mod expressions;
mod fake_io;
mod folders;
mod follow;
mod fuzz;
mod get;
mod http;
mod http_browsers;
mod http_freshness;
mod http_fuzz;
mod http_lists;
mod key_pages;
mod key_runs;
mod keys;
mod lookups;
mod node;
mod operate;
mod ordered;
mod overload;
mod priority;
mod recall;
mod search;
mod table;
mod take;
mod tokens;
mod vectors;
mod widening;
mod written_runs;

//! The refusal of callers whose credentials are not accepted.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use access::Denied;
use audit::{Record, Verdict};
use tonic::Code;
use wire::{Fault, Reason, code_name};

use super::audit_line::reserve_line;
use crate::counters::Rpc;
use crate::error::QueryError;
use crate::request_context::RequestContext;
use crate::state::ShardState;

/// A caller whose credentials are not accepted, or are no longer accepted.
pub struct Stranger {
    /// The caller's identity, as grants write it, if its credentials were accepted earlier.
    pub identity: Option<String>,
    /// The address that the caller's connection comes from.
    pub address: Option<SocketAddr>,
    pub denied: Denied,
}

impl Stranger {
    /// Counts the refusal of a request, and writes a line into the audit log, if there is one. Returns the fault for
    /// the caller: `UNAUTHENTICATED`, or `DEADLINE_EXCEEDED` if the audit log had no place for the line before the
    /// deadline of `context`.
    pub async fn refuse(
        self,
        state: &ShardState,
        rpc: Rpc,
        took: Duration,
        context: RequestContext,
    ) -> Fault {
        state.metrics.refused(self.denied.as_str());
        let line = match reserve_line(&state.shared, context).await {
            Ok(line) => line,
            Err(late) => {
                let late = Fault::from(late);
                state.metrics.answered(rpc, Some(late.reason), took);
                return late;
            }
        };
        state.metrics.answered(rpc, Some(Reason::Unauthenticated), took);
        if let Some(line) = line {
            line.record(&Record {
                time: SystemTime::now(),
                node: &state.shared.config.name,
                caller: self.identity.as_deref(),
                peer: self.address,
                rpc: rpc.path(),
                table: None,
                branch: None,
                version: None,
                grant: None,
                verdict: Verdict::Denied,
                code: code_name(Code::Unauthenticated),
                reason: Some(self.denied.as_str()),
                rows: 0,
                bytes: 0,
                duration_us: took.as_micros() as u64,
            });
        }
        QueryError::Denied(self.denied).into()
    }
}

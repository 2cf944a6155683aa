//! What the query node writes into the audit log.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use access::Denied;
use audit::{Record, Reserved, Verdict};
use tonic::Code;
use wire::{Fault, Reason};

use crate::authorization::IdentifiedCaller;
use crate::counters::{Rpc, code_name};
use crate::state::ShardState;

/// A call that has ended.
pub struct Ended<'a> {
    pub node: &'a str,
    pub caller: &'a IdentifiedCaller,
    pub rpc: Rpc,
    pub table: Option<&'a str>,
    pub version: u64,
    pub grant: Option<&'a str>,
    pub code: Code,
    pub fault: Option<&'a Fault>,
    pub rows: u64,
    pub bytes: u64,
    pub took: Duration,
}

/// Writes the line of a call that has ended.
pub fn record(line: Reserved, ended: &Ended<'_>) {
    let is_denied = ended.grant.is_none()
        && ended.fault.is_some_and(|it| {
            matches!(it.reason, Reason::Forbidden | Reason::LimitReached | Reason::TableNotFound)
        });
    line.record(&Record {
        time: SystemTime::now(),
        node: ended.node,
        caller: Some(&ended.caller.caller.identity().to_string()),
        peer: ended.caller.address,
        rpc: ended.rpc.path(),
        table: ended.table,
        version: Some(ended.version).filter(|&version| version > 0),
        grant: ended.grant,
        verdict: if is_denied { Verdict::Denied } else { Verdict::Allowed },
        code: code_name(ended.code),
        reason: ended.fault.map(|it| it.reason.as_str()),
        rows: ended.rows,
        bytes: ended.bytes,
        duration_us: ended.took.as_micros() as u64,
    });
}

/// Writes the line of a request whose caller was not identified.
pub async fn denied(
    state: &ShardState,
    rpc: Rpc,
    peer: Option<SocketAddr>,
    denied: Denied,
    began: Instant,
) {
    let Some(audit) = &state.shared.audit else { return };
    let Some(line) = audit.reserve().await else { return };
    line.record(&Record {
        time: SystemTime::now(),
        node: &state.shared.config.name,
        caller: None,
        peer,
        rpc: rpc.path(),
        table: None,
        version: None,
        grant: None,
        verdict: Verdict::Denied,
        code: code_name(Code::Unauthenticated),
        reason: Some(denied.as_str()),
        rows: 0,
        bytes: 0,
        duration_us: began.elapsed().as_micros() as u64,
    });
}

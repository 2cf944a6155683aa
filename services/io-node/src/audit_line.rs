//! The lines of calls in the audit log.
//!
//! Each call has a line; a Fetch stream has one for each projection that it opened, or one if it opened none. A place
//! in the log is reserved for each line before its call begins or its projection is opened, and the line is written
//! when it is dropped. So every call, stream and projection leaves a line, even if its connection is lost or the node
//! stops. The memory for projections bounds the number of projections' lines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use audit::{Audit, Record, Reserved, Verdict, cut_name};
use tokio::time::Instant;
use tonic::Code;
use wire::{Fault, Reason, code_name};

/// The fields that all lines of a call share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditedCall(Arc<Call>);

#[derive(Debug)]
struct Call {
    audit: Audit,
    node: String,
    caller: Option<String>,
    peer: Option<SocketAddr>,
    rpc: &'static str,
}

/// A line of the audit log, which is written when this is dropped.
#[derive(Debug)]
pub struct AuditLine {
    call: AuditedCall,
    /// The reserved place; `None` once the line is written, or if the log has ended.
    place: Option<Reserved>,
    began: Instant,
    table: Option<String>,
    branch: Option<String>,
    version: Option<u64>,
    verdict: Verdict,
    code: Code,
    reason: Option<&'static str>,
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl AuditedCall {
    /// Creates a call of `rpc` to `node` by `caller`, whose connection comes from `peer`.
    pub fn new(
        audit: &Audit,
        node: &str,
        caller: Option<String>,
        peer: Option<SocketAddr>,
        rpc: &'static str,
    ) -> Self {
        let (audit, node) = (audit.clone(), node.to_owned());
        Self(Arc::new(Call { audit, node, caller, peer, rpc }))
    }

    /// Reserves a place in the log for a line, and waits while no place is free. The line's code is `CANCELLED` until
    /// an outcome is set.
    pub async fn line(&self) -> AuditLine {
        // There is no place if the log has ended, which is a defect. Calls are answered nevertheless.
        let place = self.0.audit.reserve().await.map(Reserved::for_long);
        let (rows, bytes) = Default::default();
        AuditLine {
            call: self.clone(),
            place,
            began: Instant::now(),
            table: None,
            branch: None,
            version: None,
            verdict: Verdict::Allowed,
            code: Code::Cancelled,
            reason: None,
            rows,
            bytes,
        }
    }
}

impl AuditLine {
    /// Sets the table's label (`None` if no table can have the name that the caller gives), its branch (empty for the
    /// main one), and its version (0 if the caller names none).
    pub fn names_table(&mut self, label: Option<String>, branch: &str, version: u64) {
        let cut = |name: &str| cut_name(name).to_owned();
        self.table = label.as_deref().map(cut);
        self.branch = Some(branch).filter(|branch| !branch.is_empty()).map(cut);
        self.version = Some(version).filter(|&version| version > 0);
    }

    /// Sets the outcome.
    pub fn ends(&mut self, outcome: Result<(), &Fault>) {
        let reason = outcome.err().map(|fault| fault.reason);
        self.code = reason.map_or(Code::Ok, Reason::code);
        self.reason = reason.map(Reason::as_str);
        let refusals = [Reason::TableNotServed, Reason::Unauthenticated];
        if reason.is_some_and(|reason| refusals.contains(&reason)) {
            self.verdict = Verdict::Denied;
        }
    }

    /// Records that the caller was refused, and why.
    pub fn is_refused(&mut self, why: &'static str) {
        (self.verdict, self.code) = (Verdict::Denied, Code::Unauthenticated);
        self.reason = Some(why);
    }

    /// Adds rows that were sent, and their size.
    pub fn add(&self, rows: usize, bytes: usize) {
        // Only the core that sends the rows changes these counters, so no other core contends for them.
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for AuditLine {
    #[expect(clippy::disallowed_methods, reason = "a simulated node has no audit log")]
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let Call { node, caller, peer, rpc, .. } = &*self.call.0;
        place.record(&Record {
            time: SystemTime::now(),
            node,
            caller: caller.as_deref(),
            peer: *peer,
            rpc,
            table: self.table.as_deref(),
            branch: self.branch.as_deref(),
            version: self.version,
            grant: None,
            verdict: self.verdict,
            code: code_name(self.code),
            reason: self.reason,
            rows: *self.rows.get_mut(),
            bytes: *self.bytes.get_mut(),
            duration_us: self.began.elapsed().as_micros() as u64,
        });
    }
}

//! A request in progress: its context, its caller's rights, its memory, and its line in the audit log.
//! `call/stages.rs` has the times of its stages, `call/stream_calls.rs` begins the calls of streams, and
//! `call/stranger.rs` records callers that are refused.

mod audit_line;
mod authorization;
mod stages;
mod stranger;
mod stream_calls;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use access::{Authorization, Grant, Permission};
use audit::{Record, Reserved, Verdict, cut_name};
use futures::{FutureExt, future};
use lake::BranchName;
use telemetry::{Attribute, Recording};
use wire::{Fault, Reason, code_name, query};

use self::audit_line::reserve_line;
pub use self::authorization::{IdentifiedCaller, address_of, identify};
use self::authorization::{hidden, may_be_shown, refusal};
use self::stages::CallStages;
pub use self::stranger::Stranger;
pub use self::stream_calls::StreamCalls;
use crate::counters::{Rpc, Stage};
use crate::error::{QueryError, Result};
use crate::fetch::Cost;
use crate::request_context::RequestContext;
use crate::state::{HeldRows, NodeState, ShardState};
use crate::tables::{AskedVersion, OpenTable};

/// Maximum number of attributes of a request's span.
const ATTRIBUTES: usize = 6;

/// An rpc, a plain HTTP call, or a request of a stream: a Get of a GetStream, or an opening of a projection or a group
/// of batches of a Lookup.
pub struct Call {
    state: Arc<ShardState>,
    rpc: Rpc,
    /// The request's context.
    pub context: RequestContext,
    caller: IdentifiedCaller,
    /// The name of the table that the request names. Empty before [`open`](Self::open).
    table: String,
    /// The branch that the request names, for the audit log. Empty for the main one.
    branch: String,
    /// The right to use the table. `None` until it is granted.
    authorization: Option<Authorization>,
    /// The place of the request's line in the audit log, if there is a log.
    line: Option<Reserved>,
    /// The table at the version that the call uses. `None` until the table is open.
    open: Option<Arc<OpenTable>>,
    /// The number of rows of the answer, and their size in bytes.
    answered: (u64, u64),
    began: Instant,
    stages: CallStages,
    recording: Option<Recording>,
    attributes: Vec<Attribute>,
    held: HeldRows,
    is_answered: bool,
    /// Whether the call counts as work in progress.
    is_under_way: bool,
    /// Set if this is a subcall.
    subcall: Option<Subcall>,
}

/// A subcall's own state.
struct Subcall {
    /// The grant of the call that it belongs to.
    grant: Option<Arc<Grant>>,
}

impl Call {
    /// Begins a call. `context` has the caller's span; if the call is recorded, its own context has the call's span
    /// instead.
    ///
    /// # Errors
    /// The fault of a call that has ended, because the audit log had no place for its line before its deadline.
    pub async fn begin(
        state: &Arc<ShardState>,
        rpc: Rpc,
        context: RequestContext,
        caller: IdentifiedCaller,
    ) -> std::result::Result<Self, Fault> {
        let recording = state.shared.tracer.begin(rpc.path(), context.span);
        let began = Instant::now();
        state.metrics.started(rpc);
        state.activity.add();
        let mut call = Self {
            state: Arc::clone(state),
            rpc,
            context: context.in_span(recording.as_ref().map(Recording::span).or(context.span)),
            caller,
            table: String::new(),
            branch: String::new(),
            authorization: None,
            line: None,
            open: None,
            answered: (0, 0),
            began,
            stages: CallStages::begin(began, recording.as_ref()),
            recording,
            attributes: Vec::new(),
            held: HeldRows::new(&state.row_memory),
            is_answered: false,
            is_under_way: true,
            subcall: None,
        };
        // The call exists before it waits for its line, so that it is counted however the wait ends.
        match reserve_line(&state.shared, context).await {
            Ok(line) => call.line = line,
            Err(late) => return call.end(Err(late)),
        }
        Ok(call)
    }

    /// Returns a subcall of this call, for one of several searches that run at the same time. Its stages are its own
    /// until [`join`](Self::join). Its memory is memory of this call. It has no authorization, so this call charges its
    /// rows.
    pub fn subcall(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            rpc: self.rpc,
            context: self.context,
            caller: self.caller.clone(),
            table: self.table.clone(),
            branch: String::new(),
            authorization: None,
            line: None,
            open: self.open.clone(),
            answered: (0, 0),
            began: Instant::now(),
            stages: self.stages.of_subcall(),
            recording: None,
            attributes: Vec::new(),
            held: self.held.of_subcall(),
            is_answered: false,
            is_under_way: false,
            subcall: Some(Subcall { grant: self.grant().cloned() }),
        }
    }

    /// Ends a subcall: its stages become stages of this call. The subcall keeps the memory that it holds.
    pub fn join(&mut self, subcall: &mut Self) {
        self.stages.join(&mut subcall.stages);
    }

    /// Returns the caller.
    pub fn caller(&self) -> &IdentifiedCaller {
        &self.caller
    }

    /// Authorizes the call to use a table, and opens the table. From here on the call's context has the limits of the
    /// grant. A grant that shows only a part of the table is refused: a call that must work under such a grant uses
    /// [`open_shown`](Self::open_shown).
    ///
    /// # Errors
    /// The errors of [`Authorization::of`], [`QueryError::PartRefused`], and the reason why the table cannot be opened.
    pub async fn open(
        &mut self,
        asked: AskedVersion<'_>,
        permission: Permission,
    ) -> Result<Arc<OpenTable>> {
        self.authorize(&asked, permission)?;
        self.check_shown_whole("this call")?;
        self.open_authorized(asked).await
    }

    /// Like [`open`](Self::open), to read the table. If the grant shows only a part of the table, the result is that
    /// part: a table in which the hidden columns do not exist, and whose searches and fetches find no hidden row. The
    /// caller of this function answers with nothing else about the table.
    ///
    /// # Errors
    /// The errors of [`Authorization::of`] and [`OpenTable::as_shown`], and the reason why the table cannot be opened.
    pub async fn open_shown(&mut self, asked: AskedVersion<'_>) -> Result<Arc<OpenTable>> {
        self.authorize(&asked, Permission::Read)?;
        self.open_authorized(asked).await
    }

    /// Authorizes the call to observe the node. From here on the call's context has the limits of the grant.
    ///
    /// # Errors
    /// [`QueryError::Forbidden`] if no grant lets the caller observe anything, and [`QueryError::LimitReached`].
    pub fn observe_node(&mut self) -> Result<()> {
        let permission = Permission::Observe;
        let grant = self.caller.caller.observing_grant().ok_or_else(|| QueryError::Forbidden {
            permission: permission.as_str(),
            what: "this node".into(),
        })?;
        self.authorization = Some(Authorization::under(grant, permission)?);
        self.context = self.context.under(grant);
        Ok(())
    }

    /// Authorizes the call to list the tables, namespaces or folders that its caller sees. From here on the call's
    /// context has the limits of the grant.
    ///
    /// # Errors
    /// [`QueryError::LimitReached`].
    pub fn list(&mut self) -> Result<()> {
        if let Some(grant) = self.caller.caller.listing_grant() {
            self.authorization = Some(Authorization::under(grant, Permission::Read)?);
            self.context = self.context.under(grant);
        }
        Ok(())
    }

    /// Returns whether the call's grant shows the whole table.
    pub fn shows_whole(&self) -> bool {
        self.grant_of_part().is_none()
    }

    /// Refuses `what`, if the call's grant shows only a part of the table.
    ///
    /// # Errors
    /// [`QueryError::PartRefused`].
    pub fn check_shown_whole(&self, what: &'static str) -> Result<()> {
        match self.grant_of_part() {
            None => Ok(()),
            Some(grant) => {
                let (grant, table) = (grant.name().to_owned(), self.table.clone());
                Err(QueryError::PartRefused { grant, table, what })
            }
        }
    }

    /// Returns the call's grant, if it shows only a part of the table.
    fn grant_of_part(&self) -> Option<&Grant> {
        let has_table = !self.table.is_empty();
        self.grant().map(Arc::as_ref).filter(|grant| has_table && grant.part().is_some())
    }

    fn grant(&self) -> Option<&Arc<Grant>> {
        let of_call = || self.subcall.as_ref()?.grant.as_ref();
        self.authorization.as_ref().map(Authorization::grant).or_else(of_call)
    }

    /// Authorizes the call to use a table.
    fn authorize(&mut self, asked: &AskedVersion<'_>, permission: Permission) -> Result<()> {
        let table = asked.table;
        let catalog = &self.state.shared.catalog;
        // A table that is opened anew, for a later version, still counts as one request of the grant.
        let is_known = self.table == table;
        table.clone_into(&mut self.table);
        let branch = if asked.branch == BranchName::MAIN { "" } else { asked.branch };
        cut_name(branch).clone_into(&mut self.branch);
        let authorization = match self.authorization.take() {
            Some(known) if is_known && known.is_for(permission) => known,
            _ => {
                let caller = &self.caller.caller;
                Authorization::of(caller, table, permission, |name| catalog.has(name))
                    .map_err(|reason| refusal(reason, table, catalog))?
            }
        };
        self.context = self.context.under(authorization.grant());
        self.authorization = Some(authorization);
        Ok(())
    }

    /// Opens the table that the call is authorized for, as its grant shows it.
    async fn open_authorized(&mut self, asked: AskedVersion<'_>) -> Result<Arc<OpenTable>> {
        let catalog = &self.state.shared.catalog;
        let mut open = self.context.bound("open", catalog.open(asked).boxed()).await?;
        if let Some(grant) = self.grant_of_part() {
            open = open.as_shown(grant).boxed().await?;
        }
        self.open = Some(Arc::clone(&open));
        self.record_table(&open);
        Ok(open)
    }

    /// Authorizes the call again while it is in progress. The call stays in the flow of the grant under which it began.
    ///
    /// # Errors
    /// The errors of [`Authorization::renew`].
    pub fn renew(&mut self) -> Result<()> {
        let NodeState { access, catalog, .. } = &*self.state.shared;
        let caller = &mut self.caller.caller;
        let Some(authorization) = &mut self.authorization else { return Ok(()) };
        authorization
            .renew(access, caller, &self.table, |name| catalog.has(name))
            .map_err(|reason| refusal(reason, &self.table, catalog))
    }

    /// Waits until the call must end, whether or not its work is done: its deadline passes, or it is no longer
    /// authorized. Returns the reason. `during` names the work. Waits forever if the call has no end, and was never
    /// authorized ([`open`](Self::open)).
    pub async fn must_end(&mut self, during: &'static str) -> QueryError {
        let context = self.context;
        tokio::select! {
            () = context.ended() => QueryError::DeadlinePassed { during },
            error = self.no_longer_allowed() => error,
        }
    }

    /// Waits until the call is no longer authorized, and returns the reason.
    async fn no_longer_allowed(&mut self) -> QueryError {
        let NodeState { access, catalog, .. } = &*self.state.shared;
        let caller = &mut self.caller.caller;
        let Some(authorization) = &mut self.authorization else { return future::pending().await };
        let is_served = |name: &str| catalog.has(name);
        let reason = authorization.withdrawn(access, caller, &self.table, is_served).await;
        refusal(reason, &self.table, catalog)
    }

    /// Charges `rows` rows to the grant's limit of rows per second.
    ///
    /// # Errors
    /// [`QueryError::LimitReached`].
    pub fn take_rows(&self, rows: usize) -> Result<()> {
        match &self.authorization {
            Some(authorization) => Ok(authorization.grant().take_rows(rows)?),
            None => Ok(()),
        }
    }

    /// Charges `rows` rows to the grant's limit of rows per second. If the limit is reached, waits until it allows
    /// them.
    ///
    /// # Errors
    /// [`QueryError::LimitReached`] if that would be after the deadline of `context`.
    pub async fn await_rows(&self, rows: usize, context: RequestContext) -> Result<()> {
        let Some(authorization) = &self.authorization else { return Ok(()) };
        let grant = authorization.grant();
        while let Err(wait) = grant.try_take_rows(rows) {
            if wait >= context.left() {
                return Err(grant.refuse_rows(wait).into());
            }
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// Counts rows of the answer, for the audit log and the grant's use.
    pub fn count_rows(&mut self, rows: usize, bytes: usize) {
        self.answered.0 += rows as u64;
        self.answered.1 += bytes as u64;
    }

    /// Raises the memory that the call holds to what its rows, `bytes` bytes in total, need.
    ///
    /// # Errors
    /// The errors of [`HeldRows::hold`].
    pub fn hold_rows(&mut self, bytes: usize) -> Result<()> {
        self.held.hold(bytes, self.context.flow())
    }

    /// Removes the call from the work in progress, because it lasts for as long as its caller reads. From here on its
    /// memory counts as that of a complete answer.
    pub fn waits_for_reader(&mut self) {
        if let Some(holder) = &self.caller.holder {
            self.held.wait_for(holder);
        }
        if std::mem::take(&mut self.is_under_way) {
            self.state.metrics.finished(self.rpc);
        }
    }

    /// Takes the memory that the call's rows hold, for as long as they are needed after the call has ended.
    pub fn take_held(&mut self) -> HeldRows {
        std::mem::replace(&mut self.held, HeldRows::new(&self.state.row_memory))
    }

    /// Takes the memory that the rows of a complete answer hold, until the connection takes the answer.
    pub fn take_ready(&mut self) -> HeldRows {
        let mut held = self.take_held();
        if let Some(holder) = &self.caller.holder {
            held.wait_for(holder);
        }
        held
    }

    /// Counts a failure that does not end the call, such as that of one batch of several. Returns the fault for the
    /// caller.
    pub fn count_failure(&self, error: QueryError) -> Fault {
        if let Some(cause) = error.refusal() {
            self.state.metrics.refused(cause);
        }
        let fault = self.fault_of(error);
        self.state.metrics.failed(fault.reason);
        fault
    }

    /// Returns the state of the core.
    pub fn shard(&self) -> &Arc<ShardState> {
        &self.state
    }

    /// Returns whether the call is one of plain HTTP.
    pub fn is_plain(&self) -> bool {
        self.rpc.is_plain()
    }

    /// Returns whether somebody will see the call's stages, because its trace is sampled or its caller has asked for
    /// `explain`.
    pub fn is_observed(&self) -> bool {
        self.stages.is_observed()
    }

    /// Makes the call collect its stages for the caller.
    pub fn explain(&mut self) {
        self.stages.explain();
    }

    /// Adds the table, its branch (unless it is the main one) and its version to the span's attributes.
    fn record_table(&mut self, open: &OpenTable) {
        if self.recording.is_some() {
            // A call may open its table again, at a newer version.
            self.attributes.clear();
            self.attributes.reserve(ATTRIBUTES);
            self.attributes.push(("bireme.table", open.name.clone().into()));
            if let Some(branch) = open.table.branch() {
                self.attributes.push(("bireme.branch", branch.to_string().into()));
            }
            self.attributes.push(("bireme.version", open.version().into()));
        }
    }

    /// Ends a stage and begins the next one. `detail` describes what the stage did.
    pub fn stage(&mut self, stage: Stage, detail: impl FnOnce() -> String) {
        let took = self.stages.end(stage, detail);
        self.state.metrics.stage(stage, took);
    }

    /// Ends a stage that fetches or scores rows, at `cost`.
    pub fn io_stage(&mut self, stage: Stage, rows: usize, cost: Cost) {
        let took = self.stages.end_io(stage, rows, cost);
        self.state.metrics.stage(stage, took);
    }

    /// Takes the stages collected for the caller.
    pub fn explained(&mut self) -> Vec<query::Stage> {
        self.stages.explained()
    }

    /// Ends the call: counts the answer, writes the call's line into the audit log, ends the recording, and maps the
    /// error to a fault.
    pub fn end<T>(mut self, answer: Result<T>) -> std::result::Result<T, Fault> {
        self.is_answered = true;
        let refusal = answer.as_ref().err().and_then(Refusal::of);
        if let Some(refusal) = &refusal {
            self.state.metrics.refused(refusal.cause);
        }
        let answer = answer.map_err(|error| self.fault_of(error));
        let fault = answer.as_ref().err();
        self.state.metrics.answered(self.rpc, fault.map(|it| it.reason), self.began.elapsed());
        self.record_end(fault.map_or(tonic::Code::Ok, |it| it.reason.code()), fault, refusal);
        if let Some(recording) = self.recording.take() {
            let (stage_records, mut attributes) =
                (self.stages.take_records(), std::mem::take(&mut self.attributes));
            let failure = fault.filter(|fault| is_service_failure(fault.reason));
            let failure = failure.map(|fault| fault.message.as_str());
            self.state.shared.tracer.end(recording, failure, |recording| {
                stage_records.add_to(recording);
                let code = fault.map_or(tonic::Code::Ok, |fault| fault.reason.code());
                let code = code_name(code);
                if !self.rpc.is_plain() {
                    attributes.push(("rpc.system.name", "grpc".into()));
                }
                attributes.push(("rpc.response.status_code", code.into()));
                attributes.extend(fault.map(|it| ("error.type", it.reason.as_str().into())));
                attributes
            });
        }
        answer
    }
}

impl Call {
    /// Converts an error to a fault that names the table as the caller does. An internal error is logged first, with
    /// the table's URI.
    fn fault_of(&self, error: QueryError) -> Fault {
        // The rows for which a grant holds memory may be hidden ones.
        let is_from_below =
            matches!(error, QueryError::Fault(_) | QueryError::GrantOutOfMemory { .. });
        let mut fault = Fault::from(error);
        let is_hidden = self.grant_of_part().is_some()
            && !may_be_shown(fault.reason, is_from_below || self.open.is_none());
        let shown = is_hidden.then(|| hidden(fault.reason, &self.table));
        let is_unreadable = matches!(shown, Some(QueryError::PartUnreadable { .. }));
        if is_unreadable || fault.reason == Reason::Internal {
            tracing::error!(trace_id = self.context.trace_id(), rpc = self.rpc.path(), "{fault}");
        }
        fault = shown.map_or(fault, Fault::from);
        match &self.open {
            Some(open) => open.named(fault),
            None => fault,
        }
    }

    /// Counts the use of the grant, and writes the call's line into the audit log.
    fn record_end(&mut self, code: tonic::Code, fault: Option<&Fault>, refusal: Option<Refusal>) {
        let (rows, bytes) = self.answered;
        if let Some(authorization) = &self.authorization {
            authorization.grant().count(rows, bytes);
        }
        let Some(line) = self.line.take() else { return };
        let verdict = if refusal.is_some() { Verdict::Denied } else { Verdict::Allowed };
        let refusal = refusal.unwrap_or_default();
        let grant = self.authorization.as_ref().map(|it| it.grant().name());
        line.record(&Record {
            time: SystemTime::now(),
            node: &self.state.shared.config.name,
            caller: Some(&self.caller.caller.identity().to_string()),
            peer: self.caller.address,
            rpc: self.rpc.path(),
            table: Some(cut_name(&self.table)).filter(|table| !table.is_empty()),
            branch: Some(self.branch.as_str()).filter(|branch| !branch.is_empty()),
            version: self.open.as_ref().map(|open| open.version()),
            grant: grant.or(refusal.grant.as_deref()),
            verdict,
            code: code_name(code),
            reason: refusal.credentials.or_else(|| fault.map(|it| it.reason.as_str())),
            rows,
            bytes,
            duration_us: self.began.elapsed().as_micros() as u64,
        });
    }
}

impl Drop for Call {
    /// Counts the call as finished. A call that is dropped before [`end`](Call::end) counts as cancelled by its caller.
    fn drop(&mut self) {
        if self.subcall.is_some() {
            return;
        }
        if self.is_under_way {
            self.state.metrics.finished(self.rpc);
        }
        self.state.activity.add();
        if !self.is_answered {
            self.state.metrics.abandoned(self.rpc, self.began.elapsed());
            self.record_end(tonic::Code::Cancelled, None, None);
        }
    }
}

/// The refusal of a call by the access policy.
#[derive(Default)]
struct Refusal {
    /// One of [`QueryError::refusals`].
    cause: &'static str,
    /// The cause, if the caller's credentials are no longer accepted. It is written into the audit log, but not into
    /// the fault, which the caller sees.
    credentials: Option<&'static str>,
    /// The grant, if one of its limits was reached.
    grant: Option<String>,
}

impl Refusal {
    fn of(error: &QueryError) -> Option<Self> {
        let cause = error.refusal()?;
        let (credentials, grant) = match error {
            QueryError::Denied(denied) => (Some(denied.as_str()), None),
            QueryError::LimitReached(reached) => (None, Some(reached.grant.clone())),
            _ => (None, None),
        };
        Some(Self { cause, credentials, grant })
    }
}

/// Returns whether the service failed. It did not if the request was wrong, not permitted, over a limit of its grant,
/// or cancelled.
fn is_service_failure(reason: Reason) -> bool {
    use tonic::Code;
    !matches!(
        reason.code(),
        Code::NotFound
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::Cancelled
            | Code::Unauthenticated
    ) && !matches!(reason, Reason::Forbidden | Reason::LimitReached)
}

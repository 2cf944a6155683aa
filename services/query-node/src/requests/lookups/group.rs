//! Answers a group: batches of one projection that are looked up together.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat;
use futures::FutureExt;
use key_proof::FoundRows;
use spelling::counted;
use tokio::task::yield_now;
use wire::query::lookup_reply::Rows;
use wire::query::{LookupBatch, LookupOpen, LookupReply, LookupResult, LookupSchema, RowFormat};
use wire::{Fault, query, schema_to_bytes};

use super::keys::key_array;
use super::projection::StreamProjection;
use super::results::{Divided, results, without_unread};
use crate::call::Call;
use crate::counters::Stage;
use crate::error::{QueryError, Result};
use crate::requests::by_key::{
    ExtraRows, Gathered, UnreadKeys, find_all_rows, find_gathered, find_readable, find_rows,
};
use crate::stages::{
    Keys, Lookup, Presence, arrow_batch, finish, json_lines, key_column, row_format,
};
use crate::state::{HeldRows, ShardState};
use crate::tables::{AskedVersion, Measure, OpenTable, Projection, ROW_ADDRESS};

/// Batches of one projection that are looked up together. Without batches, the projection is only opened.
pub struct Group {
    pub projection: Arc<StreamProjection>,
    pub batches: Vec<LookupBatch>,
}

/// The answer to a group.
pub struct GroupAnswer {
    pub projection: Arc<StreamProjection>,
    /// The schema of the rows, or the reason why the projection can't be opened. `Ok(None)` if the group failed as a
    /// whole, so that there are no rows.
    pub opened: std::result::Result<Option<RowsSchema>, Fault>,
    pub replies: Vec<HeldReply>,
}

/// A reply, and the memory of its rows.
pub struct HeldReply {
    pub reply: LookupReply,
    /// `None` if the reply has no rows.
    pub held: Option<HeldRows>,
}

/// The schema of a projection's rows at one version of its table.
pub struct RowsSchema {
    pub schema: SchemaRef,
    version: u64,
    /// Whether the client needs it to read rows.
    is_needed: bool,
}

impl RowsSchema {
    /// Returns the message that tells the client the version and, if the client needs it, the schema.
    ///
    /// # Errors
    /// If Arrow can't encode it.
    pub fn to_wire(&self, handle: u32) -> std::result::Result<LookupSchema, Fault> {
        let encode = |schema| schema_to_bytes(schema).map_err(QueryError::from);
        let schema = self.is_needed.then(|| encode(&self.schema)).transpose()?.unwrap_or_default();
        Ok(LookupSchema { handle, version: self.version, schema, error: None })
    }
}

/// The outcome of an attempt to answer batches together.
struct Attempt<T> {
    /// The reply to the batches that are answered; `None` without any.
    reply: Option<T>,
    /// The positions of the other batches: some of their rows could not be read.
    to_repeat: Vec<usize>,
}

impl From<LookupReply> for Attempt<LookupReply> {
    fn from(reply: LookupReply) -> Self {
        Self { reply: Some(reply), to_repeat: Vec::new() }
    }
}

/// Whether a look-up may share its work with other requests that wait on the core (`by_key/gather.rs`).
#[derive(Clone, Copy)]
enum Sharing {
    Gathered,
    Alone,
}

/// A projection at one version of its table.
struct Opened {
    open: Arc<OpenTable>,
    columns: Arc<Projection>,
    key_column: String,
    key_type: DataType,
    format: RowFormat,
    with_addrs: bool,
    only_presence: bool,
    all_rows: bool,
    partial: bool,
}

impl Group {
    /// Answers every batch, or the opening of the projection, with `fault`.
    pub fn refuse(self, fault: &Fault) -> GroupAnswer {
        let ids: Vec<u64> = self.batches.iter().map(|batch| batch.id).collect();
        refused(self.projection, &ids, fault)
    }

    /// Answers the group. Ends `call`.
    pub async fn answer(self, state: &ShardState, mut call: Call) -> GroupAnswer {
        let Self { projection, batches } = self;
        let ids: Vec<u64> = batches.iter().map(|batch| batch.id).collect();
        let answered = async {
            let opened = Opened::of(&projection.open, &mut call).await?;
            let handle = projection.open.handle;
            let replies = opened.answer_batches(state, handle, batches, &mut call).await?;
            Ok((opened.schema(), replies))
        };
        let answered = answered.await;
        match call.end(answered) {
            Ok((schema, replies)) => GroupAnswer { projection, opened: Ok(Some(schema)), replies },
            Err(fault) => refused(projection, &ids, &fault),
        }
    }
}

fn refused(projection: Arc<StreamProjection>, ids: &[u64], fault: &Fault) -> GroupAnswer {
    let handle = projection.open.handle;
    let (opened, replies) = match ids {
        [] => (Err(fault.clone()), Vec::new()),
        _ => (Ok(None), vec![failed(handle, ids, fault)]),
    };
    GroupAnswer { projection, opened, replies }
}

impl Opened {
    async fn of(asked: &LookupOpen, call: &mut Call) -> Result<Self> {
        call.context = call.context.with_priority(asked.priority)?;
        let format = row_format(asked.format)?;
        if asked.only_presence && !asked.columns.is_empty() {
            let problem =
                "is given, but `only_presence` returns no rows; give one of the two".into();
            return Err(QueryError::BadRequest { field: "columns", problem });
        }
        if asked.only_presence && asked.all_rows {
            let problem = "is set, but `only_presence` returns no rows; set one of the two".into();
            return Err(QueryError::BadRequest { field: "all_rows", problem });
        }
        if asked.partial && (asked.only_presence || asked.all_rows) {
            let problem = "is set, but `only_presence` or `all_rows` is too; set one of them";
            return Err(QueryError::BadRequest { field: "partial", problem: problem.into() });
        }
        let LookupOpen { table, branch, version, .. } = asked;
        let version = AskedVersion { table, branch, version: *version };
        let open = call.open_shown(version).boxed().await?;
        let columns = open.project(&asked.columns)?;
        let key_column = key_column(&open, &asked.key_column)?;
        let key_type = open.table.schema().field_with_name(&key_column)?.data_type().clone();
        // Keys are compared with the values of fetched rows, which have wire types.
        if pack::wire_type(&key_type) != key_type {
            let problem = format!(
                "is `{key_column}`, and columns of type {key_type} can't be looked up by key"
            );
            return Err(QueryError::BadRequest { field: "key_column", problem });
        }
        let with_addrs = asked.columns.iter().any(|column| column == ROW_ADDRESS);
        let LookupOpen { only_presence, all_rows, partial, .. } = *asked;
        Ok(Self {
            open,
            columns,
            key_column,
            key_type,
            format,
            with_addrs,
            only_presence,
            all_rows,
            partial,
        })
    }

    /// Returns the schema of the rows.
    fn schema(&self) -> RowsSchema {
        let wire = &self.columns.wire_schema;
        let schema = match self.with_addrs {
            false => Arc::clone(wire),
            true => {
                let addr = Arc::new(Field::new(ROW_ADDRESS, DataType::UInt64, false));
                let fields: Vec<_> = wire.fields().iter().cloned().chain([addr]).collect();
                Arc::new(Schema::new_with_metadata(fields, wire.metadata().clone()))
            }
        };
        let is_needed = self.format == RowFormat::Arrow && !self.only_presence;
        RowsSchema { schema, version: self.open.version(), is_needed }
    }

    /// Answers the batches together. If that fails, and the cause may lie in one batch or in how many there are,
    /// answers each batch alone; and likewise each batch of which only some rows could be read.
    ///
    /// # Errors
    /// The error of a failure that all batches share. Failures of single batches are in the replies.
    async fn answer_batches(
        &self,
        state: &ShardState,
        handle: u32,
        batches: Vec<LookupBatch>,
        call: &mut Call,
    ) -> Result<Vec<HeldReply>> {
        let mut failures: Vec<(Vec<u64>, QueryError)> = Vec::new();
        let mut valid = Vec::with_capacity(batches.len());
        for LookupBatch { id, keys, .. } in batches {
            match key_array(keys, &self.key_type) {
                Ok(keys) => valid.push((id, keys)),
                Err(error) => failures.push((vec![id], error)),
            }
        }
        let rows = valid.iter().map(|(_, keys)| keys.len()).sum();
        if !valid.is_empty()
            && let Err(error) = call.take_rows(rows)
        {
            // The limit would not allow one batch alone either: it allows any number of rows once it allows one.
            failures.push((valid.drain(..).map(|(id, _)| id).collect(), error));
        }
        call.stage(Stage::Validate, || counted(valid.len(), "batch"));
        let mut replies = Vec::with_capacity(1);
        let mut extra = ExtraRows::default();
        let together = Sharing::Gathered;
        let alone = match self.held_reply(state, handle, &valid, together, &mut extra, call).await {
            Ok(Attempt { reply, to_repeat }) => {
                replies.extend(reply);
                to_repeat
            }
            Err(error) if valid.len() > 1 && may_be_of_one(&error) => (0..valid.len()).collect(),
            Err(error) => {
                failures.push((valid.iter().map(|(id, _)| *id).collect(), error));
                Vec::new()
            }
        };
        for at in alone {
            let (one, sharing) = (&valid[at..=at], Sharing::Alone);
            match self.held_reply(state, handle, one, sharing, &mut extra, call).await {
                Ok(attempt) => replies.extend(attempt.reply),
                Err(error) => failures.push((vec![valid[at].0], error)),
            }
        }
        if replies.is_empty() && failures.len() == 1 {
            return Err(failures.remove(0).1);
        }
        let failed = |(ids, error): (Vec<u64>, _)| failed(handle, &ids, &call.count_failure(error));
        replies.extend(failures.into_iter().map(failed));
        Ok(replies)
    }

    /// Looks up the keys of batches together. The memory of the rows is that of the reply: the call holds none
    /// afterwards, so that the replies of a group are counted one beside the other.
    async fn held_reply(
        &self,
        state: &ShardState,
        handle: u32,
        batches: &[(u64, ArrayRef)],
        sharing: Sharing,
        extra: &mut ExtraRows,
        call: &mut Call,
    ) -> Result<Attempt<HeldReply>> {
        let found = self.found(state, handle, batches, sharing, extra, call).await;
        let held = Some(call.take_ready());
        let Attempt { reply, to_repeat } = found?;
        if reply.is_some() {
            extra.answered();
        }
        Ok(Attempt { reply: reply.map(|reply| HeldReply { reply, held }), to_repeat })
    }

    /// Looks up the keys of batches together. The call holds the memory of the rows.
    async fn found(
        &self,
        state: &ShardState,
        handle: u32,
        batches: &[(u64, ArrayRef)],
        sharing: Sharing,
        extra: &mut ExtraRows,
        call: &mut Call,
    ) -> Result<Attempt<LookupReply>> {
        let keys = match batches {
            [] => return Ok(Attempt { reply: None, to_repeat: Vec::new() }),
            [(_, keys)] => Arc::clone(keys),
            _ => concat(&batches.iter().map(|(_, keys)| keys.as_ref()).collect::<Vec<_>>())?,
        };
        let asked = Keys { open: &self.open, column: &self.key_column, keys: &keys };
        let version = self.open.version();
        if self.only_presence && self.open.hides_rows() {
            // The index also has the keys of hidden rows, so the rows are read.
            let nothing = self.open.project(&[ROW_ADDRESS.to_owned()])?;
            let found = find_rows(state, asked, &nothing, Stage::Fetch, call).boxed().await?;
            let results = results(batches, &found.keys, &[], &[], None, false);
            return Ok(LookupReply { handle, version, results, rows: None }.into());
        }
        if self.only_presence {
            let mut lookup = Lookup::begin(state, asked, call.context).await?;
            let Presence { found, unproven } = lookup.presence(state).await?;
            lookup.count(state);
            call.stage(Stage::Lookup, || counted(keys.len(), "key"));
            let results = results(batches, &found, &unproven, &[], None, false);
            return Ok(LookupReply { handle, version, results, rows: None }.into());
        }
        let (columns, fetch) = (&self.columns, Stage::Fetch);
        let Gathered { found, unread, .. } = match (self.all_rows, sharing) {
            (true, _) => {
                find_all_rows(state, asked, columns, fetch, extra, call).boxed().await?.into()
            }
            (false, Sharing::Alone) => self.found_alone(state, asked, call).await?,
            (false, Sharing::Gathered) => self.found_together(state, asked, call).await?,
        };
        if batches.len() == 1 || unread.keys.is_empty() {
            return Ok(self.reply(handle, batches, &found, unread, call)?.into());
        }
        // Rows of one batch that can't be read may have used up the divisions that would have found those of another,
        // and there is one error for all.
        let divided = without_unread(batches, found, &unread.keys)?;
        let Divided { read, found, others: to_repeat } = divided;
        let reply = match read.as_slice() {
            [] => None,
            batches => Some(self.reply(handle, batches, &found, UnreadKeys::default(), call)?),
        };
        Ok(Attempt { reply, to_repeat })
    }

    /// Returns the reply to batches whose rows are `found`.
    fn reply(
        &self,
        handle: u32,
        batches: &[(u64, ArrayRef)],
        found: &FoundRows,
        unread: UnreadKeys,
        call: &mut Call,
    ) -> Result<LookupReply> {
        let (rows, bytes) = self.encode(found)?;
        let fault = unread.error.map(|error| call.count_failure(error));
        let results =
            results(batches, &found.keys, &[], &unread.keys, fault.as_ref(), self.all_rows);
        call.count_rows(found.keys.len(), bytes);
        call.stage(Stage::Reply, || counted(bytes, "byte"));
        let version = self.open.version();
        Ok(LookupReply { handle, version, results, rows: Some(rows) })
    }

    /// Finds rows together with other requests. If there is no memory for these rows beside those of the other
    /// requests, finds them alone.
    async fn found_together(
        &self,
        state: &ShardState,
        asked: Keys<'_>,
        call: &mut Call,
    ) -> Result<Gathered> {
        let gathered = find_gathered(asked, &self.columns, self.partial, call).boxed().await?;
        let own = match self.format {
            RowFormat::Arrow => gathered.into_own(call),
            // The encoded rows are a copy.
            RowFormat::Json => gathered.held_by(call),
        };
        match own {
            Err(QueryError::OutOfMemory | QueryError::GrantOutOfMemory { .. }) => {
                // The other requests are ready, and drop the rows that were found together.
                yield_now().await;
                self.found_alone(state, asked, call).await
            }
            own => own,
        }
    }

    /// Finds rows without sharing work.
    async fn found_alone(
        &self,
        state: &ShardState,
        asked: Keys<'_>,
        call: &mut Call,
    ) -> Result<Gathered> {
        let (columns, fetch) = (&self.columns, Stage::Fetch);
        Ok(match self.partial {
            true => find_readable(state, asked, columns, fetch, call).boxed().await?.into(),
            false => find_rows(state, asked, columns, fetch, call).boxed().await?.into(),
        })
    }

    /// Encodes rows. Also returns their size in bytes.
    fn encode(&self, found: &FoundRows) -> Result<(Rows, usize)> {
        let addrs = || found.addrs.iter().map(|addr| addr.to_u64());
        Ok(match self.format {
            RowFormat::Arrow => {
                let mut columns = found.rows.columns().to_vec();
                if self.with_addrs {
                    columns.push(Arc::new(UInt64Array::from_iter_values(addrs())));
                }
                let batch = arrow_batch(found.keys.len(), &columns)?;
                let bytes = batch.bytes();
                (Rows::Arrow(batch), bytes)
            }
            RowFormat::Json => {
                let addrs = addrs().collect();
                let rows = finish(&found.rows, &self.columns, Measure::Nothing, addrs, Vec::new())?;
                let columns = self.columns.columns.len() + usize::from(self.with_addrs);
                let lines = json_lines(&rows.project(&(0..columns).collect::<Vec<_>>())?)?;
                let bytes = lines.len();
                (Rows::Json(lines), bytes)
            }
        })
    }
}

fn failed(handle: u32, ids: &[u64], fault: &Fault) -> HeldReply {
    let error = || Some(query::Error::from(fault.clone()));
    let result = |&id| LookupResult { id, error: error(), ..Default::default() };
    let results = ids.iter().map(result).collect();
    HeldReply { reply: LookupReply { handle, results, ..Default::default() }, held: None }
}

/// Returns whether a group may fail with `error` because of one of its batches, or because of their number.
fn may_be_of_one(error: &QueryError) -> bool {
    use QueryError::{
        BatchRows, Fault, GrantOutOfMemory, KeyRows, Lake, LimitReached, OutOfMemory, Pack,
        TooLarge,
    };
    matches!(
        error,
        Fault(_)
            | Lake(_)
            | LimitReached(_)
            | GrantOutOfMemory { .. }
            | OutOfMemory
            | Pack(_)
            | TooLarge { .. }
            | KeyRows { .. }
            | BatchRows { .. }
    )
}

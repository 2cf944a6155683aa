//! Callers, each of which makes random calls with its own credentials. A caller checks every answer against the
//! policies that were in force during the call, and every row against its table.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access_model::{ABSENT, May, Policy, TABLES, Verdict, Who};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use client::fetch::Instant;
use client::query::{
    By, CountRequest, GetRequest, GottenRows, ListVersionsRequest, LookupOpen, OnMissing,
    PlacementRequest, QueryClient, RowFormat, SearchRequest, TakeRequest, TuneRequest, Vector,
    WarmRequest, keys_of,
};
use futures::{StreamExt, stream};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;
use wire::fetch::RowRange;
use wire::{Fault, Reason};

use super::BROKEN;
use super::policy_file::PolicyFile;
use super::tables::{TestTable, key};

/// The maximum time for which a caller waits for the next progress report of a Warm or a Tune.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state that all callers of a run share.
pub struct Around {
    pub seed: u64,
    pub file: PolicyFile,
    pub tables: Vec<TestTable>,
    /// The folder that contains all tables. No answer may contain its path, except a Status for a caller that may see
    /// all tables.
    pub folder: String,
    pub counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Around {
    pub fn count(&self, what: &'static str, more: usize) {
        *self.counts.lock().unwrap().entry(what).or_default() += more as u64;
    }
}

/// A caller with its credentials.
pub struct Caller {
    pub who: Who,
    pub client: QueryClient,
    pub dice: StdRng,
    pub around: Arc<Around>,
}

/// A call that concerns one table.
struct Asked {
    rpc: &'static str,
    table: &'static str,
    may: May,
    /// Whether the call is a request on a stream, whose caller was identified when the stream began.
    is_streamed: bool,
    began: Instant,
}

impl Caller {
    pub async fn turn(&mut self) {
        match self.dice.random_range(0..22) {
            0..=3 => self.search().await,
            4..=7 => self.get().await,
            8 => self.get_stream().await,
            9..=10 => self.lookups().await,
            11..=13 => self.take().await,
            14 => self.describe().await,
            15 => self.placement().await,
            16 => self.warm().await,
            17 => self.list().await,
            18 => self.tune().await,
            19 => self.count().await,
            20 => self.versions().await,
            _ => self.status().await,
        }
    }

    /// Returns a random table name, for which a table may or may not exist.
    fn table(&mut self) -> &'static str {
        match self.dice.random_range(0..10) {
            0 => ABSENT[self.dice.random_range(0..ABSENT.len())],
            _ => TABLES[self.dice.random_range(0..TABLES.len())],
        }
    }

    /// Returns the expected contents of a table, if a table of that name exists.
    fn truth(&self, table: &str) -> Option<&TestTable> {
        self.around.tables.iter().find(|it| it.name == table)
    }

    /// Returns a random version of a table: usually 0 for the current one, sometimes an earlier one or one that does
    /// not exist.
    fn version(&mut self, table: &str) -> u64 {
        let versions = self.truth(table).map(TestTable::versions).unwrap_or_default();
        match self.dice.random_range(0..10) {
            0 => 9999,
            1..=3 if !versions.is_empty() => versions[self.dice.random_range(0..versions.len())],
            _ => 0,
        }
    }

    fn columns(&mut self) -> Vec<String> {
        let columns: &[&str] = match self.dice.random_range(0..8) {
            0 => &["id"],
            1 => &["text"],
            2 => &["vector", "key"],
            3 => &["txt"],
            _ => &[],
        };
        columns.iter().map(|&name| name.into()).collect()
    }

    fn keys(&mut self) -> Vec<String> {
        let count = self.dice.random_range(1..6);
        (0..count).map(|_| key(self.dice.random_range(0..400))).collect()
    }

    fn asks(&self, rpc: &'static str, table: &'static str, may: May) -> Asked {
        Asked { rpc, table, may, is_streamed: false, began: Instant::now() }
    }

    async fn search(&mut self) {
        let table = self.table();
        let row = self.dice.random_range(0..400);
        let near = self.truth(table).map(|it| it.query(row));
        let by = match self.dice.random_range(0..3) {
            0 => Some(By::Like(key(row))),
            1 => None,
            _ => Some(By::Vector(Vector { values: near.unwrap_or_else(|| vec![0.0; 8]) })),
        };
        let is_filtered = by.is_none() || self.dice.random_bool(0.4);
        let request = SearchRequest {
            table: table.into(),
            version: self.version(table),
            filter: if is_filtered { "id % 3 = 1".into() } else { String::new() },
            by,
            k: self.dice.random_range(1..30),
            columns: self.columns(),
            explain: true,
            ..Default::default()
        };
        let asked = self.asks("Search", table, May::Read);
        let found = self.client.search(request).await;
        if let Some(found) = self.judge(&asked, found) {
            self.check(&asked, &found.rows, found.version).await;
        }
    }

    fn get_request(&mut self, table: &str) -> GetRequest {
        let (version, keys, columns) = (self.version(table), self.keys(), self.columns());
        GetRequest { table: table.into(), version, keys, columns, ..Default::default() }
    }

    async fn get(&mut self) {
        let table = self.table();
        let mut request = self.get_request(table);
        if self.dice.random_bool(0.3) {
            request.set_format(RowFormat::Json);
        }
        let asked = self.asks("Get", table, May::Read);
        let gotten = self.client.get(request).await;
        if let Some(gotten) = self.judge(&asked, gotten) {
            self.check_gotten(&asked, gotten.rows, gotten.version).await;
        }
    }

    async fn check_gotten(&self, asked: &Asked, rows: GottenRows, version: u64) {
        match rows {
            GottenRows::Arrow(rows) => self.check(asked, &rows, version).await,
            GottenRows::Json(lines) => {
                let truth = self.truth(asked.table).unwrap().version(version).await;
                for line in lines.lines() {
                    let row: Value = serde_json::from_str(line).unwrap();
                    let own = truth.get(&row["_rowaddr"].as_u64().unwrap());
                    let is_own = own.is_some_and(|(id, text)| {
                        row.get("id").is_none_or(|it| it.as_i64() == Some(*id))
                            && row.get("text").is_none_or(|it| it.as_str() == Some(text))
                    });
                    assert!(is_own, "{}: {line} is no row of version {version}", self.said(asked));
                    self.around.count("rows", 1);
                }
            }
        }
    }

    /// Sends a few requests for different tables over one stream, with pauses between them.
    async fn get_stream(&mut self) {
        let tables: Vec<_> = (0..self.dice.random_range(1..6)).map(|_| self.table()).collect();
        let requests: Vec<_> = tables.iter().map(|table| self.get_request(table)).collect();
        let pause = Duration::from_millis(self.dice.random_range(0..40));
        let opened = Instant::now();
        let paced = stream::iter(requests).then(move |request| async move {
            tokio::time::sleep(pause).await;
            request
        });
        let answers = self.client.get_stream(paced, RowFormat::Arrow).await;
        let mut answers = match answers {
            Ok(answers) => answers,
            // The whole stream was refused.
            Err(fault) => return self.identified(&fault, opened),
        };
        for (number, table) in (1..).zip(tables) {
            let Some(answer) = answers.next().await else { return };
            let mut asked = self.asks("GetStream", table, May::Read);
            // The request was sent no earlier than this.
            (asked.is_streamed, asked.began) = (true, opened + pause * number);
            if let Some(gotten) = self.judge(&asked, answer) {
                self.check_gotten(&asked, gotten.rows, gotten.version).await;
            }
        }
    }

    /// Looks up keys in different tables over one Lookup stream, with pauses in which the policy may change.
    async fn lookups(&mut self) {
        let began = Instant::now();
        let stream = match self.client.lookups().await {
            Ok(stream) => stream,
            // The whole stream was refused.
            Err(fault) => return self.identified(&fault, began),
        };
        // The node ends the stream when it no longer accepts the caller's credentials. All later calls on the stream get
        // the same fault, whatever the policy is by then.
        let has_ended = |fault: &Fault| fault.reason == Reason::Unauthenticated;
        for _ in 0..self.dice.random_range(1..4) {
            let table = self.table();
            let mut columns = self.columns();
            columns.push("_rowaddr".into());
            let version = self.version(table);
            let open = LookupOpen { table: table.into(), version, columns, ..Default::default() };
            let mut asked = self.asks("Lookup", table, May::Read);
            asked.is_streamed = true;
            let opened = stream.open(open).await;
            let projection = match opened {
                Ok(projection) => projection,
                Err(fault) if has_ended(&fault) => return self.identified(&fault, began),
                Err(fault) => {
                    self.judge::<()>(&asked, Err(fault));
                    continue;
                }
            };
            for _ in 0..self.dice.random_range(1..5) {
                let pause = Duration::from_millis(self.dice.random_range(0..20));
                tokio::time::sleep(pause).await;
                let keys: ArrayRef = Arc::new(StringArray::from(self.keys()));
                asked.began = Instant::now();
                let answer = projection.get(keys_of(&keys).unwrap()).await;
                if let Err(fault) = &answer
                    && has_ended(fault)
                {
                    return self.identified(fault, began);
                }
                if let Some(answer) = self.judge(&asked, answer) {
                    let rows = answer.rows.expect("rows were asked for");
                    self.check_gotten(&asked, rows, answer.version).await;
                }
            }
        }
    }

    async fn take(&mut self) {
        let table = self.table();
        let version = self.version(table);
        // The addresses come from any table, because the rows of different tables have the same addresses.
        let around = Arc::clone(&self.around);
        let known = &around.tables[self.dice.random_range(0..around.tables.len())];
        let versions = known.versions();
        let rows = known.version(versions[self.dice.random_range(0..versions.len())]).await;
        let rows: Vec<u64> = rows.keys().copied().collect();
        let is_long = self.dice.random_bool(0.25);
        let count = if is_long { 40_000 } else { self.dice.random_range(1..40) };
        let row_addrs = (0..count).map(|_| rows[self.dice.random_range(0..rows.len())]).collect();
        let mut request = TakeRequest {
            table: table.into(),
            version,
            row_addrs,
            columns: self.columns(),
            ..Default::default()
        };
        if self.dice.random_bool(0.8) {
            request.set_on_missing(OnMissing::Skip);
        }
        let pause = Duration::from_millis(if is_long { self.dice.random_range(0..80) } else { 0 });
        let asked = self.asks("Take", table, May::Read);
        let taken = self.client.take(request).await;
        let mut parts = match taken {
            Ok(parts) => parts,
            Err(fault) => {
                self.judge::<()>(&asked, Err(fault));
                return;
            }
        };
        loop {
            let part = parts.next().await;
            let was_fault = part.is_err();
            let Some(part) = self.judge(&asked, part) else {
                self.around.count("streams ended by a fault", usize::from(was_fault));
                return;
            };
            let Some(part) = part else { return };
            for batch in &part.batches {
                self.check(&asked, batch, part.version).await;
            }
            tokio::time::sleep(pause).await;
        }
    }

    pub async fn describe(&mut self) {
        let table = self.table();
        let version = self.version(table);
        let asked = self.asks("DescribeTable", table, May::Read);
        let described = self.client.describe(table, version).await;
        if let Some(described) = self.judge(&asked, described) {
            let truth = self.truth(table).unwrap().version(described.response.version).await;
            assert_eq!(described.response.rows, truth.len() as u64, "{}", self.said(&asked));
        }
    }

    pub async fn count(&mut self) {
        let table = self.table();
        let version = self.version(table);
        let filter = ["", "id IS NOT NULL"][self.dice.random_range(0..2)];
        let asked = self.asks("Count", table, May::Read);
        let (table_name, filter) = (table.into(), filter.into());
        let request = CountRequest { table: table_name, version, filter, ..Default::default() };
        let counted = self.client.count(request).await;
        if let Some(counted) = self.judge(&asked, counted) {
            let truth = self.truth(table).unwrap().version(counted.version).await;
            assert_eq!(counted.rows, truth.len() as u64, "{}", self.said(&asked));
        }
    }

    pub async fn versions(&mut self) {
        let table = self.table();
        let known = self.truth(table).and_then(|truth| truth.versions().into_iter().max());
        let asked = self.asks("ListVersions", table, May::Read);
        let request = ListVersionsRequest { table: table.into(), ..Default::default() };
        let listed = self.client.list_versions(request).await;
        if let Some(listed) = self.judge(&asked, listed) {
            let listed: Vec<u64> = listed.versions.iter().map(|it| it.version).collect();
            assert!(listed.is_sorted_by(|a, b| a > b), "{listed:?}");
            assert!(listed.first() >= known.as_ref(), "{listed:?}: {known:?}");
        }
    }

    pub async fn placement(&mut self) {
        let table = self.table();
        let version = self.version(table);
        let request = PlacementRequest {
            table: table.into(),
            version,
            name_chunks: true,
            ..Default::default()
        };
        let asked = self.asks("Placement", table, May::Observe);
        let placed = self.client.placement(request).await;
        self.judge(&asked, placed);
    }

    pub async fn warm(&mut self) {
        let table = self.table();
        let rows = vec![RowRange { first: 0, end: self.dice.random_range(1..40) }];
        let request = WarmRequest { table: table.into(), rows, ..Default::default() };
        let asked = self.asks("Warm", table, May::Warm);
        let warmed = self.client.warm(request).await;
        let mut steps = match warmed {
            Ok(steps) => steps,
            Err(fault) => {
                self.judge::<()>(&asked, Err(fault));
                return;
            }
        };
        while let Ok(Some(step)) = tokio::time::timeout(PATIENCE, steps.next()).await {
            if self.judge(&asked, step).is_none() {
                return;
            }
        }
    }

    async fn tune(&mut self) {
        let table = self.table();
        let version = self.version(table);
        let request = TuneRequest { table: table.into(), version, rows: 2, ..Default::default() };
        let asked = self.asks("Tune", table, May::Warm);
        let mut steps = match self.client.tune(request).await {
            Ok(steps) => steps,
            Err(fault) => {
                self.judge::<()>(&asked, Err(fault));
                return;
            }
        };
        while let Ok(Some(step)) = tokio::time::timeout(PATIENCE, steps.next()).await {
            if self.judge(&asked, step).is_none() {
                return;
            }
        }
    }

    async fn list(&mut self) {
        let began = Instant::now();
        let listed = self.client.tables().await;
        let policies = self.around.file.in_force(began, Instant::now());
        match listed {
            Ok(listed) => {
                let names: Vec<_> = listed.iter().map(|it| it.name.as_str()).collect();
                let is_right = policies
                    .iter()
                    .any(|it| it.visible(self.who).is_some_and(|visible| names == visible));
                assert!(is_right, "{}: ListTables has {names:?}: {policies:?}", self.name());
                self.hides(&format!("{listed:?}"), "", began, "ListTables");
                self.around.count("ListTables", 1);
            }
            Err(fault) => self.identified(&fault, began),
        }
    }

    async fn status(&mut self) {
        let began = Instant::now();
        let status = self.client.status().await;
        let policies = self.around.file.in_force(began, Instant::now());
        match status {
            Ok(status) => {
                let names: Vec<_> = status.tables.iter().map(|it| it.name.as_str()).collect();
                let is_right = policies.iter().any(|it| {
                    it.observes(self.who) == Some(true)
                        && it.visible(self.who).is_some_and(|visible| names == visible)
                });
                assert!(is_right, "{}: Status has {names:?}: {policies:?}", self.name());
                self.hides(&format!("{status:?}"), "", began, "Status");
                let details = status.io_nodes.iter().filter(|it| !it.tables.is_empty()).count();
                self.around.count("nodes whose tables Status shows", details);
                self.around.count("Status", 1);
            }
            Err(fault) if fault.reason == Reason::Forbidden => {
                let is_right = policies.iter().any(|it| it.observes(self.who) == Some(false));
                assert!(is_right, "{}: {fault}: {policies:?}", self.name());
                let said = "no grant lets you observe this node; ask the operator for one with `may = [\"observe\"]`";
                assert_eq!(fault.message, said);
            }
            Err(fault) => self.identified(&fault, began),
        }
    }

    /// Checks a fault that concerns no table: the caller was not identified, or the fault is neutral.
    fn identified(&self, fault: &Fault, began: Instant) {
        if is_neutral(fault.reason) {
            return;
        }
        let policies = self.around.file.in_force(began, Instant::now());
        let unknown = policies.iter().any(|it| it.visible(self.who).is_none());
        assert!(unknown && is_denial(fault), "{}: {fault:?}: {policies:?}", self.name());
        self.around.count("unauthenticated", 1);
    }

    /// Checks the outcome of a call that concerns one table against the policies that were in force during the call.
    /// Returns the answer, if there is one.
    fn judge<T: Debug>(&self, asked: &Asked, answer: Result<T, Fault>) -> Option<T> {
        let ended = Instant::now();
        let policies = self.around.file.in_force(asked.began, ended);
        let verdicts: Vec<_> =
            policies.iter().map(|it| it.verdict(self.who, asked.table, asked.may)).collect();
        let is_allowed = verdicts.contains(&Verdict::Allowed);
        let counted = match &answer {
            Ok(_) => {
                assert!(is_allowed, "{}: answered, although {verdicts:?}", self.said(asked));
                asked.rpc
            }
            Err(fault) if is_neutral(fault.reason) => "neutral",
            Err(fault) => {
                let verdict = match fault.reason {
                    Reason::Unauthenticated => {
                        assert!(is_denial(fault), "{fault:?}");
                        Verdict::Unauthenticated
                    }
                    Reason::Forbidden => Verdict::Forbidden(fault.message.clone()),
                    Reason::TableNotFound if !(is_allowed && self.is_broken(asked, fault)) => {
                        assert_eq!(
                            fault.metadata.get("table").map(String::as_str),
                            Some(asked.table)
                        );
                        assert_eq!(fault.metadata.len(), 1, "{fault:?}");
                        Verdict::Unknown(fault.message.clone())
                    }
                    _ => Verdict::Allowed,
                };
                let said = self.said(asked);
                assert!(verdicts.contains(&verdict), "{said}: {fault:?}, although {verdicts:?}");
                match verdict {
                    Verdict::Unauthenticated => "unauthenticated",
                    Verdict::Forbidden(_) => "forbidden",
                    Verdict::Unknown(_) if ABSENT.contains(&asked.table) => "absent",
                    Verdict::Unknown(_) => "unknown",
                    Verdict::Allowed => "other faults",
                }
            }
        };
        self.hides(&format!("{answer:?}"), asked.table, asked.began, asked.rpc);
        self.around.count(counted, 1);
        self.around.count("calls while the policy changed", usize::from(policies.len() > 1));
        answer.ok()
    }

    /// Returns whether the fault is the expected one for [`BROKEN`], which is configured but does not exist.
    fn is_broken(&self, asked: &Asked, fault: &Fault) -> bool {
        asked.table == BROKEN && fault.message.contains(&format!("no table at <{BROKEN}>"))
    }

    /// Checks that an answer names no table that the caller was not allowed to see at any time since `began`, except
    /// the table named in the caller's own request, and that the answer does not contain the folder of the tables.
    fn hides(&self, shown: &str, asked: &str, began: Instant, rpc: &str) {
        let policies = self.around.file.in_force(began, Instant::now());
        for table in TABLES.iter().filter(|&&table| table != asked) {
            let is_seen = policies.iter().any(|it| it.sees(self.who, table));
            assert!(
                is_seen || !shown.contains(table),
                "{}: {rpc} of `{asked}` names `{table}`: {shown}: {policies:?}",
                self.name()
            );
        }
        // Status contains the locations of tables, but only for callers that may see all tables.
        let sees_all = |it: &Arc<Policy>| it.visible(self.who).is_some_and(|it| it == TABLES);
        let is_hidden = !shown.contains(&self.around.folder)
            || rpc == "Status" && policies.iter().any(sees_all);
        assert!(is_hidden, "{}: {rpc} of `{asked}` names a folder: {shown}", self.name());
    }

    /// Checks rows against the expected contents of the requested table.
    async fn check(&self, asked: &Asked, rows: &RecordBatch, version: u64) {
        let table = self.truth(asked.table).expect("rows come only from tables that exist");
        if let Err(difference) = table.check(rows, version).await {
            panic!("{}: {difference}", self.said(asked));
        }
        self.around.count("rows", rows.num_rows());
    }

    fn name(&self) -> String {
        format!("seed {}, {:?}", self.around.seed, self.who)
    }

    fn said(&self, asked: &Asked) -> String {
        let mut said = self.name();
        write!(said, ": {} of `{}`", asked.rpc, asked.table).unwrap();
        if asked.is_streamed {
            said.push_str(" on a stream");
        }
        said
    }
}

/// Returns whether a fault reveals nothing about tables, because it concerns the request or the node.
fn is_neutral(reason: Reason) -> bool {
    use Reason::{BadArgument, DeadlineExceeded, NodeUnavailable, Overloaded};
    matches!(reason, BadArgument | DeadlineExceeded | NodeUnavailable | Overloaded)
}

/// Returns whether a fault is the one that every unidentified caller gets, whatever the cause.
fn is_denial(fault: &Fault) -> bool {
    fault.reason == Reason::Unauthenticated
        && fault.message == access::Denied::Expired.to_string()
        && fault.metadata.is_empty()
}

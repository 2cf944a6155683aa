//! Key clients: each looks batches of keys up in a key index, fetches the rows that may have them, and compares every
//! answer with a plain map, while versions are published.
//!
//! They find rows as query nodes do, with the query nodes' own code: the key index names candidates, [`DistinctRows`]
//! are fetched with their key column, and [`Rounds`] drops rows with another key and says which keys to try again.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use client::fetch::{FetchClient, Instant, TableVersion};
use key_index::{Found, Pages, RunSet};
use key_proof::{DistinctRows, FoundRows, Rounds};
use wire::{Fault, Reason};

use crate::clients::{Around, check_idle, count, dial, options};
use crate::dice::Dice;
use crate::key_index::KeyIndex;
use crate::keyed::{KEYS, ROWS_OF_KEYS, key, keyed_versions};
use crate::truth::Version;

/// One client.
pub struct KeyClient {
    number: usize,
    dice: Dice,
    nodes: Vec<FetchClient>,
    index: RefCell<KeyIndex>,
    /// The position of the latest version that is published. It and the one before are in use.
    latest: Cell<usize>,
    around: Around,
}

/// A batch of keys to look up.
struct KeysAsk {
    /// The position of the version.
    version: usize,
    runs: RunSet,
    columns: Vec<String>,
    keys: ArrayRef,
    /// The node that is asked first. Each round asks another one.
    node: usize,
    deadline: Instant,
}

impl KeyClient {
    /// Creates a client of all nodes. Must be called within the clients' runtime.
    pub fn new(seed: u64, number: usize, around: Around) -> Self {
        let mut dice = Dice::new(seed, &format!("key client {number}"));
        let options = options(&mut dice, &around);
        let nodes = around.names.iter().map(|name| dial(name, &options)).collect();
        let latest = Cell::new(dice.below(keyed_versions().len()));
        let index = RefCell::new(KeyIndex::new(&mut dice));
        let client = Self { number, dice, nodes, index, latest, around };
        client.follow();
        client
    }

    /// Looks keys up until [`Wishes::is_to_end`](crate::clients::Wishes::is_to_end) is set.
    pub async fn run(mut self) {
        while !self.around.wishes.is_to_end.get() {
            let pause = self.dice.ms(0..=12);
            tokio::time::sleep(pause).await;
            self.turn().await;
        }
        check_idle(&self.nodes, &self.around, format_args!("key client {}", self.number)).await;
    }

    /// Looks up a few batches concurrently. Meanwhile, a version may be published.
    async fn turn(&mut self) {
        let asks: Vec<_> = (0..1 + self.dice.below(3)).map(|_| self.ask()).collect();
        let patience = self.dice.per_mille(80).then(|| self.dice.ms(0..=40));
        let publishes = self.dice.per_mille(200).then(|| self.dice.ms(0..=10));
        let this = &*self;
        let finds = futures::future::join_all(asks.into_iter().map(|ask| this.look_up(ask)));
        let publish = async {
            if let Some(after) = publishes {
                tokio::time::sleep(after).await;
                this.publish();
            }
        };
        let both = futures::future::join(finds, publish);
        match patience {
            None => drop(both.await),
            Some(patience) => {
                if tokio::time::timeout(patience, both).await.is_err() {
                    count(&self.around.seen.dropped, 1);
                }
            }
        }
    }

    fn publish(&self) {
        if self.latest.get() + 1 < keyed_versions().len() {
            self.latest.set(self.latest.get() + 1);
            count(&self.around.seen.versions_published, 1);
            self.follow();
        }
    }

    fn follow(&self) {
        let latest = self.latest.get();
        let in_use: Vec<&Version> =
            keyed_versions()[latest.saturating_sub(1)..=latest].iter().collect();
        let mut index = self.index.borrow_mut();
        let merges = index.merges;
        index.follow(&in_use);
        count(&self.around.seen.run_merges, index.merges - merges);
    }

    fn ask(&mut self) -> KeysAsk {
        let dice = &mut self.dice;
        let version = self.latest.get().saturating_sub(dice.below(2));
        let keys = match dice.below(20) {
            0 => 1 + dice.below(300),
            1..=9 => 1 + dice.below(3),
            _ => 1 + dice.below(60),
        };
        // A batch may have a key twice.
        let keys: StringArray = (0..keys)
            .map(|_| match dice.per_mille(30) {
                true => None,
                false => Some(key(dice.below(KEYS.len() + 200) as u32)),
            })
            .collect();
        let columns = match dice.below(3) {
            0 => vec!["key"],
            1 => vec!["key", "value"],
            _ => vec!["value", "key"],
        };
        let patience = match self.around.wishes.is_rough.get() && dice.per_mille(300) {
            true => dice.ms(1..=80),
            false => Duration::from_secs(60),
        };
        KeysAsk {
            version,
            runs: self.index.borrow().of_version(&keyed_versions()[version]),
            columns: columns.into_iter().map(str::to_owned).collect(),
            keys: Arc::new(keys),
            node: dice.below(self.nodes.len()),
            deadline: Instant::now() + patience,
        }
    }

    async fn look_up(&self, ask: KeysAsk) {
        let outcome = self.find(&ask).await;
        let said = match &outcome {
            Ok(found) => format!("{} found", found.keys.len()),
            Err(fault) => format!("{:?}: {fault}", fault.reason),
        };
        let (number, version, keys) = (self.number, ask.version + 1, ask.keys.len());
        self.around
            .trace
            .say(format_args!("key client {number}: {keys} keys in version {version}: {said}"));
        let who = format_args!("key client {number}");
        let seen = &self.around.seen;
        match outcome {
            Ok(found) => {
                count(&seen.answers, 1);
                count(&seen.rows, found.keys.len() as u64);
                count(&seen.keys_found, found.keys.len() as u64);
                count(&seen.keys_absent, (keys - found.keys.len()) as u64);
                if let Err(why) = ask.check(&found) {
                    self.around.wrong(who, format_args!("{keys} keys in version {version}: {why}"));
                }
            }
            Err(fault) => self.around.refused(who, &fault),
        }
    }

    /// Returns the rows of the keys.
    async fn find(&self, ask: &KeysAsk) -> Result<FoundRows, Fault> {
        let key_at = ask.columns.iter().position(|column| column == "key").expect("it has keys");
        let candidates = self.candidates(ask);
        let mut rounds = Rounds::new(&ask.keys, key_at);
        for round in 0.. {
            // A key that is still open has been tried in all rounds so far.
            let next = |&key: &u32| Some((key, *candidates[key as usize].get(round)?));
            let tries: Vec<(u32, RowAddr)> = rounds.open_keys().iter().filter_map(next).collect();
            if !rounds.goes_on(&tries) {
                break;
            }
            let distinct = DistinctRows::of(&tries);
            let node = &self.nodes[(ask.node + round) % self.nodes.len()];
            let rows = self.fetch(node, ask, distinct.addrs().to_vec()).await?;
            let (rows, missing) =
                distinct.rows_of_tries(Vec::new()).repeat(rows).map_err(internal)?;
            let goes_on = rounds.add(&tries, &rows, &missing).map_err(internal)?;
            let wrong = rounds.open_keys().len();
            count(&self.around.seen.rows_with_another_key, wrong as u64);
            if wrong > 0 && self.index.borrow().has_full_hashes() {
                let what = format_args!("{wrong} rows have another key, but no keys collide");
                self.around.wrong(format_args!("key client {}", self.number), what);
            }
            if !goes_on {
                break;
            }
        }
        rounds.finish().map_err(internal)
    }

    /// Returns the rows that may have each key, by ascending address.
    fn candidates(&self, ask: &KeysAsk) -> Vec<Vec<RowAddr>> {
        let version = &keyed_versions()[ask.version];
        let hashes = self.index.borrow().hashes(&ask.keys);
        let mut found = Found::default();
        let is_live = |addr| version.has(addr);
        ask.runs.lookup(&hashes, &Pages::default(), u32::MAX, is_live, &mut found);
        let sorted = |key| {
            let mut rows = found.rows_of(key).to_vec();
            rows.sort_unstable();
            rows
        };
        (0..found.keys()).map(sorted).collect()
    }

    /// Fetches rows, all of which must exist: the index leaves out rows that the version has deleted.
    async fn fetch(
        &self,
        node: &FetchClient,
        ask: &KeysAsk,
        addrs: Vec<RowAddr>,
    ) -> Result<RecordBatch, Fault> {
        let Version { uri, version, .. } = &keyed_versions()[ask.version];
        let (identity, version) = (format!("{uri} {version}"), *version);
        let table = TableVersion { uri, branch: "", version, identity: &identity };
        let projection = node.open(table, &ask.columns, ask.deadline).await?;
        if addrs.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(projection.schema())));
        }
        let reply = node.fetch(&projection, addrs.clone(), None, ask.deadline).await?;
        if let Some(&gone) = reply.missing.first() {
            let row = addrs[gone as usize];
            let what = format_args!("version {version} has no row {row:?}, but the index names it");
            self.around.wrong(format_args!("key client {}", self.number), what);
        }
        reply.into_rows()
    }
}

fn internal(error: arrow_schema::ArrowError) -> Fault {
    Fault::new(Reason::Internal, error.to_string())
}

impl KeysAsk {
    /// Compares an answer with the truth: each key that the version has is found once, with its own row, and no other.
    fn check(&self, found: &FoundRows) -> Result<(), String> {
        let rows_of_keys = &ROWS_OF_KEYS[self.version];
        let keys = self.keys.as_string::<i32>();
        let row = |key: Option<&str>| key.and_then(|key| rows_of_keys.get(key).copied());
        let (positions, addrs): (Vec<u32>, Vec<RowAddr>) =
            (0..).zip(keys).filter_map(|(position, key)| Some((position, row(key)?))).unzip();
        if found.keys != positions {
            return Err(format!("keys {:?} are found, not {positions:?}", found.keys));
        }
        if found.addrs != addrs {
            return Err(format!("the rows are {:?}, not {addrs:?}", found.addrs));
        }
        let truth = keyed_versions()[self.version].rows(&addrs, &self.columns);
        match truth.columns() == found.rows.columns() {
            true => Ok(()),
            false => Err(format!("{} rows are not the truth", addrs.len())),
        }
    }
}

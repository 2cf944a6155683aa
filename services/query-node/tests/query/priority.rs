//! A request's priority, and its grant's flow and weight, are sent to the I/O nodes.

use std::sync::{Arc, Mutex};

use arrow_schema::Schema;
use client::query::{By, GetRequest, SearchRequest, TakeRequest};
use query_node::{AccessConfig, QueryConfig};
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::fetch::reply::Outcome;
use wire::fetch::{Batch, Opened, Priority, Reply};
use wire::{Fault, Reason, schema_to_bytes};

use crate::fake_io;
use crate::node::{by, config, serve_with};
use crate::table::{TestTable, address_of, lake};

/// The answers of an I/O node that opens every projection and refuses every batch. It records the batches'
/// priorities, flows and weights.
#[derive(Clone)]
struct Noting {
    schema: Arc<Schema>,
    batches: Arc<Mutex<Vec<(Priority, u64, u32)>>>,
}

impl Noting {
    fn answers(&self, asked: RequestKind) -> Vec<ResponseKind> {
        match asked {
            RequestKind::Open(open) => {
                let fields = open.columns.iter().map(|name| self.schema.field_with_name(name));
                let fields: Vec<_> = fields.map(|field| field.unwrap().clone()).collect();
                let schema = schema_to_bytes(&pack::wire_schema(&Schema::new(fields))).unwrap();
                vec![ResponseKind::Opened(Opened { handle: open.handle, schema, error: None })]
            }
            RequestKind::Batches(batches) => {
                let reply = |batch: Batch| {
                    let noted = (batch.priority(), batch.flow, batch.weight);
                    self.batches.lock().unwrap().push(noted);
                    let error = Fault::new(Reason::UnsupportedType, "none of that here").into();
                    let outcome = Some(Outcome::Error(error));
                    ResponseKind::Reply(Reply { id: batch.id, outcome, ..Default::default() })
                };
                batches.batches.into_iter().map(reply).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Takes the priorities, flows and weights recorded since the last call.
    fn noted(&self) -> Vec<(Priority, u64, u32)> {
        std::mem::take(&mut *self.batches.lock().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_priority_is_carried_to_the_io_nodes_and_none_is_interactive() {
    let table = TestTable::indexed(Default::default(), lake::Metric::L2).await;
    let schema = Arc::clone(lake().open(&table.uri).await.unwrap().schema());
    let node = Noting { schema, batches: Arc::default() };
    let noting = node.clone();
    let io = fake_io::serve(move |asked| noting.answers(asked)).await;
    let (_node, client) =
        serve_with(QueryConfig { io_nodes: vec![io], ..config(&[("t", &table)]) }).await;
    for (asked, expected) in [
        (Priority::Unspecified, Priority::Interactive),
        (Priority::Interactive, Priority::Interactive),
        (Priority::Batch, Priority::Batch),
    ] {
        let priority = asked.into();
        let row_addrs = vec![address_of(6).to_u64()];
        let take = TakeRequest { table: "t".into(), row_addrs, priority, ..Default::default() };
        client.take(take).await.unwrap().collect().await.unwrap();
        // All callers of a node without a policy share flow 0.
        let expected = (expected, 0, 1);
        assert_eq!(node.noted(), [expected], "take");
        // The search asks the I/O node for the row's vector, for the rerank, and for the columns of the winners.
        let like = SearchRequest { priority, ..by(By::Like(crate::table::key(7)), 3) };
        let found = client.search(like).await;
        let noted = node.noted();
        assert!(found.is_err() || noted.len() >= 2, "{noted:?}");
        assert!(noted.iter().all(|it| *it == expected), "search: {noted:?}");
        let keys = vec![crate::table::key(7)];
        let get = GetRequest { table: "t".into(), keys, priority, ..Default::default() };
        if client.get(get).await.is_ok() {
            assert!(node.noted().iter().all(|it| *it == expected), "get");
        }
    }
    let take =
        TakeRequest { table: "t".into(), row_addrs: vec![0], priority: 9, ..Default::default() };
    let fault = client.take(take).await.err().unwrap();
    assert!(fault.reason == Reason::BadArgument && fault.message.contains("priority"), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grants_share_is_carried_to_the_io_nodes() {
    let table = TestTable::plain().await;
    let schema = Arc::clone(lake().open(&table.uri).await.unwrap().schema());
    let node = Noting { schema, batches: Arc::default() };
    let noting = node.clone();
    let io = fake_io::serve(move |asked| noting.answers(asked)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.toml");
    let secret = |name: &str| format!("the key of {name}, which nobody can guess");
    let grant = |(name, weight): (&str, u32)| {
        let digest = access::digest_of_key(secret(name).as_bytes());
        format!(
            "[keys.{name}]\nsha256 = [\"{digest}\"]\n[[grants]]\nname = \"{name}\"\n\
             who = [\"key:{name}\"]\ntables = [\"t\"]\nmay = [\"read\"]\nweight = {weight}\n"
        )
    };
    std::fs::write(&file, [("heavy", 3), ("light", 1)].map(grant).concat()).unwrap();
    let access = Some(AccessConfig::Policy(file));
    let config = QueryConfig { io_nodes: vec![io], access, ..config(&[("t", &table)]) };
    let (_node, anonymous) = serve_with(config).await;
    let mut flows = Vec::new();
    for (name, weight) in [("heavy", 3), ("light", 1), ("heavy", 3)] {
        let client = anonymous.clone().with_token(&secret(name)).unwrap();
        let row_addrs = vec![address_of(6).to_u64()];
        let take = TakeRequest { table: "t".into(), row_addrs, ..Default::default() };
        client.take(take).await.unwrap().collect().await.unwrap();
        let [(_, flow, of_flow)] = node.noted()[..] else { panic!("one batch") };
        assert_eq!(of_flow, weight, "{name}");
        flows.push(flow);
    }
    assert!(flows[0] == flows[2] && flows[0] != flows[1] && !flows.contains(&0), "{flows:?}");
}

//! A request's priority goes along to the I/O nodes.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use arrow_schema::Schema;
use client::query::{By, GetRequest, SearchRequest, TakeRequest};
use futures::{Stream, StreamExt};
use query_node::{IoNodeConfig, QueryConfig};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};
use wire::fetch::fetch_request::Kind as Asked;
use wire::fetch::fetch_response::Kind as Said;
use wire::fetch::fetch_service_server::{FetchService, FetchServiceServer};
use wire::fetch::reply::Outcome;
use wire::fetch::*;
use wire::{Fault, Reason, schema_to_bytes};

use crate::node::{by, config, serve_with};
use crate::table::{TestTable, address_of, lake};

/// An I/O node that opens whatever is asked for and answers no batch; it notes their priorities.
#[derive(Clone)]
struct Noting {
    schema: Arc<Schema>,
    priorities: Arc<Mutex<Vec<Priority>>>,
}

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Noting {
    fn answers(&self, asked: Option<Asked>) -> Vec<Result<FetchResponse, Status>> {
        let said = |kind| Ok(FetchResponse { kind: Some(kind) });
        match asked {
            Some(Asked::Open(open)) => {
                let fields = open.columns.iter().map(|name| self.schema.field_with_name(name));
                let fields: Vec<_> = fields.map(|field| field.unwrap().clone()).collect();
                let schema = schema_to_bytes(&pack::wire_schema(&Schema::new(fields))).unwrap();
                vec![said(Said::Opened(Opened { handle: open.handle, schema, error: None }))]
            }
            Some(Asked::Batches(batches)) => {
                let reply = |batch: Batch| {
                    self.priorities.lock().unwrap().push(batch.priority());
                    let error = Fault::new(Reason::UnsupportedType, "none of that here").into();
                    let outcome = Some(Outcome::Error(error));
                    said(Said::Reply(Reply { id: batch.id, outcome, ..Default::default() }))
                };
                batches.batches.into_iter().map(reply).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Since the last time.
    fn noted(&self) -> Vec<Priority> {
        std::mem::take(&mut *self.priorities.lock().unwrap())
    }
}

#[tonic::async_trait]
impl FetchService for Noting {
    type FetchStream = Responses<FetchResponse>;
    type WarmStream = Responses<WarmProgress>;

    async fn fetch(
        &self,
        request: Request<Streaming<FetchRequest>>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let welcome = Welcome { credit_rows: 1000, batch_rows_max: 1000, ..Default::default() };
        let node = self.clone();
        let answers = request.into_inner().flat_map(move |request| {
            futures::stream::iter(node.answers(request.ok().and_then(|request| request.kind)))
        });
        let welcome = FetchResponse { kind: Some(Said::Welcome(welcome)) };
        Ok(Response::new(futures::stream::iter([Ok(welcome)]).chain(answers).boxed()))
    }

    async fn warm(&self, _: Request<WarmRequest>) -> Result<Response<Self::WarmStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse::default()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_priority_is_carried_to_the_io_nodes_and_none_is_interactive() {
    let table = TestTable::indexed(Default::default(), lake::Metric::L2).await;
    let schema = Arc::clone(lake().open(&table.uri).await.unwrap().schema());
    let node = Noting { schema, priorities: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let io = listener.local_addr().unwrap();
    let serving =
        tonic::transport::Server::builder().add_service(FetchServiceServer::new(node.clone()));
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
    let (_node, client) = serve_with(QueryConfig {
        io_nodes: vec![IoNodeConfig::at(io.to_string()).named("io-0")],
        ..config(&[("t", &table)])
    })
    .await;
    for (asked, expected) in [
        (Priority::Unspecified, Priority::Interactive),
        (Priority::Interactive, Priority::Interactive),
        (Priority::Batch, Priority::Batch),
    ] {
        let priority = asked.into();
        let row_addrs = vec![address_of(6).to_u64()];
        let take = TakeRequest { table: "t".into(), row_addrs, priority, ..Default::default() };
        client.take(take).await.unwrap().collect().await.unwrap();
        assert_eq!(node.noted(), [expected], "take");
        // The row that it is to be like, the rerank, the winners.
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

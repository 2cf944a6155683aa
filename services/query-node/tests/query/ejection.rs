//! An I/O node that is connected and fails: it is asked a few times, and then no more.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::query::TakeRequest;
use futures::{Stream, StreamExt};
use query_node::{IoNodeConfig, QueryConfig};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};
use wire::fetch::fetch_request::Kind as Asked;
use wire::fetch::fetch_response::Kind as Said;
use wire::fetch::fetch_service_server::{FetchService, FetchServiceServer};
use wire::fetch::*;
use wire::query::MemberState;
use wire::{Fault, Reason};

use crate::node::{assert_true, config, serve_with};
use crate::table::{TestTable, address_of};

/// An I/O node that welcomes, and then says of every projection that it has a defect. It counts them.
#[derive(Clone, Default)]
struct Failing(Arc<AtomicUsize>);

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl FetchService for Failing {
    type FetchStream = Responses<FetchResponse>;
    type WarmStream = Responses<WarmProgress>;

    async fn fetch(
        &self,
        request: Request<Streaming<FetchRequest>>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let welcome = Welcome { credit_rows: 1000, batch_rows_max: 1000, ..Default::default() };
        let asked = Arc::clone(&self.0);
        let answers = request.into_inner().filter_map(move |request| {
            let opened = match request.map(|request| request.kind) {
                Ok(Some(Asked::Open(open))) => {
                    asked.fetch_add(1, Ordering::SeqCst);
                    let error = Some(Fault::new(Reason::Internal, "a defect").into());
                    Some(Opened { handle: open.handle, error, ..Default::default() })
                }
                _ => None,
            };
            async move { opened.map(|opened| response(Said::Opened(opened))) }
        });
        let welcome = futures::stream::iter([response(Said::Welcome(welcome))]);
        Ok(Response::new(welcome.chain(answers).boxed()))
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

fn response(kind: Said) -> Result<FetchResponse, Status> {
    Ok(FetchResponse { kind: Some(kind) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fails_is_asked_no_more_and_the_table_answers() {
    let failing = Failing::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let io = listener.local_addr().unwrap();
    let service = FetchServiceServer::new(failing.clone());
    let serving = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));

    let table = TestTable::plain().await;
    let (_node, client) = serve_with(QueryConfig {
        io_nodes: vec![IoNodeConfig::at(io.to_string()).named("io-0")],
        ejection_failures: 3,
        ejection_time: Duration::from_secs(3600),
        ejection_time_max: Duration::from_secs(3600),
        ..config(&[("t", &table)])
    })
    .await;
    for taken in 1..=6 {
        let row_addrs = (0..10).map(|id| address_of(id * 5 + 1).to_u64()).collect();
        let request = TakeRequest { table: "t".into(), row_addrs, ..Default::default() };
        let rows = client.take(request).await.unwrap().collect().await.unwrap();
        rows.batches.iter().for_each(assert_true);
        assert_eq!(failing.0.load(Ordering::SeqCst), taken.min(3));
        let status = client.status().await.unwrap();
        let expected = if taken < 3 { MemberState::Ready } else { MemberState::Ejected };
        assert_eq!(status.io_nodes[0].state(), expected);
        assert_eq!(status.membership.unwrap().ejections, u64::from(taken >= 3));
        assert_eq!(status.fallback_rows, 10 * taken as u64);
    }
}

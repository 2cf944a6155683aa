//! A relay between a query node and a real I/O node, which changes some batches or answers them itself.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use query_node::IoNodeConfig;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use wire::Fault;
use wire::fetch::fetch_request::Kind as RequestKind;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::fetch::fetch_service_server::{FetchService, FetchServiceServer};
use wire::fetch::reply::Outcome;
use wire::fetch::{
    Batch, Batches, DescribeRequest, DescribeResponse, FetchRequest, FetchResponse, ReleaseRequest,
    ReleaseResponse, Reply, WarmProgress, WarmRequest,
};

use crate::cluster::Io;

/// Changes a batch, or answers it with a fault.
type Change = dyn Fn(&mut Batch) -> Option<Fault> + Send + Sync;

/// Notes a reply of the I/O node.
type Note = dyn Fn(&Reply) + Send + Sync;

struct Relay {
    node: FetchServiceClient<Channel>,
    change: Arc<Change>,
    note: Arc<Note>,
    revision: u32,
}

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Serves a node that passes everything on to `io`, and says that its protocol has this revision. `change` is called
/// for each batch, and `note` for each reply of `io`. Returns the entry for a list of I/O nodes.
pub async fn relay(
    io: &Io,
    revision: u32,
    change: impl Fn(&mut Batch) -> Option<Fault> + Send + Sync + 'static,
    note: impl Fn(&Reply) + Send + Sync + 'static,
) -> IoNodeConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let node = FetchServiceClient::connect(format!("http://{}", io.node.local_addr()));
    let node = node.await.unwrap().max_decoding_message_size(64 << 20);
    let relay = Relay { node, change: Arc::new(change), note: Arc::new(note), revision };
    let service = FetchServiceServer::new(relay);
    let serving = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
    IoNodeConfig::at(address.to_string()).named(io.node.config().name.clone())
}

#[tonic::async_trait]
impl FetchService for Relay {
    type FetchStream = Responses<FetchResponse>;
    type WarmStream = Responses<WarmProgress>;

    async fn fetch(
        &self,
        request: Request<Streaming<FetchRequest>>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let (to_node, requests) = mpsc::channel(64);
        let (to_caller, responses) = mpsc::channel(64);
        let mut asked = request.into_inner();
        let (change, note, revision) =
            (Arc::clone(&self.change), Arc::clone(&self.note), self.revision);
        let answers = to_caller.clone();
        tokio::spawn(async move {
            while let Some(Ok(FetchRequest { kind })) = asked.next().await {
                let kind = match kind {
                    Some(RequestKind::Batches(Batches { mut batches })) => {
                        let mut faults = Vec::new();
                        batches.retain_mut(|batch| match change(batch) {
                            Some(fault) => {
                                faults.push((batch.id, fault));
                                false
                            }
                            None => true,
                        });
                        for (id, fault) in faults {
                            let outcome = Some(Outcome::Error(fault.into()));
                            let reply = Reply { id, outcome, ..Default::default() };
                            let kind = Some(ResponseKind::Reply(reply));
                            let _ = answers.send(Ok(FetchResponse { kind })).await;
                        }
                        if batches.is_empty() {
                            continue;
                        }
                        Some(RequestKind::Batches(Batches { batches }))
                    }
                    other => other,
                };
                if to_node.send(FetchRequest { kind }).await.is_err() {
                    return;
                }
            }
        });
        let replies = self.node.clone().fetch(ReceiverStream::new(requests)).await?;
        let mut replies = replies.into_inner();
        tokio::spawn(async move {
            while let Some(response) = replies.next().await {
                let response = response.map(|FetchResponse { mut kind }| {
                    match &mut kind {
                        Some(ResponseKind::Welcome(welcome)) => welcome.revision = revision,
                        Some(ResponseKind::Reply(reply)) => note(reply),
                        _ => {}
                    }
                    FetchResponse { kind }
                });
                if to_caller.send(response).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }

    async fn warm(
        &self,
        request: Request<WarmRequest>,
    ) -> Result<Response<Self::WarmStream>, Status> {
        let progress = self.node.clone().warm(request).await?.into_inner();
        Ok(Response::new(Box::pin(progress)))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        self.node.clone().release(request).await
    }

    async fn describe(
        &self,
        request: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        self.node.clone().describe(request).await
    }
}

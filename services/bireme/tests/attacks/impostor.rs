//! An impostor that answers in place of an I/O node, with forged rows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{ArrayRef, LargeStringArray, RecordBatch, StringArray};
use arrow_schema::{DataType, SchemaRef};
use futures::stream::{self, BoxStream, StreamExt};
use peers::PROOF_HEADER;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Endpoint;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use wire::fetch::fetch_request::Kind as Asked;
use wire::fetch::fetch_response::Kind as Answer;
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::fetch::fetch_service_server::{FetchService, FetchServiceServer};
use wire::fetch::reply::Outcome;
use wire::fetch::*;
use wire::{ArrowBatch, schema_to_bytes};

/// The text of each forged row.
pub const FORGED: &str = "a row that no table has";

/// The impostor's substitutes for an I/O node's proof, which it tries in turn.
const PRETENCES: [&str; 5] = [
    "no proof",
    "the caller's own proof",
    "the code in the caller's own proof",
    "a random code",
    "the answer of a true I/O node, to which it passes the caller's proof",
];

/// An impostor that serves until its runtime ends.
#[derive(Clone)]
pub struct Impostor {
    pub address: SocketAddr,
    true_node: Arc<Mutex<Option<String>>>,
    /// The schema of the forged rows: columns of text.
    schema: SchemaRef,
    /// The calls of Fetch and Describe so far, by pretence.
    calls: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    /// Messages that callers have sent on streams.
    messages: Arc<Mutex<usize>>,
}

impl Impostor {
    /// Starts to serve on loopback, on this runtime.
    pub fn start(schema: SchemaRef) -> Self {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let (true_node, calls, messages) = Default::default();
        let impostor = Self { address, true_node, schema, calls, messages };
        let service = FetchServiceServer::new(impostor.clone());
        let serving = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(serving.serve_with_incoming(incoming));
        impostor
    }

    /// Sets the endpoint of the real I/O node to which proofs are passed on.
    pub fn pass_on_to(&self, endpoint: &str) {
        *self.true_node.lock().unwrap() = Some(endpoint.to_owned());
    }

    /// Returns the number of messages that callers have sent on streams.
    pub fn messages(&self) -> usize {
        *self.messages.lock().unwrap()
    }

    /// Returns the number of calls of Fetch and Describe.
    pub fn calls(&self) -> usize {
        self.calls.lock().unwrap().values().sum()
    }

    /// Returns whether the impostor has tried each pretence, including the one that needs a real I/O node.
    pub fn has_tried_all(&self) -> bool {
        self.calls.lock().unwrap().len() == PRETENCES.len()
    }

    async fn pretend<T>(&self, proof: Option<&AsciiMetadataValue>, response: &mut Response<T>) {
        let pretence = PRETENCES[self.calls() % PRETENCES.len()];
        *self.calls.lock().unwrap().entry(pretence).or_default() += 1;
        let Some(proof) = proof else { return };
        let text = proof.to_str().unwrap();
        let answer: Option<AsciiMetadataValue> = match pretence {
            "the caller's own proof" => Some(proof.clone()),
            "the code in the caller's own proof" => {
                format!("v1 {}", text.rsplit(' ').next().unwrap()).parse().ok()
            }
            "a random code" => format!("v1 {}", "5e".repeat(32)).parse().ok(),
            "no proof" => None,
            _ => self.answer_of_true_node(proof).await,
        };
        if let Some(answer) = answer {
            response.metadata_mut().insert(PROOF_HEADER, answer);
        }
    }

    /// Passes the caller's proof on to a real I/O node, and returns that node's answer.
    async fn answer_of_true_node(&self, proof: &AsciiMetadataValue) -> Option<AsciiMetadataValue> {
        let endpoint = self.true_node.lock().unwrap().clone()?;
        let channel = Endpoint::from_shared(endpoint).unwrap().connect().await.ok()?;
        let mut request = Request::new(stream::pending());
        request.metadata_mut().insert(PROOF_HEADER, proof.clone());
        let mut client = FetchServiceClient::new(channel);
        let answer = client.fetch(request).await.ok()?;
        answer.metadata().get(PROOF_HEADER).cloned()
    }

    fn answers(&self, asked: Asked) -> Vec<Answer> {
        *self.messages.lock().unwrap() += 1;
        match asked {
            Asked::Open(open) => {
                let schema = schema_to_bytes(&self.schema).unwrap();
                vec![Answer::Opened(Opened { handle: open.handle, schema, error: None })]
            }
            Asked::Batches(batches) => {
                let reply = |batch: Batch| Answer::Reply(self.reply(batch));
                batches.batches.into_iter().map(reply).collect()
            }
            Asked::Close(_) | Asked::Cancel(_) => Vec::new(),
        }
    }

    fn reply(&self, batch: Batch) -> Reply {
        let forged = vec![FORGED; batch.row_addrs.len()];
        let column = |kind: &DataType| -> ArrayRef {
            match kind {
                DataType::Utf8 => Arc::new(StringArray::from(forged.clone())),
                DataType::LargeUtf8 => Arc::new(LargeStringArray::from(forged.clone())),
                other => panic!("the impostor forges text alone, not {other}"),
            }
        };
        let columns = self.schema.fields().iter().map(|field| column(field.data_type()));
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns.collect()).unwrap();
        let rows = Outcome::Rows(ArrowBatch::from_record_batch(&rows).unwrap());
        Reply { id: batch.id, outcome: Some(rows), ..Default::default() }
    }
}

#[tonic::async_trait]
impl FetchService for Impostor {
    type FetchStream = BoxStream<'static, Result<FetchResponse, Status>>;
    type WarmStream = BoxStream<'static, Result<WarmProgress, Status>>;

    async fn fetch(
        &self,
        request: Request<Streaming<FetchRequest>>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let proof = request.metadata().get(PROOF_HEADER).cloned();
        let welcome = Welcome {
            credit_rows: 1000,
            batch_rows_max: 1000,
            node: "io-0".into(),
            ..Default::default()
        };
        let this = self.clone();
        let answers = request.into_inner().flat_map(move |request| {
            let asked = request.ok().and_then(|request| request.kind);
            stream::iter(asked.map(|asked| this.answers(asked)).unwrap_or_default())
        });
        let all = stream::iter([Answer::Welcome(welcome)]).chain(answers);
        let all = all.map(|kind| Ok(FetchResponse { kind: Some(kind) })).boxed();
        let mut response = Response::new(all);
        self.pretend(proof.as_ref(), &mut response).await;
        Ok(response)
    }

    async fn warm(&self, _: Request<WarmRequest>) -> Result<Response<Self::WarmStream>, Status> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(Response::new(stream::empty().boxed()))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        let mut response = Response::new(ReleaseResponse::default());
        self.pretend(request.metadata().get(PROOF_HEADER), &mut response).await;
        Ok(response)
    }

    async fn describe(
        &self,
        request: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        let mut response = Response::new(DescribeResponse::default());
        self.pretend(request.metadata().get(PROOF_HEADER), &mut response).await;
        Ok(response)
    }
}

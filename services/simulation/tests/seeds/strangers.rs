//! Strangers send messages that mostly violate the protocol: they are meaningless, out of order, truncated, corrupted,
//! or not even HTTP/2. Such a message must get a clear refusal or no answer, and must not affect other clients.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use client::Dial;
use connections::Carrier;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream;
use fuzz::rand::SeedableRng;
use fuzz::rand::rngs::StdRng;
use fuzz::{Messages, RawCodec};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::codegen::Service;
use tonic::transport::{Channel, Uri};
use tonic::{Request, Status};
use wire::fetch::fetch_request::Kind;
use wire::fetch::fetch_response::Kind as Answer;
use wire::fetch::reply::Outcome;
use wire::fetch::{
    Batch, Batches, Cancel, Close, FetchRequest, FetchResponse, Open, Predicate, PredicateStep,
    Rerank,
};
use wire::{FETCH_PATH, Fault, Reason};

use crate::clients::{Around, count};
use crate::dice::Dice;
use crate::files::FILES;
use crate::network::Net;
use crate::truth::{DIMENSION, TABLES};

/// Generates messages. Most texts in them are names that the nodes know.
static MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    let words =
        ["s3://sim/vectors", "s3://sim/documents", "s3://sim/scanned", "id", "vector", "text"];
    Messages::of(wire::DESCRIPTORS, &words)
});

/// The maximum time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// One stranger.
pub struct Stranger {
    dice: Dice,
    around: Around,
}

impl Stranger {
    /// Creates a stranger to all nodes.
    pub fn new(seed: u64, number: usize, around: Around) -> Self {
        Self { dice: Dice::new(seed, &format!("stranger {number}")), around }
    }

    /// Sends requests, most of them invalid, until [`Wishes::is_to_end`](crate::clients::Wishes::is_to_end) is set.
    pub async fn run(mut self) {
        while !self.around.wishes.is_to_end.get() {
            let pause = self.dice.ms(0..=40);
            tokio::time::sleep(pause).await;
            let name = self.around.names[self.dice.below(self.around.names.len())].clone();
            let what = match self.dice.below(8) {
                0 => self.noise(&name).await,
                1 => self.call(&name).await,
                _ => self.stream(&name).await,
            };
            self.around.trace.say(format_args!("a stranger at {name}: {what}"));
        }
    }

    /// Sends random bytes, some of them after the preface of HTTP/2.
    async fn noise(&mut self, name: &str) -> String {
        let uri: Uri = format!("http://{name}:7071").parse().unwrap();
        let Ok(mut carrier) = self.around.net.dial(&uri).await else {
            return "no connection".into();
        };
        let mut bytes: Vec<u8> = match self.dice.per_mille(500) {
            true => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            false => Vec::new(),
        };
        bytes.extend((0..self.dice.below(600)).map(|_| self.dice.any() as u8));
        let said = async {
            carrier.write_all(&bytes).await?;
            carrier.read_to_end(&mut Vec::new()).await
        };
        let ended = tokio::time::timeout(PATIENCE, said).await;
        count(&self.around.seen.strange, 1);
        format!("{} bytes of noise: {:?}", bytes.len(), ended.map(|it| it.map_err(|e| e.kind())))
    }

    /// Sends messages on a Fetch stream.
    async fn stream(&mut self, name: &str) -> String {
        let Some(channel) = connect(&self.around.net, name).await else {
            return "no connection".into();
        };
        let is_damaged = self.dice.per_mille(300);
        let messages = (0..1 + self.dice.below(12)).map(|_| self.message(is_damaged));
        let messages: Vec<_> = messages.collect();
        let sent = messages.len();
        count(&self.around.seen.strange, sent as u64);
        let mut answers = 0;
        let outcome = tokio::time::timeout(PATIENCE, self.talk(channel, messages, &mut answers));
        let outcome = match outcome.await {
            Ok(Ok(())) => "the end".into(),
            Ok(Err(status)) => self.judge(&status),
            Err(_) => "no end".to_owned(),
        };
        format!("{sent} messages, {answers} answers: {outcome}")
    }

    /// Calls any other method, with a message of any shape that the descriptors allow, a damaged one, or noise.
    async fn call(&mut self, name: &str) -> String {
        let Some(channel) = connect(&self.around.net, name).await else {
            return "no connection".into();
        };
        let methods = MESSAGES.methods("/bireme.fetch.");
        let methods: Vec<_> = methods.iter().filter(|it| !it.is_client_streaming).collect();
        let method = *self.dice.pick(&methods);
        let mut rng = StdRng::seed_from_u64(self.dice.any());
        let mut bytes = MESSAGES.message(&mut rng, &method.request);
        match self.dice.below(8) {
            0 => fuzz::damage(&mut rng, &mut bytes),
            1 => bytes = fuzz::noise(&mut rng, 60),
            _ => {}
        }
        count(&self.around.seen.strange, 1);
        let asked = async {
            let mut grpc = tonic::client::Grpc::new(channel);
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let request = Request::new(stream::iter([bytes]));
            let path = method.path.parse().unwrap();
            let mut answers = grpc.streaming(request, path, RawCodec).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok(())
        };
        let said = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(())) => "the end".into(),
            Ok(Err(status)) => self.judge(&status),
            Err(_) => "no end".to_owned(),
        };
        format!("{}: {said}", method.path)
    }

    async fn talk(
        &self,
        channel: Channel,
        messages: Vec<Vec<u8>>,
        answers: &mut usize,
    ) -> Result<(), Status> {
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = Request::new(stream::iter(messages));
        let path = http_path();
        let mut stream = grpc.streaming(request, path, RawCodec).await?.into_inner();
        while let Some(answer) = stream.message().await? {
            let answer = FetchResponse::decode(answer);
            let answer = answer.map_err(|error| Status::data_loss(error.to_string()))?;
            *answers += 1;
            self.look(answer);
        }
        Ok(())
    }

    /// Checks an answer: an error must have a message, and must not be an internal one.
    fn look(&self, answer: FetchResponse) {
        let error = match answer.kind {
            Some(Answer::Welcome(_)) => None,
            Some(Answer::Opened(opened)) => opened.error,
            Some(Answer::Reply(reply)) => match reply.outcome {
                Some(Outcome::Error(error)) => Some(error),
                Some(_) => None,
                None => return self.wrong("an empty reply"),
            },
            // A node may retire a stream at any time, whatever its requests.
            Some(Answer::Retire(_)) => return,
            None => return self.wrong("an empty answer"),
        };
        if let Some(fault) = error.map(Fault::from)
            && (fault.reason == Reason::Internal || fault.message.is_empty())
        {
            self.wrong(&format!("{fault:?}"));
        }
    }

    /// Checks the status that ended a call, and describes it.
    fn judge(&self, status: &Status) -> String {
        let fault = Fault::from_status(status);
        // The status of a broken connection does not come from a node.
        let has_cause = std::error::Error::source(status).is_some();
        let is_a_nodes =
            !status.details().is_empty() || !has_cause && !self.around.wishes.is_rough.get();
        if is_a_nodes && fault.reason == Reason::Internal {
            self.wrong(&format!("{status:?}"));
        }
        format!("{:?}", status.code())
    }

    fn wrong(&self, what: &str) {
        self.around.wrong("a stranger", what);
    }

    /// Returns a message that may be valid, and may be damaged.
    fn message(&mut self, is_damaged: bool) -> Vec<u8> {
        let kind = match self.dice.below(9 + usize::from(is_damaged)) {
            0..=2 => Kind::Open(self.open()),
            3..=6 => {
                let batches = (0..self.dice.below(4)).map(|_| self.batch()).collect();
                Kind::Batches(Batches { batches })
            }
            7 => Kind::Close(Close { handle: self.small() as u32 }),
            8 => Kind::Cancel(Cancel { id: self.small() }),
            _ => return (0..self.dice.below(40)).map(|_| self.dice.any() as u8).collect(),
        };
        let mut bytes = FetchRequest { kind: Some(kind) }.encode_to_vec();
        if is_damaged && self.dice.per_mille(150) && !bytes.is_empty() {
            for _ in 0..1 + self.dice.below(3) {
                let at = self.dice.below(bytes.len());
                bytes[at] ^= 1 << self.dice.below(8);
            }
        }
        if is_damaged && self.dice.per_mille(50) {
            bytes.truncate(self.dice.below(bytes.len() + 1));
        }
        bytes
    }

    /// Returns a number, mostly one of a few small ones, so that messages refer to each other.
    fn small(&mut self) -> u64 {
        match self.dice.per_mille(900) {
            true => self.dice.in_range(0..=3),
            false => self.dice.any(),
        }
    }

    fn open(&mut self) -> Open {
        let version = &TABLES[self.dice.below(TABLES.len())][0];
        let uri = match self.dice.below(8) {
            0 => String::new(),
            1 => "s3://sim/nowhere".into(),
            _ => version.uri.to_owned(),
        };
        let mut columns: Vec<String> =
            version.schema.fields().iter().map(|field| field.name().clone()).collect();
        match self.dice.below(8) {
            0 => columns.clear(),
            1 => columns.push("id".into()),
            2 => columns.push("\u{0} no such column".into()),
            _ => columns.truncate(1 + self.dice.below(columns.len())),
        }
        let identity = ["", "", "", "another"][self.dice.below(4)].into();
        let number = if self.dice.per_mille(800) { 1 } else { self.small() };
        let handle = self.small() as u32;
        if self.dice.per_mille(800) {
            let rows = Open {
                handle,
                table_uri: uri,
                version: number,
                columns,
                identity,
                ..Open::default()
            };
            return rows;
        }
        let file = match self.dice.below(4) {
            0 => "_indices/../_versions/1.manifest",
            1 => "_indices/nowhere",
            _ => self.dice.pick(&FILES).path,
        };
        let file_bytes = if self.dice.per_mille(500) { 0 } else { self.dice.any() };
        let file =
            Open { handle, table_uri: uri, file: file.into(), file_bytes, ..Open::default() };
        match self.dice.per_mille(800) {
            true => file,
            false => Open { columns, ..file },
        }
    }

    fn batch(&mut self) -> Batch {
        let rows = match self.dice.below(10) {
            0 => 0,
            1 => self.dice.below(5000),
            _ => self.dice.below(20),
        };
        let address = |dice: &mut Dice| match dice.below(10) {
            0 => dice.any(),
            _ => dice.in_range(0..=3) << 32 | dice.in_range(0..=1000),
        };
        let row_addrs = (0..rows).map(|_| address(&mut self.dice)).collect();
        let rerank = self.dice.per_mille(300).then(|| {
            let len = match self.dice.below(4) {
                0 => self.dice.below(3000),
                _ => 4 * DIMENSION,
            };
            let is_zero = self.dice.per_mille(200);
            let bytes: Vec<u8> = match self.dice.per_mille(300) || is_zero {
                true => (0..len).map(|_| if is_zero { 0 } else { self.dice.any() as u8 }).collect(),
                false => (0..len / 4).flat_map(|_| self.dice.unit().to_le_bytes()).collect(),
            };
            let (metric, k) = (self.dice.in_range(0..=5) as i32, self.small() as u32);
            Rerank { vector: bytes.into(), metric, k }
        });
        let timeout_us = match self.dice.below(4) {
            0 => self.dice.in_range(0..=20) * 1000,
            1 => u64::MAX,
            _ => 0,
        };
        let priority = self.dice.in_range(0..=4) as i32 - 1;
        let id = if self.dice.per_mille(900) { self.dice.any() } else { self.small() };
        let handle = self.small() as u32;
        let traceparent = match self.dice.below(3) {
            0 => String::new(),
            1 => format!("00-{:032x}-{:016x}-01", self.dice.any(), self.dice.any()),
            _ => (0..self.dice.below(60)).map(|_| char::from(self.dice.below(128) as u8)).collect(),
        };
        let (flow, weight) = match self.dice.below(3) {
            0 => (0, 0),
            1 => (self.dice.in_range(0..=3), self.dice.in_range(0..=5) as u32),
            _ => (self.dice.any(), self.dice.any() as u32),
        };
        let predicate = self.dice.per_mille(100).then(|| {
            let step = |dice: &mut Dice| PredicateStep {
                op: dice.in_range(0..=8) as i32,
                column: dice.below(3) as u32,
                values: (0..dice.below(3)).map(|_| vec![0; 1 << dice.below(4)].into()).collect(),
            };
            let steps = (0..self.dice.below(4)).map(|_| step(&mut self.dice)).collect();
            Predicate { steps }
        });
        Batch {
            id,
            handle,
            row_addrs,
            rerank,
            timeout_us,
            priority,
            traceparent,
            flow,
            weight,
            predicate,
        }
    }
}

/// Connects to a node. Returns `None` if it does not answer.
pub async fn connect(net: &Net, name: &str) -> Option<Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{name}:7071"));
    // HTTP/2 must not forget reset streams after some real time; see `simulated` in `client/src/network.rs`.
    let endpoint = endpoint.unwrap().http2_reset_stream_duration(Duration::MAX);
    let endpoint = endpoint.connect_timeout(PATIENCE);
    let channel = endpoint.connect_with_connector(Dialer(Arc::new(net.clone())));
    tokio::time::timeout(PATIENCE, channel).await.ok()?.ok()
}

/// Returns the path of the Fetch call.
pub fn http_path() -> tonic::codegen::http::uri::PathAndQuery {
    tonic::codegen::http::uri::PathAndQuery::from_static(FETCH_PATH)
}

/// Adapts the network to tonic.
struct Dialer(Arc<Net>);

impl Service<Uri> for Dialer {
    type Response = TokioIo<Box<dyn Carrier>>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, std::io::Result<Self::Response>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        self.0.dial(&to).map(|dialled| dialled.map(TokioIo::new)).boxed()
    }
}

//! Passes damaged and random messages of an I/O node to a stream's ledger, and decodes the replies as callers do.
//! `wire` has fuzz tests of messages, record batches, schemas and trailers by themselves.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bytes::Bytes;
use fuzz::rand::Rng;
use fuzz::rand::rngs::StdRng;
use fuzz::{Messages, cases, damage};
use prost::Message;
use scheduler::Flow;
use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::fetch::fetch_response::Kind as ResponseKind;
use wire::fetch::reply::Outcome as WireOutcome;
use wire::fetch::{FetchResponse, Neighbors, Opened, Reply as WireReply, StageTimes, Welcome};
use wire::{ArrowBatch, DESCRIPTORS, Fault, schema_to_bytes};

use super::job::{Command, Job};
use super::ledger::Ledger;
use super::projection::ProjectionKey;
use super::reply::{Outcome, RawReply, Reply};
use super::split::join;
use super::state::{QueuePlace, StreamState};

const CREDIT_ROWS: u32 = 40;

type Answered = oneshot::Receiver<Result<RawReply, Fault>>;

/// Returns a ledger with waiting batches of one to nine rows, and the id, the number of rows and the answer of each
/// batch.
fn busy(rng: &mut StdRng) -> (Ledger, Vec<(u64, usize, Answered)>) {
    let welcome = Welcome { credit_rows: CREDIT_ROWS, batch_rows_max: 10, ..Default::default() };
    let mut ledger = Ledger::new(&welcome, 2);
    let mut asked = Vec::new();
    for id in 0..rng.random_range(1..5) {
        let rows = rng.random_range(1..10);
        let columns = vec![["x", "y"][rng.random_range(0..2)].to_owned()];
        let projection = ProjectionKey {
            table_uri: "t".into(),
            version: 1,
            identity: String::new(),
            columns,
            ..Default::default()
        };
        let (answer, answered) = oneshot::channel();
        let deadline = Instant::now().checked_add(std::time::Duration::from_secs(3600)).unwrap();
        ledger.admit(Command::Fetch(Box::new(Job {
            id,
            projection: Arc::new(projection),
            row_addrs: (0..rows as u64).collect(),
            rerank: None,
            predicate: None,
            context: deadline.into(),
            asked: Instant::now(),
            opening: Arc::default(),
            _place: QueuePlace::take(
                &Arc::new(StreamState::new(Arc::default(), 1)),
                Flow::default(),
            )
            .unwrap(),
            answer,
        })));
        asked.push((id, rows, answered));
    }
    (ledger, asked)
}

fn batch(rows: usize) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    RecordBatch::try_from_iter([("x", numbers)]).unwrap()
}

/// Returns a mostly valid reply to a batch.
fn reply(rng: &mut StdRng, id: u64, rows: usize) -> WireReply {
    let missing: Vec<u32> = (0..rows as u32).filter(|_| rng.random_bool(0.2)).collect();
    let outcome = match rng.random_range(0..3) {
        0 => WireOutcome::Neighbors(Neighbors {
            row_addrs: (0..rows as u64).collect(),
            distances: (0..rows).map(|_| rng.random()).collect(),
        }),
        _ => {
            let rows = batch(rows - missing.len());
            WireOutcome::Rows(ArrowBatch::from_record_batch(&rows).unwrap())
        }
    };
    let times = Some(StageTimes { drive_reads: rng.random(), ..Default::default() });
    WireReply { id, outcome: Some(outcome), missing, times }
}

#[test]
fn fuzz_what_an_io_node_says() {
    let messages = Messages::of(DESCRIPTORS, &["x"]);
    let schema = schema_to_bytes(&batch(0).schema()).unwrap();
    let (mut right, mut refused, mut broken) = (0, 0, 0);
    cases("fuzz_what_an_io_node_says", 6_000, |rng| {
        let (mut ledger, asked) = busy(rng);
        let damaged = rng.random_range(0..3);
        let mut said = Vec::new();
        for handle in 1..=2 {
            said.push(ResponseKind::Opened(Opened { handle, schema: schema.clone(), error: None }));
        }
        said.extend(asked.iter().map(|(id, rows, _)| ResponseKind::Reply(reply(rng, *id, *rows))));
        let mut fault = None;
        for kind in said {
            while ledger.has_message() {
                ledger.next_message(Instant::now());
            }
            let mut bytes = FetchResponse { kind: Some(kind) }.encode_to_vec();
            match rng.random_range(0..4) {
                0 if damaged > 0 => damage(rng, &mut bytes),
                1 if damaged > 1 => {
                    bytes = messages.message(rng, "bireme.fetch.v1.FetchResponse");
                }
                _ => {}
            }
            let Ok(response) = FetchResponse::decode(Bytes::from(bytes)) else { continue };
            let taken = match response.kind {
                Some(ResponseKind::Opened(opened)) => ledger.on_opened(opened),
                Some(ResponseKind::Reply(reply)) => ledger.on_reply(reply, Instant::now()),
                Some(ResponseKind::Welcome(_) | ResponseKind::Retire(_)) | None => Ok(()),
            };
            assert!(ledger.outstanding_rows() <= CREDIT_ROWS as usize);
            if let Err(why) = taken {
                assert!(!why.message.is_empty());
                fault = Some(why);
                break;
            }
        }
        broken += u64::from(fault.is_some());
        ledger
            .fail(&fault.unwrap_or_else(|| Fault::new(wire::Reason::NodeUnavailable, "it ended")));
        // Each batch is answered once. The replies are then joined.
        let mut parts = Vec::new();
        for (_, rows, mut answered) in asked {
            let answer = answered.try_recv().expect("each batch is answered");
            match answer.and_then(|raw| Reply::decode(raw, rows)) {
                Ok(reply) => {
                    right += 1;
                    parts.push((0..rows, reply));
                }
                // The node's fault, or a damaged reply.
                Err(_) => refused += 1,
            }
        }
        let (rows, near): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(_, reply)| matches!(reply.outcome, Outcome::Rows(_)));
        let _ = (join(rows, None), join(near, Some(rng.random_range(1..9))));
    });
    assert!(right > 1000 && refused > 100 && broken > 100, "{right} {refused} {broken}");
}

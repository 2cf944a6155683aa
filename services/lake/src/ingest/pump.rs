//! Reads the files on a thread of its own, a few batches ahead of the writer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use tokio::sync::mpsc::{Sender, channel};

use super::counter::BytesRead;
use super::options::IngestProgress;
use super::source::Source;
use super::target::Target;
use crate::error::{LakeError, Result};
use crate::stop::Stop;

/// The most batches that wait for the writer. With the batches that are being read and written, there are four in
/// memory, about 32 MiB.
const BATCHES_WAITING_MAX: usize = 2;

/// The error that ended the reading, if any, and the number of rows read.
#[derive(Clone, Default)]
pub(crate) struct Outcome {
    fault: Arc<Mutex<Option<LakeError>>>,
    rows: Arc<AtomicU64>,
}

impl Outcome {
    /// Takes the error that ended the reading, if any: a fault of a file, or `Interrupted`. It is more specific than
    /// the error that it causes in the writer.
    pub(crate) fn take_fault(&self) -> Option<LakeError> {
        self.fault.lock().ok().and_then(|mut fault| fault.take())
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Keeps `fault` if it is the first. Returns the error that makes the writer stop.
    fn fail(&self, fault: LakeError) -> DataFusionError {
        let message = fault.to_string();
        if let Ok(mut slot) = self.fault.lock() {
            slot.get_or_insert(fault);
        }
        DataFusionError::Execution(message)
    }
}

type Sent = std::result::Result<RecordBatch, DataFusionError>;

/// Starts reading `sources` one after another. Dropping the returned stream ends the reading. When `stop` is pulled,
/// the stream fails, so that the writer removes what it has written of the table at `uri`.
pub(crate) fn pump(
    sources: Vec<Source>,
    target: Target,
    (uri, stop): (&str, Stop),
    progress: impl Fn(IngestProgress) + Send + Sync + 'static,
) -> (SendableRecordBatchStream, Outcome) {
    let outcome = Outcome::default();
    let schema = target.schema().clone();
    let (to_writer, from_reader) = channel(BATCHES_WAITING_MAX);
    let mine = outcome.clone();
    tokio::task::spawn_blocking(move || {
        if let Err(fault) = read_all(&sources, &target, &to_writer, &mine, &progress) {
            // If the writer has ended already, nobody needs the error.
            let _ = to_writer.blocking_send(Err(mine.fail(fault)));
        }
    });
    let interrupted = LakeError::Interrupted { uri: uri.to_owned() };
    let state = (from_reader, stop, outcome.clone(), Some(interrupted));
    let batches =
        futures::stream::unfold(state, |(mut from, stop, outcome, mut fault)| async move {
            let batch: Option<Sent> = tokio::select! {
                biased;
                () = stop.pulled() => fault.take().map(|fault| Err(outcome.fail(fault))),
                batch = from.recv() => batch,
            };
            batch.map(|batch| (batch, (from, stop, outcome, fault)))
        });
    (Box::pin(RecordBatchStreamAdapter::new(schema, batches)), outcome)
}

fn read_all(
    sources: &[Source],
    target: &Target,
    to_writer: &Sender<Sent>,
    outcome: &Outcome,
    progress: &impl Fn(IngestProgress),
) -> Result<()> {
    let bytes_total = sources.iter().map(|source| source.bytes).sum();
    let mut bytes_before = 0;
    let mut rows = 0;
    for source in sources {
        let read = BytesRead::default();
        let mut row = 0;
        for batch in source.batches(target.schema(), &read)? {
            let batch = target.conform(&batch?, &source.path, row)?;
            let count = batch.num_rows() as u64;
            row += count;
            rows += count;
            if to_writer.blocking_send(Ok(batch)).is_err() {
                return Ok(());
            }
            outcome.rows.store(rows, Ordering::Relaxed);
            let bytes_read = bytes_before + read.get().min(source.bytes);
            progress(IngestProgress { rows, bytes_read, bytes_total });
        }
        bytes_before += source.bytes;
    }
    progress(IngestProgress { rows, bytes_read: bytes_total, bytes_total });
    Ok(())
}

//! A ring without its futures, sinks and tasks: the queues, the operations in flight, and the handling of completions.
//!
//! Reads and transfers (writes, fsyncs, owned reads) have separate slots, so that neither can use up the
//! slots of the other. `transfer_queues` decides which transfer is submitted next.
//!
//! No method calls a sink or a waker, so the ledger may stay borrowed while a method runs.

use std::rc::{Rc, Weak};

use address::{ByteOffset, DriveNo};

use crate::backend::{AnyBackend, Backend, Completion, Request};
use crate::error::Failure;
use crate::progress::{OpKind, Progress, Verdict};
use crate::read_queue::{QueuedRead, ReadQueue};
use crate::slots::{SlotId, Slots};
use crate::stats::{Counters, add, raise};
use crate::transfer::{Reply, Transfer};
use crate::transfer_limits::TransferLimits;
use crate::transfer_queues::TransferQueues;
use crate::{AlignedBuf, ReadError, ReadSink, RingConfig};

/// The bookkeeping of a ring, and its backend.
pub(crate) struct Ledger {
    backend: AnyBackend,
    pub counters: Counters,
    /// The length of each drive in bytes.
    drive_lens: Vec<u64>,
    reads: Slots<QueuedRead>,
    /// The buffer of each read slot. Empty while the slot's operation is in flight or its sink is being called.
    bufs: Vec<AlignedBuf>,
    read_queue: ReadQueue,
    transfers: Slots<Transfer>,
    transfer_queues: TransferQueues,
    /// The number of operations pushed to the backend since its last successful `submit`.
    unsubmitted: u64,
}

/// The receiver of an operation's result. The ring calls it when the ledger is no longer borrowed.
pub(crate) enum Delivery {
    /// There is no result yet: the rest of the operation was pushed to the backend.
    Nothing,
    /// A sink. After the call, the slot and its buffer are returned.
    ToSink {
        sink: Weak<dyn ReadSink>,
        tag: u64,
        outcome: Result<usize, ReadError>,
        slot: SlotId,
        buf: AlignedBuf,
    },
    /// The future of a transfer.
    ToFuture { reply: Rc<Reply>, outcome: Result<(), Failure>, buf: AlignedBuf },
}

impl Ledger {
    /// Creates a ledger without operations. `bufs` has one buffer for each read slot.
    pub fn new(
        config: &RingConfig,
        limits: TransferLimits,
        drive_lens: Vec<u64>,
        bufs: Vec<AlignedBuf>,
        backend: AnyBackend,
    ) -> Self {
        Self {
            backend,
            counters: Counters::default(),
            drive_lens,
            reads: Slots::new(0, config.slots),
            bufs,
            read_queue: ReadQueue::new(config.queue_max),
            transfers: Slots::new(config.slots, limits.total()),
            transfer_queues: TransferQueues::new(limits, config.transfer_queue_max),
            unsubmitted: 0,
        }
    }

    /// Queues a read. Returns false if the queue is full.
    pub fn accept_read(&mut self, read: QueuedRead) -> bool {
        if self.read_queue.is_full() {
            let discarded = self.read_queue.discard_unwanted();
            add(&self.counters.reads_discarded, discarded);
            if self.read_queue.is_full() {
                add(&self.counters.reads_refused, 1);
                return false;
            }
        }
        self.transfer_queues.limit_after_read(read.drive);
        self.read_queue.push(read);
        add(&self.counters.reads_queued, 1);
        raise(&self.counters.queue_len_max, self.read_queue.len() as u64);
        true
    }

    /// Queues a transfer. Returns its buffer if the queue is full.
    pub fn accept_transfer(
        &mut self,
        transfer: Transfer,
        buf: AlignedBuf,
    ) -> Result<(), AlignedBuf> {
        self.transfer_queues.push(transfer, buf).map_err(|(_, buf)| buf)
    }

    /// Fills the free slots from the queues, and submits all operations that the backend was given. Returns false if
    /// the kernel is out of resources. The caller must then call this again soon.
    pub fn submit(&mut self) -> bool {
        self.fill_read_slots();
        self.fill_transfer_slots();
        raise(&self.counters.in_flight_max, u64::from(self.in_flight()));
        if self.unsubmitted == 0 {
            return true;
        }
        match self.backend.submit() {
            Ok(()) => {
                add(&self.counters.submits, 1);
                self.unsubmitted = 0;
                true
            }
            Err(_) => {
                add(&self.counters.submits_deferred, 1);
                false
            }
        }
    }

    fn fill_read_slots(&mut self) {
        while self.reads.has_free() {
            let (discarded, read) = self.read_queue.pop();
            add(&self.counters.reads_discarded, discarded);
            let Some(read) = read else { return };
            let (drive, offset, len) = (read.drive, read.offset, read.progress.len);
            let slot = self.reads.occupy(read);
            let buf = std::mem::replace(&mut self.bufs[slot.index()], AlignedBuf::empty());
            let kind = OpKind::Read;
            self.push(Request { slot, kind, drive, offset, start: 0, len, buf });
            add(&self.counters.reads_submitted, 1);
        }
    }

    fn fill_transfer_slots(&mut self) {
        loop {
            let (discarded, next) = self.transfer_queues.next();
            add(&self.counters.transfers_discarded, discarded);
            let Some((transfer, buf)) = next else { return };
            let Transfer { kind, drive, offset, progress: Progress { len, .. }, .. } = transfer;
            let slot = self.transfers.occupy(transfer);
            self.push(Request { slot, kind, drive, offset, start: 0, len, buf });
        }
    }

    fn push(&mut self, request: Request) {
        self.backend.push(request);
        self.unsubmitted += 1;
    }

    /// Appends the available completions to `into`.
    pub fn reap(&mut self, into: &mut Vec<Completion>) {
        self.backend.reap(into);
        if !into.is_empty() {
            add(&self.counters.reaps, 1);
        }
    }

    /// Processes one completion. If the operation is not finished, pushes the rest of it to the backend, except for a
    /// read whose sink was dropped.
    pub fn complete(&mut self, completion: Completion) -> Delivery {
        let Completion { slot, result, buf } = completion;
        if self.reads.covers(slot) {
            self.complete_read(slot, result, buf)
        } else {
            self.complete_transfer(slot, result, buf)
        }
    }

    fn complete_read(
        &mut self,
        slot: SlotId,
        result: Result<u32, i32>,
        buf: AlignedBuf,
    ) -> Delivery {
        let read = self.reads.get_mut(slot).expect("a completion belongs to an occupied slot");
        let verdict = read.progress.advance(OpKind::Read, result);
        let unwanted = read.sink.strong_count() == 0;
        if verdict == Verdict::Resubmit && !unwanted {
            let (drive, offset, progress) = (read.drive, read.offset, read.progress);
            self.push_rest(slot, OpKind::Read, drive, offset, progress, buf);
            return Delivery::Nothing;
        }
        let QueuedRead { sink, tag, offset, drive, progress } =
            self.reads.take(slot).expect("the slot was occupied above");
        let len = progress.len as usize;
        let outcome = match self.failure(verdict, drive, offset, len) {
            None => Ok(len),
            Some(failure) => Err(failure.into()),
        };
        let counters = &self.counters;
        if unwanted {
            add(&counters.reads_orphaned, 1);
        } else if outcome.is_ok() {
            add(&counters.reads_completed, 1);
            add(&counters.read_bytes, len as u64);
        }
        Delivery::ToSink { sink, tag, outcome, slot, buf }
    }

    fn complete_transfer(
        &mut self,
        slot: SlotId,
        result: Result<u32, i32>,
        buf: AlignedBuf,
    ) -> Delivery {
        let transfer =
            self.transfers.get_mut(slot).expect("a completion belongs to an occupied slot");
        let verdict = transfer.progress.advance(transfer.kind, result);
        // Continue a transfer even if its future was dropped, because a part of a write is useless.
        if verdict == Verdict::Resubmit {
            let Transfer { kind, drive, offset, progress, .. } = *transfer;
            self.push_rest(slot, kind, drive, offset, progress, buf);
            return Delivery::Nothing;
        }
        let Transfer { kind, drive, offset, progress, reply } =
            self.transfers.take(slot).expect("the slot was occupied above");
        self.transfers.free(slot);
        self.transfer_queues.completed(drive);
        let len = progress.len as usize;
        let failure = self.failure(verdict, drive, offset, len);
        let counters = &self.counters;
        match (failure, kind) {
            (Some(_), _) => add(&counters.transfers_failed, 1),
            (None, OpKind::Fsync) => add(&counters.fsyncs_completed, 1),
            (None, OpKind::Write) => {
                add(&counters.writes_completed, 1);
                add(&counters.write_bytes, len as u64);
            }
            (None, OpKind::Read) => {}
        }
        Delivery::ToFuture { reply, outcome: failure.map_or(Ok(()), Err), buf }
    }

    fn push_rest(
        &mut self,
        slot: SlotId,
        kind: OpKind,
        drive: DriveNo,
        offset: ByteOffset,
        progress: Progress,
        buf: AlignedBuf,
    ) {
        add(&self.counters.retries, 1);
        let start = progress.done;
        let offset = ByteOffset(offset.0 + u64::from(start));
        self.push(Request { slot, kind, drive, offset, start, len: progress.len - start, buf });
    }

    /// Returns the failure that `verdict` means, or `None` if the operation succeeded. A read that is abandoned
    /// halfway, because its sink was dropped, counts as interrupted.
    fn failure(
        &self,
        verdict: Verdict,
        drive: DriveNo,
        offset: ByteOffset,
        len: usize,
    ) -> Option<Failure> {
        let io = |errno| Some(Failure::Io { drive, offset, errno });
        match verdict {
            Verdict::Done => None,
            Verdict::Failed(errno) => io(errno),
            Verdict::Resubmit => io(libc::EINTR),
            Verdict::EndOfFile => {
                let end = self.drive_lens[usize::from(drive.0)];
                Some(Failure::PastEnd { drive, offset, len, end })
            }
        }
    }

    /// Gives a read slot its buffer back, and frees the slot.
    pub fn return_slot(&mut self, slot: SlotId, buf: AlignedBuf) {
        self.bufs[slot.index()] = buf;
        self.reads.free(slot);
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> u32 {
        self.reads.occupied() + self.transfers.occupied()
    }

    /// Returns whether `submit` would have something to do.
    pub fn has_work(&self) -> bool {
        self.unsubmitted > 0
            || (self.read_queue.len() > 0 && self.reads.has_free())
            || self.transfer_queues.has_next()
    }

    /// Returns whether nothing is queued and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.read_queue.len() == 0 && self.transfer_queues.len() == 0
    }

    /// Returns the number of queued reads and of queued transfers.
    pub fn queue_lens(&self) -> (usize, usize) {
        (self.read_queue.len(), self.transfer_queues.len())
    }

    /// Discards everything that is queued. Returns the queued transfers' replies, which the caller must complete, and
    /// their buffers.
    pub fn clear_queues(&mut self) -> Vec<(Rc<Reply>, AlignedBuf)> {
        self.read_queue.clear();
        self.transfer_queues.drain().map(|(transfer, buf)| (transfer.reply, buf)).collect()
    }

    /// Blocks until an operation has completed.
    pub fn wait(&mut self) -> std::io::Result<()> {
        self.backend.submit()?;
        self.backend.wait()
    }

    /// Processes a completion without submitting the rest of an unfinished operation, for a ring that is
    /// being dropped. Returns the delivery to a transfer's future, or `None` for a read.
    pub fn complete_without_rest(&mut self, completion: Completion) -> Option<Delivery> {
        let Completion { slot, result, buf } = completion;
        if self.reads.covers(slot) {
            self.reads.take(slot);
            return None;
        }
        let Transfer { kind, drive, offset, mut progress, reply } = self.transfers.take(slot)?;
        let outcome = match progress.advance(kind, result) {
            Verdict::Resubmit => Err(Failure::Closed),
            verdict => {
                let len = progress.len as usize;
                self.failure(verdict, drive, offset, len).map_or(Ok(()), Err)
            }
        };
        Some(Delivery::ToFuture { reply, outcome, buf })
    }

    /// Returns the backend, for its readiness and pause.
    pub fn backend(&self) -> &AnyBackend {
        &self.backend
    }
}

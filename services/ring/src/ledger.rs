//! What waits, what is in flight, and what a completion means: a ring without its futures, sinks
//! and tasks.
//!
//! Reads and transfers (writes, syncs, owned reads) are two classes with slots of their own, so that
//! neither can take the other's; `transfer_queues` says which transfer has its turn.
//!
//! Nothing here calls foreign code, so the ledger may be borrowed throughout each method.

use std::rc::{Rc, Weak};

use address::{ByteOffset, DriveNo};

use crate::backend::{AnyBackend, Backend, Completion, Request};
use crate::error::Failure;
use crate::progress::{Kind, Progress, Verdict};
use crate::slots::{SlotId, Slots};
use crate::stats::{Counters, add, raise};
use crate::transfer::Reply;
use crate::transfer_limits::TransferLimits;
use crate::transfer_queues::TransferQueues;
use crate::waiting::{Read, Waiting};
use crate::{AlignedBuf, ReadError, ReadSink, RingConfig};

/// See the module.
pub(crate) struct Ledger {
    backend: AnyBackend,
    pub counters: Counters,
    /// Length of each drive.
    ends: Vec<u64>,
    reads: Slots<Read>,
    /// Of each read slot; empty while its operation is in flight or its sink looks at it.
    bufs: Vec<AlignedBuf>,
    waiting: Waiting,
    transfers: Slots<Transfer>,
    transfer_queues: TransferQueues,
    /// Pushed to the backend since it was last entered.
    unsubmitted: u64,
}

/// A write, sync or owned read.
pub(crate) struct Transfer {
    pub kind: Kind,
    pub drive: DriveNo,
    pub offset: ByteOffset,
    pub progress: Progress,
    pub reply: Rc<Reply>,
}

/// What is to be done after a completion, with the ledger no longer borrowed.
pub(crate) enum Step {
    /// Nothing: the rest of the operation was pushed.
    Again,
    /// Tell the sink, and give slot and buffer back.
    Read {
        sink: Weak<dyn ReadSink>,
        tag: u64,
        outcome: Result<usize, ReadError>,
        slot: SlotId,
        buf: AlignedBuf,
    },
    /// Tell the future.
    Transfer { reply: Rc<Reply>, outcome: Result<(), Failure>, buf: AlignedBuf },
}

impl Ledger {
    /// `bufs` are one for each read slot.
    pub fn new(
        config: &RingConfig,
        limits: TransferLimits,
        ends: Vec<u64>,
        bufs: Vec<AlignedBuf>,
        backend: AnyBackend,
    ) -> Self {
        Self {
            backend,
            counters: Counters::default(),
            ends,
            reads: Slots::new(0, config.slots),
            bufs,
            waiting: Waiting::new(config.queue_max),
            transfers: Slots::new(config.slots, limits.total()),
            transfer_queues: TransferQueues::new(limits, config.transfer_queue_max),
            unsubmitted: 0,
        }
    }

    /// Queues a read; false if the queue is at its bound.
    pub fn accept_read(&mut self, read: Read) -> bool {
        if self.waiting.is_full() {
            let discarded = self.waiting.discard_unwanted();
            add(&self.counters.reads_discarded, discarded);
            if self.waiting.is_full() {
                add(&self.counters.reads_refused, 1);
                return false;
            }
        }
        self.transfer_queues.slow_down(read.drive);
        self.waiting.push(read);
        add(&self.counters.reads_queued, 1);
        raise(&self.counters.queue_len_max, self.waiting.len() as u64);
        true
    }

    /// Queues a transfer, or gives its buffer back if its queue is at its bound.
    pub fn accept_transfer(
        &mut self,
        transfer: Transfer,
        buf: AlignedBuf,
    ) -> Result<(), AlignedBuf> {
        if let Err((_, buf)) = self.transfer_queues.push(transfer, buf) {
            add(&self.counters.transfers_refused, 1);
            return Err(buf);
        }
        add(&self.counters.transfers_queued, 1);
        Ok(())
    }

    /// Fills the slots from the queues and enters the backend, once. False if it's to be called
    /// again soon, because the kernel was short of something.
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
                raise(&self.counters.submit_batch_max, self.unsubmitted);
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
            let (discarded, read) = self.waiting.pop();
            add(&self.counters.reads_discarded, discarded);
            let Some(read) = read else { return };
            let (drive, offset, len) = (read.drive, read.offset, read.progress.len);
            let slot = self.reads.occupy(read);
            let buf = std::mem::replace(&mut self.bufs[slot.index()], AlignedBuf::empty());
            let kind = Kind::Read;
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

    /// Appends the completions that are there.
    pub fn reap(&mut self, into: &mut Vec<Completion>) {
        self.backend.reap(into);
        if !into.is_empty() {
            add(&self.counters.reaps, 1);
            raise(&self.counters.reap_batch_max, into.len() as u64);
        }
    }

    /// Judges one completion; an operation that isn't done is pushed again.
    pub fn settle(&mut self, completion: Completion) -> Step {
        let Completion { slot, result, buf } = completion;
        if self.reads.covers(slot) {
            self.settle_read(slot, result, buf)
        } else {
            self.settle_transfer(slot, result, buf)
        }
    }

    fn settle_read(&mut self, slot: SlotId, result: Result<u32, i32>, buf: AlignedBuf) -> Step {
        let read = self.reads.get_mut(slot).expect("a backend completes what it was given");
        let verdict = read.progress.judge(Kind::Read, result);
        let unwanted = read.sink.strong_count() == 0;
        if verdict == Verdict::Again && !unwanted {
            let (drive, offset, progress) = (read.drive, read.offset, read.progress);
            self.push_rest(slot, Kind::Read, drive, offset, progress, buf);
            return Step::Again;
        }
        let Read { sink, tag, offset, drive, progress } =
            self.reads.take(slot).expect("it was there just now");
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
        } else {
            add(&counters.reads_failed, 1);
        }
        Step::Read { sink, tag, outcome, slot, buf }
    }

    fn settle_transfer(&mut self, slot: SlotId, result: Result<u32, i32>, buf: AlignedBuf) -> Step {
        let transfer = self.transfers.get_mut(slot).expect("a backend completes what it was given");
        let verdict = transfer.progress.judge(transfer.kind, result);
        // A write goes on though nobody waits for it: half of it is of no use to anybody.
        if verdict == Verdict::Again {
            let Transfer { kind, drive, offset, progress, .. } = *transfer;
            self.push_rest(slot, kind, drive, offset, progress, buf);
            return Step::Again;
        }
        let Transfer { kind, drive, offset, progress, reply } =
            self.transfers.take(slot).expect("it was there just now");
        self.transfers.free(slot);
        self.transfer_queues.ended(drive);
        let len = progress.len as usize;
        let failure = self.failure(verdict, drive, offset, len);
        let counters = &self.counters;
        match (failure, kind) {
            (Some(_), _) => add(&counters.transfers_failed, 1),
            (None, Kind::Sync) => add(&counters.syncs_completed, 1),
            (None, Kind::Write) => {
                add(&counters.writes_completed, 1);
                add(&counters.write_bytes, len as u64);
            }
            (None, Kind::Read) => {
                add(&counters.owned_reads_completed, 1);
                add(&counters.owned_read_bytes, len as u64);
            }
        }
        Step::Transfer { reply, outcome: failure.map_or(Ok(()), Err), buf }
    }

    fn push_rest(
        &mut self,
        slot: SlotId,
        kind: Kind,
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

    /// `None` if the operation is done. One that is given up unfinished counts as interrupted.
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
            Verdict::Again => io(libc::EINTR),
            Verdict::End => {
                let end = self.ends[usize::from(drive.0)];
                Some(Failure::PastEnd { drive, offset, len, end })
            }
        }
    }

    /// Makes a read's slot free, with its buffer.
    pub fn give_back(&mut self, slot: SlotId, buf: AlignedBuf) {
        self.bufs[slot.index()] = buf;
        self.reads.free(slot);
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> u32 {
        self.reads.occupied() + self.transfers.occupied()
    }

    /// Whether a call of `submit` would have something to do.
    pub fn has_work(&self) -> bool {
        self.unsubmitted > 0
            || (self.waiting.len() > 0 && self.reads.has_free())
            || self.transfer_queues.has_next()
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.waiting.len() == 0 && self.transfer_queues.len() == 0
    }

    /// Reads waiting, and transfers.
    pub fn queue_lens(&self) -> (usize, usize) {
        (self.waiting.len(), self.transfer_queues.len())
    }

    /// Forgets what waits; the replies of the transfers among it are to be told.
    pub fn clear_queues(&mut self) -> Vec<(Rc<Reply>, AlignedBuf)> {
        self.waiting.clear();
        self.transfer_queues.drain().map(|(transfer, buf)| (transfer.reply, buf)).collect()
    }

    /// Blocks until something has completed.
    pub fn wait(&mut self) -> std::io::Result<()> {
        self.backend.submit()?;
        self.backend.wait()
    }

    /// Ends an operation without its rest, for a ring that is going away.
    pub fn end(&mut self, completion: Completion) -> Option<Step> {
        let Completion { slot, result, buf } = completion;
        if self.reads.covers(slot) {
            self.reads.take(slot);
            return None;
        }
        let Transfer { kind, drive, offset, mut progress, reply } = self.transfers.take(slot)?;
        let outcome = match progress.judge(kind, result) {
            Verdict::Again => Err(Failure::Closed),
            verdict => {
                let len = progress.len as usize;
                self.failure(verdict, drive, offset, len).map_or(Ok(()), Err)
            }
        };
        Some(Step::Transfer { reply, outcome, buf })
    }

    /// What turns readable when there are completions.
    pub fn backend(&self) -> &AnyBackend {
        &self.backend
    }
}

//! [`Ring`]: the handle that the code of a core uses.

mod driver;

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use address::{ByteOffset, DriveNo, SECTOR_BYTES};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::driver::SubmitRequest;
pub use self::driver::submit_all;
use crate::backend::{
    AnyBackend, Backend, Completion, InPlace, PreadPool, Registered, SimBackend, Uring,
};
use crate::config::TRANSFER_BYTES_MAX;
use crate::error::Failure;
use crate::ledger::{Delivery, Ledger};
use crate::progress::{OpKind, Progress};
use crate::read_queue::QueuedRead;
use crate::stats::add;
use crate::transfer::{Reply, Transfer};
use crate::transfer_limits::TransferLimits;
use crate::{
    AlignedBuf, Engine, EngineInUse, Fsync, IoUringUnavailable, ReadError, ReadOwned, ReadSink,
    RingConfig, RingDescription, RingStats, SlabFile, StartError, Write, WriteError, probe,
};

/// One core's ring. Clones are handles to the same ring. A handle cannot be sent to another thread.
///
/// Dropping the last handle discards the queued operations, and then blocks until nothing is in flight. It calls no
/// sink. The futures of transfers in flight complete with their outcomes. Those of transfers that were discarded, or
/// carried out only in part, complete with [`WriteError::Closed`] or [`ReadError::Closed`].
#[derive(Clone)]
pub struct Ring(Rc<Inner>);

pub(crate) struct Inner {
    /// The ring's number in its thread's list of rings (`driver.rs`).
    number: OnceCell<u64>,
    /// The task that drives the ring.
    task: OnceCell<AbortHandle>,
    ledger: RefCell<Ledger>,
    pub submit_request: SubmitRequest,
    /// The completions of the current batch. Empty between batches, and kept to reuse its allocation.
    batch: Cell<Vec<Completion>>,
    drains: RefCell<Vec<Waker>>,
    files: Vec<SlabFile>,
    slots: u32,
    slot_bytes: usize,
    queue_max: usize,
    transfer_queue_max: usize,
    /// Reads accepted since the last submission.
    unsubmitted: Cell<u32>,
    /// Whether the backend has no file descriptor that signals completions, so that it must be polled.
    polled: Cell<bool>,
    description: RingDescription,
}

impl Ring {
    /// Starts a ring over these slabs, which become its drives 0, 1, and so on. Must be called on the core's
    /// thread, within its current-thread runtime: the ring is driven by a task that is spawned there.
    ///
    /// # Errors
    ///
    /// See [`StartError`]. Anything that the engine lacks is reported here, not at the first read.
    ///
    /// # Panics
    ///
    /// If the runtime was built without `enable_io`, and the engine is io_uring or the pread pool.
    pub fn start(config: &RingConfig, files: &[SlabFile]) -> Result<Self, StartError> {
        config.validate()?;
        let runtime = Handle::try_current().map_err(|_| StartError::Runtime)?;
        if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return Err(StartError::Runtime);
        }
        if files.is_empty() || files.len() > usize::from(u16::MAX) {
            return Err(StartError::Drives(files.len()));
        }
        check_media(&config.engine, files)?;
        let config = &config.for_drives(files);
        let bufs = AlignedBuf::in_huge_pages(config.slots as usize, config.slot_bytes);
        let depths: Vec<_> = files.iter().map(SlabFile::queue_depth).collect();
        let mut limits = TransferLimits::new(config, &depths);
        let (backend, engine) = start_backend(config, files, &bufs, &mut limits)?;
        let drive_lens = files.iter().map(SlabFile::len).collect();
        let description = RingDescription {
            engine,
            drives: files.len(),
            buffered_drives: files.iter().filter(|file| !file.is_direct()).count(),
            slots: config.slots,
            slot_bytes: config.slot_bytes,
            transfers_in_flight_max: limits.by_drive(),
        };
        let inner = Rc::new(Inner {
            number: OnceCell::new(),
            task: OnceCell::new(),
            ledger: RefCell::new(Ledger::new(config, limits, drive_lens, bufs, backend)),
            submit_request: SubmitRequest::default(),
            batch: Cell::default(),
            drains: RefCell::default(),
            files: files.to_vec(),
            slots: config.slots,
            slot_bytes: config.slot_bytes,
            queue_max: config.queue_max,
            transfer_queue_max: config.transfer_queue_max,
            unsubmitted: Cell::new(0),
            polled: Cell::new(false),
            description,
        });
        inner.start_task(&runtime).map_err(os("registering the ring with the runtime"))?;
        Ok(Self(inner))
    }

    /// Reads `len` bytes at `offset` of `drive` and passes them to `sink`, together with `tag`. The range must consist
    /// of whole sectors and may be at most `slot_bytes` long. The ring holds only a weak reference to the sink, and
    /// calls it from the ring's own task, never from within this function.
    ///
    /// # Errors
    ///
    /// The reason why the read is refused: [`ReadError::Full`], or what is wrong with the drive or the range. The sink
    /// is not called for a refused read.
    pub fn read(
        &self,
        sink: &Rc<dyn ReadSink>,
        drive: DriveNo,
        offset: ByteOffset,
        len: usize,
        tag: u64,
    ) -> Result<(), ReadError> {
        self.0.check_read(drive, offset, len, self.0.slot_bytes)?;
        let progress = Progress::new(len as u32);
        let sink = Rc::downgrade(sink);
        let read = QueuedRead { sink, tag, offset, drive, progress };
        if !self.0.ledger.borrow_mut().accept_read(read) {
            return Err(ReadError::Full { queue_max: self.0.queue_max });
        }
        let unsubmitted = self.0.unsubmitted.get() + 1;
        self.0.unsubmitted.set(unsubmitted);
        if unsubmitted == 1 {
            self.0.submit_request.raise();
        } else if unsubmitted == self.0.slots {
            self.0.submit();
        }
        Ok(())
    }

    /// Fills `buf` from `offset` of `drive`. Meant for large sequential reads, such as those of a scrubber. The read is
    /// scheduled with the writes, so it has a lower priority than reads by [`Ring::read`]. The range must consist of
    /// whole sectors, at most 1 GiB.
    ///
    /// # Errors
    ///
    /// The future returns the error, which contains the buffer.
    pub fn read_owned(&self, drive: DriveNo, offset: ByteOffset, buf: AlignedBuf) -> ReadOwned {
        if let Err(error) = self.0.check_read(drive, offset, buf.len(), TRANSFER_BYTES_MAX) {
            return ReadOwned::refused(error, buf);
        }
        match self.0.transfer(OpKind::Read, drive, offset, buf) {
            Ok(reply) => ReadOwned::accepted(reply),
            Err(buf) => {
                let queue_max = self.0.transfer_queue_max;
                ReadOwned::refused(ReadError::Full { queue_max }, buf)
            }
        }
    }

    /// Writes `buf` to `offset` of `drive`. Writes have a lower priority than reads: see
    /// [`RingConfig::transfers_in_flight_max`](crate::RingConfig). The ring owns the buffer until the write
    /// has ended. Dropping the future cancels the write if it has not been submitted yet; otherwise the write
    /// goes on. The bytes are durable only after a [`Ring::fsync`] that begins after the write has ended.
    ///
    /// # Errors
    ///
    /// The future returns the error, which contains the buffer.
    pub fn write(&self, drive: DriveNo, offset: ByteOffset, buf: AlignedBuf) -> Write {
        if let Err(error) = self.0.check_write(drive, offset, buf.len()) {
            return Write::refused(error, buf);
        }
        match self.0.transfer(OpKind::Write, drive, offset, buf) {
            Ok(reply) => Write::accepted(reply),
            Err(buf) => {
                let queue_max = self.0.transfer_queue_max;
                Write::refused(WriteError::Full { queue_max }, buf)
            }
        }
    }

    /// Makes durable all writes to `drive` that ended before this call (fdatasync). Writes still in flight may or may
    /// not be covered.
    ///
    /// # Errors
    ///
    /// The future returns the error. After an I/O error it is unknown which writes are durable, and another fsync does
    /// not help.
    pub fn fsync(&self, drive: DriveNo) -> Fsync {
        if usize::from(drive.0) >= self.0.files.len() {
            return Fsync::refused(WriteError::NoSuchDrive { drive }, AlignedBuf::empty());
        }
        match self.0.transfer(OpKind::Fsync, drive, ByteOffset(0), AlignedBuf::empty()) {
            Ok(reply) => Fsync::accepted(reply),
            Err(buf) => {
                let queue_max = self.0.transfer_queue_max;
                Fsync::refused(WriteError::Full { queue_max }, buf)
            }
        }
    }

    /// Submits queued operations to the kernel now, as many as there are free slots. The ring does this by itself once
    /// all tasks that are ready have run. See also [`submit_all`](crate::submit_all).
    pub fn submit(&self) {
        self.0.submit();
    }

    /// Waits until nothing is queued and nothing is in flight.
    pub fn drain(&self) -> Drain {
        Drain(self.clone())
    }

    /// Returns the ring's counters and gauges.
    pub fn stats(&self) -> RingStats {
        let ledger = self.0.ledger.borrow();
        let (reads, transfers) = ledger.queue_lens();
        RingStats {
            queue_len: reads as u64,
            transfer_queue_len: transfers as u64,
            in_flight: u64::from(ledger.in_flight()),
            ..ledger.counters.snapshot()
        }
    }

    /// Returns how the ring was set up.
    pub fn describe(&self) -> &RingDescription {
        &self.0.description
    }

    /// Returns the ring's drives, by number.
    pub fn files(&self) -> &[SlabFile] {
        &self.0.files
    }
}

impl Inner {
    fn start_task(self: &Rc<Self>, runtime: &Handle) -> std::io::Result<()> {
        let (readiness, pause) = {
            let ledger = self.ledger.borrow();
            (ledger.backend().readiness()?, ledger.backend().pause())
        };
        self.polled.set(readiness.is_none());
        let readiness = match readiness {
            Some(fd) => {
                // SAFETY: the `AsyncFd` owns the descriptor, which refers to the same open file until it is
                // dropped.
                Some(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
            }
            None => None,
        };
        let number = driver::register(self);
        self.number.set(number).expect("a ring is started only once");
        let task = match readiness {
            Some(readiness) => runtime.spawn(driver::drive(number, readiness)),
            None => runtime.spawn(driver::drive_polled(number, pause)),
        };
        self.task.set(task.abort_handle()).expect("a ring is started only once");
        Ok(())
    }

    fn check_read(
        &self,
        drive: DriveNo,
        offset: ByteOffset,
        len: usize,
        max: usize,
    ) -> Result<(), ReadError> {
        let Some(file) = self.files.get(usize::from(drive.0)) else {
            return Err(ReadError::NoSuchDrive { drive });
        };
        if !is_whole(offset, len) {
            return Err(ReadError::Unaligned { drive, offset, len });
        }
        if len > max {
            return Err(ReadError::TooLong { len, max });
        }
        match ends_within(offset, len, file.len()) {
            true => Ok(()),
            false => Err(ReadError::PastEnd { drive, offset, len, end: file.len() }),
        }
    }

    fn check_write(
        &self,
        drive: DriveNo,
        offset: ByteOffset,
        len: usize,
    ) -> Result<(), WriteError> {
        let Some(file) = self.files.get(usize::from(drive.0)) else {
            return Err(WriteError::NoSuchDrive { drive });
        };
        if file.is_read_only() {
            return Err(WriteError::ReadOnly { drive });
        }
        if !is_whole(offset, len) {
            return Err(WriteError::Unaligned { drive, offset, len });
        }
        if len > TRANSFER_BYTES_MAX {
            return Err(WriteError::TooLong { len, max: TRANSFER_BYTES_MAX });
        }
        match ends_within(offset, len, file.len()) {
            true => Ok(()),
            false => Err(WriteError::PastEnd { drive, offset, len, end: file.len() }),
        }
    }

    fn transfer(
        &self,
        kind: OpKind,
        drive: DriveNo,
        offset: ByteOffset,
        buf: AlignedBuf,
    ) -> Result<Rc<Reply>, AlignedBuf> {
        let reply = Rc::new(Reply::default());
        let progress = Progress::new(buf.len() as u32);
        let transfer = Transfer { kind, drive, offset, progress, reply: Rc::clone(&reply) };
        self.ledger.borrow_mut().accept_transfer(transfer, buf)?;
        self.submit_request.raise();
        Ok(reply)
    }

    /// Submits the queued operations. Returns false if the kernel is out of resources. The ring's task then tries
    /// again.
    pub fn submit(&self) -> bool {
        self.unsubmitted.set(0);
        let mut ledger = self.ledger.borrow_mut();
        let submitted = ledger.submit();
        let idle = ledger.is_idle();
        drop(ledger);
        // A polled backend sends no signal when operations complete, so the task must look again.
        if !submitted || (self.polled.get() && !idle) {
            self.submit_request.raise();
        }
        if idle {
            self.wake_drains();
        }
        submitted
    }

    /// Collects one batch of completions and delivers them. Returns the number of completions.
    pub fn process_completions(&self) -> usize {
        let mut batch = self.batch.take();
        self.ledger.borrow_mut().reap(&mut batch);
        let count = batch.len();
        if count > 0 {
            let at = Instant::now();
            for completion in batch.drain(..) {
                let delivery = self.ledger.borrow_mut().complete(completion);
                self.deliver(delivery, at);
            }
        }
        self.batch.set(batch);
        if self.ledger.borrow().is_idle() {
            self.wake_drains();
        }
        count
    }

    /// Calls sinks and wakers. These may call the ring, so the ledger must not be borrowed here.
    fn deliver(&self, delivery: Delivery, at: Instant) {
        match delivery {
            Delivery::Nothing => {}
            Delivery::ToFuture { reply, outcome, buf } => reply.finish(outcome, buf),
            Delivery::ToSink { sink, tag, outcome, slot, buf } => {
                if let Some(sink) = sink.upgrade() {
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        sink.read_done(tag, outcome.map(|len| &buf[..len]), at);
                        drop(sink);
                    }));
                    if caught.is_err() {
                        add(&self.ledger.borrow().counters.sink_panics, 1);
                    }
                }
                self.ledger.borrow_mut().return_slot(slot, buf);
            }
        }
    }

    pub fn has_work(&self) -> bool {
        self.ledger.borrow().has_work()
    }

    pub fn in_flight(&self) -> u32 {
        self.ledger.borrow().in_flight()
    }

    fn wake_drains(&self) {
        if self.drains.borrow().is_empty() {
            return;
        }
        for waker in self.drains.take() {
            waker.wake();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(&number) = self.number.get() {
            driver::unregister(number);
        }
        if let Some(task) = self.task.get() {
            task.abort();
        }
        let ledger = self.ledger.get_mut();
        for (reply, buf) in ledger.clear_queues() {
            reply.finish(Err(Failure::Closed), buf);
        }
        let mut batch = Vec::new();
        while ledger.in_flight() > 0 {
            // An error means that the kernel is out of resources. The backend's own drop handles that case.
            if ledger.wait().is_err() {
                break;
            }
            ledger.reap(&mut batch);
            for completion in batch.drain(..) {
                if let Some(Delivery::ToFuture { reply, outcome, buf }) =
                    ledger.complete_without_rest(completion)
                {
                    reply.finish(outcome, buf);
                }
            }
        }
    }
}

/// The future of [`Ring::drain`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Drain(Ring);

impl Future for Drain {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &self.0.0;
        inner.submit();
        if inner.ledger.borrow().is_idle() {
            return Poll::Ready(());
        }
        inner.drains.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }
}

fn is_whole(offset: ByteOffset, len: usize) -> bool {
    len > 0 && len.is_multiple_of(SECTOR_BYTES) && offset.0.is_multiple_of(SECTOR_BYTES as u64)
}

fn ends_within(offset: ByteOffset, len: usize, end: u64) -> bool {
    offset.0.checked_add(len as u64).is_some_and(|past| past <= end)
}

fn check_media(engine: &Engine, files: &[SlabFile]) -> Result<(), StartError> {
    let (name, fits): (_, &dyn Fn(&SlabFile) -> bool) = match engine {
        Engine::Auto => ("auto", &|file| file.simulation().is_none()),
        Engine::IoUring => ("io_uring", &|file| file.simulation().is_none()),
        Engine::Pread => ("pread", &|file| file.simulation().is_none()),
        Engine::InPlace => ("in place", &|file| file.simulation().is_none()),
        Engine::Simulated(disk) => {
            ("simulated", &|file| file.simulation().is_some_and(|(other, _)| other.is_same(disk)))
        }
    };
    match files.iter().find(|file| !fits(file)) {
        None => Ok(()),
        Some(file) => {
            let path = file.path().display().to_string();
            Err(StartError::WrongMedium { path, engine: name })
        }
    }
}

/// Starts the configured backend. If it is a pread pool, which has a thread for each transfer that may be in flight,
/// lowers `limits` first.
fn start_backend(
    config: &RingConfig,
    files: &[SlabFile],
    bufs: &[AlignedBuf],
    limits: &mut TransferLimits,
) -> Result<(AnyBackend, EngineInUse), StartError> {
    let slots = config.slots + limits.total();
    match &config.engine {
        Engine::Simulated(disk) => {
            let engine = EngineInUse::Simulated { seed: disk.seed() };
            Ok((AnyBackend::Sim(SimBackend::start(disk)), engine))
        }
        Engine::Pread => start_pread(config, files, limits, None),
        Engine::InPlace => Ok((AnyBackend::InPlace(InPlace::start(files)), EngineInUse::InPlace)),
        Engine::IoUring => {
            probe()?;
            Ok(start_uring(slots, files, bufs)?)
        }
        Engine::Auto => match probe().and_then(|_| start_uring(slots, files, bufs)) {
            Ok(started) => Ok(started),
            Err(why) => start_pread(config, files, limits, Some(why)),
        },
    }
}

fn start_uring(
    slots: u32,
    files: &[SlabFile],
    bufs: &[AlignedBuf],
) -> Result<(AnyBackend, EngineInUse), IoUringUnavailable> {
    // The probe's ring was small, so this one may exceed RLIMIT_MEMLOCK although the probe succeeded.
    let (uring, registered) =
        Uring::start(files, slots, bufs).map_err(IoUringUnavailable::at_setup)?;
    let Registered { task_run, buffers_unregistered, files_unregistered } = registered;
    let engine = EngineInUse::IoUring { task_run, buffers_unregistered, files_unregistered };
    Ok((AnyBackend::Uring(Box::new(uring)), engine))
}

fn start_pread(
    config: &RingConfig,
    files: &[SlabFile],
    limits: &mut TransferLimits,
    instead_of_io_uring: Option<IoUringUnavailable>,
) -> Result<(AnyBackend, EngineInUse), StartError> {
    // Add a thread for each transfer that may be in flight, so that transfers, even of many drives, never occupy the
    // threads for reads.
    limits.cap_total(config.pread_threads);
    let threads = config.pread_threads + limits.total();
    let pool = PreadPool::start(files, threads).map_err(os("starting pread threads"))?;
    Ok((AnyBackend::Pread(pool), EngineInUse::Pread { threads, instead_of_io_uring }))
}

fn os(doing: &'static str) -> impl Fn(std::io::Error) -> StartError {
    move |source| StartError::Os { doing, source }
}

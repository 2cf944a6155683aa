//! The handle: what the owner of a core calls.

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

use crate::backend::{
    AnyBackend, Backend, Completion, InPlace, PreadPool, Registered, SimBackend, Uring,
};
use crate::config::TRANSFER_BYTES_MAX;
use crate::driver::{self, Link};
use crate::error::Failure;
use crate::ledger::{Ledger, Step, Transfer};
use crate::progress::{Kind, Progress};
use crate::stats::add;
use crate::transfer::Reply;
use crate::transfer_limits::TransferLimits;
use crate::waiting::Read;
use crate::{
    AlignedBuf, Engine, EngineInUse, ReadError, ReadOwned, ReadSink, RingConfig, RingDescription,
    RingStats, SlabFile, StartError, Sync, WhyNot, Write, WriteError, probe,
};

/// One ring, of one core. Clones are the same ring; it can't leave its thread.
///
/// Dropping the last handle blocks until nothing is in flight: no sink is called any more, what
/// waits is discarded, and the futures of transfers end, with [`WriteError::Closed`] or
/// [`ReadError::Closed`] if they weren't done.
#[derive(Clone)]
pub struct Ring(Rc<Inner>);

pub(crate) struct Inner {
    number: OnceCell<u64>,
    task: OnceCell<AbortHandle>,
    ledger: RefCell<Ledger>,
    pub link: Link,
    /// Kept for its allocation.
    batch: Cell<Vec<Completion>>,
    drains: RefCell<Vec<Waker>>,
    files: Vec<SlabFile>,
    slots: u32,
    slot_bytes: usize,
    queue_max: usize,
    transfer_queue_max: usize,
    /// Reads accepted since the last submission.
    unsubmitted: Cell<u32>,
    /// Whether the backend has nothing that turns readable.
    polled: Cell<bool>,
    description: RingDescription,
}

impl Ring {
    /// Starts a ring over these slabs, which are its drives 0, 1, and so on. To be called on the
    /// core's thread, within its current-thread runtime; a task is spawned that drives the ring.
    ///
    /// # Errors
    ///
    /// See [`StartError`]. What the engine lacks is found here, not at the first read.
    ///
    /// # Panics
    ///
    /// If the runtime was built without `enable_io`.
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
        let bufs = AlignedBuf::parts_of_huge_pages(config.slots as usize, config.slot_bytes);
        let depths: Vec<_> = files.iter().map(SlabFile::queue_depth).collect();
        let mut limits = TransferLimits::new(config, &depths);
        let (backend, engine) = start_backend(config, files, &bufs, &mut limits)?;
        let ends = files.iter().map(SlabFile::len).collect();
        let description = RingDescription {
            engine,
            drives: files.len(),
            buffered_drives: files.iter().filter(|file| !file.is_direct()).count(),
            slots: config.slots,
            slot_bytes: config.slot_bytes,
            transfers_in_flight_max: limits.of_drives(),
        };
        let inner = Rc::new(Inner {
            number: OnceCell::new(),
            task: OnceCell::new(),
            ledger: RefCell::new(Ledger::new(config, limits, ends, bufs, backend)),
            link: Link::default(),
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
        inner.start_task(&runtime).map_err(os("watching the ring"))?;
        Ok(Self(inner))
    }

    /// Has `sink` told of the `len` bytes at `offset` of `drive`, whole sectors and at most
    /// `slot_bytes`. The sink is held weakly, and called from the ring's own task, never from here.
    ///
    /// # Errors
    ///
    /// Refusals ([`ReadError::Full`] and those that say why the range can't be read); the sink then
    /// isn't called.
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
        let read = Read { sink, tag, offset, drive, progress };
        if !self.0.ledger.borrow_mut().accept_read(read) {
            return Err(ReadError::Full { queue_max: self.0.queue_max });
        }
        let unsubmitted = self.0.unsubmitted.get() + 1;
        self.0.unsubmitted.set(unsubmitted);
        if unsubmitted == 1 {
            self.0.link.kick();
        } else if unsubmitted == self.0.slots {
            self.0.submit();
        }
        Ok(())
    }

    /// Fills `buf` from `offset` of `drive`, for large sequential reads: scrubbing, recovery. In the
    /// class of writes, so it can't hold up [`Ring::read`]. Whole sectors, at most 1 GiB.
    ///
    /// # Errors
    ///
    /// The future's; each gives the buffer back.
    pub fn read_owned(&self, drive: DriveNo, offset: ByteOffset, buf: AlignedBuf) -> ReadOwned {
        if let Err(error) = self.0.check_read(drive, offset, buf.len(), TRANSFER_BYTES_MAX) {
            return ReadOwned::refused(error, buf);
        }
        match self.0.transfer(Kind::Read, drive, offset, buf) {
            Ok(reply) => ReadOwned::accepted(reply),
            Err(buf) => {
                let queue_max = self.0.transfer_queue_max;
                ReadOwned::refused(ReadError::Full { queue_max }, buf)
            }
        }
    }

    /// Writes `buf` to `offset` of `drive`, in the lower class: see
    /// [`RingConfig::transfers_in_flight_max`](crate::RingConfig). The buffer belongs to the ring
    /// until the write has ended. Dropping the future before it was submitted takes the write back;
    /// afterwards the write goes on. Not durable before a [`Ring::sync`] after its end.
    ///
    /// # Errors
    ///
    /// The future's; each gives the buffer back.
    pub fn write(&self, drive: DriveNo, offset: ByteOffset, buf: AlignedBuf) -> Write {
        if let Err(error) = self.0.check_write(drive, offset, buf.len()) {
            return Write::refused(error, buf);
        }
        match self.0.transfer(Kind::Write, drive, offset, buf) {
            Ok(reply) => Write::accepted(reply),
            Err(buf) => {
                let queue_max = self.0.transfer_queue_max;
                Write::refused(WriteError::Full { queue_max }, buf)
            }
        }
    }

    /// Makes the writes of `drive` durable that ended before this call (fdatasync). Those still in
    /// flight may be covered or not.
    ///
    /// # Errors
    ///
    /// The future's. After an I/O error nobody knows what is durable: calling again doesn't help.
    pub fn sync(&self, drive: DriveNo) -> Sync {
        if usize::from(drive.0) >= self.0.files.len() {
            return Sync::refused(WriteError::NoSuchDrive { drive }, AlignedBuf::empty());
        }
        match self.0.transfer(Kind::Sync, drive, ByteOffset(0), AlignedBuf::empty()) {
            Ok(reply) => Sync::accepted(reply),
            Err(buf) => {
                let queue_max = self.0.transfer_queue_max;
                Sync::refused(WriteError::Full { queue_max }, buf)
            }
        }
    }

    /// Hands what waits to the kernel now, as far as slots are free. The ring does so by itself once
    /// the tasks that are ready have run; see also [`submit_all`](crate::submit_all).
    pub fn submit(&self) {
        self.0.submit();
    }

    /// Completes when nothing waits and nothing is in flight.
    pub fn drain(&self) -> Drain {
        Drain(self.clone())
    }

    /// Counts and gauges.
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

    /// What the ring turned out to be.
    pub fn describe(&self) -> &RingDescription {
        &self.0.description
    }

    /// Its drives, by number.
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
                // SAFETY: the `AsyncFd` owns the descriptor, which stays the same open file until
                // it's dropped.
                Some(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
            }
            None => None,
        };
        let number = driver::register(self);
        self.number.set(number).expect("a ring is started once");
        let task = match readiness {
            Some(readiness) => runtime.spawn(driver::drive(number, readiness)),
            None => runtime.spawn(driver::drive_polled(number, pause)),
        };
        self.task.set(task.abort_handle()).expect("a ring is started once");
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
        kind: Kind,
        drive: DriveNo,
        offset: ByteOffset,
        buf: AlignedBuf,
    ) -> Result<Rc<Reply>, AlignedBuf> {
        let reply = Rc::new(Reply::default());
        let progress = Progress::new(buf.len() as u32);
        let transfer = Transfer { kind, drive, offset, progress, reply: Rc::clone(&reply) };
        self.ledger.borrow_mut().accept_transfer(transfer, buf)?;
        self.link.kick();
        Ok(reply)
    }

    pub fn submit(&self) {
        self.unsubmitted.set(0);
        let mut ledger = self.ledger.borrow_mut();
        let taken = ledger.submit();
        let idle = ledger.is_idle();
        drop(ledger);
        // Nobody else tells of completions.
        if !taken || (self.polled.get() && !idle) {
            self.link.kick();
        }
        if idle {
            self.wake_drains();
        }
    }

    /// Reaps one batch and runs it; how many completions it had.
    pub fn turn(&self) -> usize {
        let mut batch = self.batch.take();
        self.ledger.borrow_mut().reap(&mut batch);
        let count = batch.len();
        if count > 0 {
            let at = Instant::now();
            for completion in batch.drain(..) {
                let step = self.ledger.borrow_mut().settle(completion);
                self.run(step, at);
            }
        }
        self.batch.set(batch);
        if self.ledger.borrow().is_idle() {
            self.wake_drains();
        }
        count
    }

    /// Calls foreign code, so nothing is borrowed.
    fn run(&self, step: Step, at: Instant) {
        match step {
            Step::Again => {}
            Step::Transfer { reply, outcome, buf } => reply.finish(outcome, buf),
            Step::Read { sink, tag, outcome, slot, buf } => {
                if let Some(sink) = sink.upgrade() {
                    let told = catch_unwind(AssertUnwindSafe(|| {
                        sink.read_done(tag, outcome.map(|len| &buf[..len]), at);
                        drop(sink);
                    }));
                    if told.is_err() {
                        add(&self.ledger.borrow().counters.sink_panics, 1);
                    }
                }
                self.ledger.borrow_mut().give_back(slot, buf);
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
            // An error is the kernel's shortage; the backend's own drop deals with it.
            if ledger.wait().is_err() {
                break;
            }
            ledger.reap(&mut batch);
            for completion in batch.drain(..) {
                if let Some(Step::Transfer { reply, outcome, buf }) = ledger.end(completion) {
                    reply.finish(outcome, buf);
                }
            }
        }
    }
}

/// See [`Ring::drain`].
#[must_use = "nothing is waited for unless it's polled"]
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

/// May lower the limits to what the engine can do without holding up reads.
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
) -> Result<(AnyBackend, EngineInUse), WhyNot> {
    // The probe's ring was small: this one may still be too large for RLIMIT_MEMLOCK.
    let (uring, registered) = Uring::start(files, slots, bufs).map_err(WhyNot::of_setup)?;
    let Registered { task_run, buffers_unregistered, files_unregistered } = registered;
    let engine = EngineInUse::IoUring { task_run, buffers_unregistered, files_unregistered };
    Ok((AnyBackend::Uring(Box::new(uring)), engine))
}

fn start_pread(
    config: &RingConfig,
    files: &[SlabFile],
    limits: &mut TransferLimits,
    instead_of_io_uring: Option<WhyNot>,
) -> Result<(AnyBackend, EngineInUse), StartError> {
    // A thread for each transfer, so that those of many drives leave reads theirs.
    limits.hold_to(config.pread_threads);
    let threads = config.pread_threads + limits.total();
    let pool = PreadPool::start(files, threads).map_err(os("starting pread threads"))?;
    Ok((AnyBackend::Pread(pool), EngineInUse::Pread { threads, instead_of_io_uring }))
}

fn os(doing: &'static str) -> impl Fn(std::io::Error) -> StartError {
    move |source| StartError::Os { doing, source }
}

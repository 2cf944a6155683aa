//! The io_uring backend.
//!
//! Only this module gives the kernel pointers that the kernel uses after the system call has returned. The pointers
//! stay valid because a request's buffer moves into `operations` when its entry is pushed, no code of this process
//! accesses the buffer there, and the buffer leaves only with the completion that carries the request's id. Dropping
//! the backend waits for all completions. If waiting keeps failing, the buffers are leaked: freed memory that the
//! kernel still writes to would be worse.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Backend, Completion, Request};
use crate::progress::OpKind;
use crate::slots::SlotId;
use crate::{AlignedBuf, SlabFile, TaskRun};

/// The io_uring backend.
pub(crate) struct Uring {
    ring: IoUring,
    /// An eventfd that the kernel signals when there are completions to collect.
    signal: EventFd,
    files: Vec<SlabFile>,
    files_registered: bool,
    /// For each slot with a registered buffer, that buffer's address.
    registered: Vec<usize>,
    /// For each slot, the operation that is in the kernel or in the submission queue.
    operations: Vec<Option<Operation>>,
    in_flight: usize,
    task_run: TaskRun,
    /// Whether the last `reap` found completions. If so, more deferred work may be pending, which no flag reports.
    last_reap_found_some: bool,
}

struct Operation {
    slot: SlotId,
    buf: AlignedBuf,
}

/// The mode of a ring that was set up, and the reasons, if any, why buffers or files could not be registered.
pub(crate) struct Registered {
    pub task_run: TaskRun,
    pub buffers_unregistered: Option<String>,
    pub files_unregistered: Option<String>,
}

impl Uring {
    /// Sets up a ring for `slots` operations at a time. `buffers` are the buffers of the first slots.
    pub fn start(
        files: &[SlabFile],
        slots: u32,
        buffers: &[AlignedBuf],
    ) -> io::Result<(Self, Registered)> {
        let (ring, signal, task_run) = setup(slots)?;
        let fds: Vec<_> = files.iter().map(raw_fd).collect();
        let files_outcome = ring.submitter().register_files(&fds);
        let vectors: Vec<_> = buffers
            .iter()
            .map(|buf| libc::iovec { iov_base: buf.address().cast(), iov_len: buf.len() })
            .collect();
        // SAFETY: the kernel pins the pages now, and accesses them only in an operation that names them.
        // `push` names a registered buffer only while the backend owns that buffer. If a buffer is freed early, its
        // pages stay pinned and are not reused while they are registered.
        let buffers_outcome = unsafe { ring.submitter().register_buffers(&vectors) };
        let registered = match &buffers_outcome {
            Ok(()) => buffers.iter().map(|buf| buf.address() as usize).collect(),
            Err(_) => Vec::new(),
        };
        let uring = Self {
            ring,
            signal,
            files: files.to_vec(),
            files_registered: files_outcome.is_ok(),
            registered,
            operations: (0..slots).map(|_| None).collect(),
            in_flight: 0,
            task_run,
            last_reap_found_some: false,
        };
        let why = Registered {
            task_run,
            buffers_unregistered: buffers_outcome.err().map(why_unregistered),
            files_unregistered: files_outcome.err().map(|error| error.to_string()),
        };
        Ok((uring, why))
    }

    #[cfg(test)]
    pub fn raw_fd(&self) -> i32 {
        self.ring.as_raw_fd()
    }

    fn entry(&self, request: &Request) -> squeue::Entry {
        let Request { kind, offset, start, len, ref buf, .. } = *request;
        assert!(start as usize + len as usize <= buf.len(), "a request exceeds its buffer");
        let address = buf.address().wrapping_add(start as usize);
        let index = request.slot.index();
        let registered = self.registered.get(index) == Some(&(buf.address() as usize));
        macro_rules! build {
            ($file:expr) => {
                match kind {
                    OpKind::Read if registered => {
                        opcode::ReadFixed::new($file, address, len, index as u16)
                            .offset(offset.0)
                            .build()
                    }
                    OpKind::Read => opcode::Read::new($file, address, len).offset(offset.0).build(),
                    OpKind::Write => {
                        opcode::Write::new($file, address, len).offset(offset.0).build()
                    }
                    OpKind::Fsync => {
                        opcode::Fsync::new($file).flags(types::FsyncFlags::DATASYNC).build()
                    }
                }
            };
        }
        let drive = request.drive.0;
        let entry = match self.files_registered {
            true => build!(types::Fixed(u32::from(drive))),
            false => build!(types::Fd(raw_fd(&self.files[usize::from(drive)]))),
        };
        entry.user_data(request.slot.to_u64())
    }

    /// Enters the kernel, if necessary, to run the completion work that it deferred, and to refill the completion queue
    /// with completions for which it had no room before.
    fn run_deferred(&mut self) {
        let queue = self.ring.submission();
        let is_flagged = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        let may_be_left = self.last_reap_found_some && self.task_run == TaskRun::Deferred;
        if !(is_flagged || may_be_left) {
            return;
        }
        let flags = EnterFlags::GETEVENTS.bits();
        loop {
            // SAFETY: the call submits nothing, waits for nothing and passes no argument.
            let entered =
                unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, flags, None) };
            // After a signal, deferred work may be left that no flag reports, and the next `reap` would not enter the
            // kernel for it. After any other error, a flag that is set stays set.
            let is_interrupted =
                entered.is_err_and(|error| error.raw_os_error() == Some(libc::EINTR));
            if !is_interrupted {
                return;
            }
        }
    }
}

impl Backend for Uring {
    fn push(&mut self, request: Request) {
        let entry = self.entry(&request);
        let operation = &mut self.operations[request.slot.index()];
        assert!(operation.is_none(), "the slot already has an operation in flight");
        *operation = Some(Operation { slot: request.slot, buf: request.buf });
        self.in_flight += 1;
        loop {
            // SAFETY: the buffer that the entry points to was just moved into `operations`, which does not
            // change the buffer's address. The buffer stays there, untouched, until `reap` finds the completion or
            // `drop` gives up and leaks the buffer. `files` keeps the file open until `drop` has waited for the
            // ring's last operation.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue has room for all slots, so it can only be full if the kernel refused entries earlier.
            let _ = self.ring.submit();
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(0) => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        self.run_deferred();
        let before = into.len();
        for entry in self.ring.completion() {
            let slot = SlotId::from_u64(entry.user_data());
            let Some(operation) = self.operations.get_mut(slot.index()) else { continue };
            let Some(Operation { buf, .. }) = operation.take_if(|operation| operation.slot == slot)
            else {
                continue;
            };
            self.in_flight -= 1;
            let result = entry.result();
            let result = u32::try_from(result).map_err(|_| -result);
            into.push(Completion { slot, result, buf });
        }
        self.last_reap_found_some = into.len() > before;
    }

    fn wait(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                outcome => return outcome.map(drop),
            }
        }
    }

    fn readiness(&self) -> io::Result<Option<OwnedFd>> {
        // The eventfd is never read, as in the pread pool: each change of its counter wakes the task.
        self.signal.as_fd().try_clone_to_owned().map(Some)
    }
}

impl Drop for Uring {
    #[expect(
        clippy::disallowed_methods,
        reason = "a drop can't wait otherwise, and no simulated ring gets here"
    )]
    fn drop(&mut self) {
        let mut ended = Vec::new();
        let mut refusals = 0;
        while self.in_flight > 0 {
            // If the kernel refuses to wait (EAGAIN, EBUSY), collect the available completions below and try again.
            if self.wait().is_err() {
                refusals += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            if refusals > 1000 {
                std::mem::forget(std::mem::take(&mut self.operations));
                return;
            }
            self.reap(&mut ended);
            ended.clear();
        }
        // Unregister the files. Otherwise they would stay open, and locked, until the kernel has cleaned up the ring,
        // which happens some time after its descriptor was closed.
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buffers();
    }
}

/// Sets up a ring in the best mode that the kernel supports and in which it wakes a sleeping thread.
pub(crate) fn setup(slots: u32) -> io::Result<(IoUring, EventFd, TaskRun)> {
    type Flags = fn(&mut io_uring::Builder);
    const MODES: [(TaskRun, Flags); 4] = [
        (TaskRun::Deferred, |builder| {
            builder.setup_single_issuer().setup_defer_taskrun();
            builder.setup_taskrun_flag().setup_submit_all();
        }),
        (TaskRun::Cooperative, |builder| {
            builder.setup_single_issuer().setup_coop_taskrun();
            builder.setup_taskrun_flag().setup_submit_all();
        }),
        (TaskRun::Cooperative, |builder| {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }),
        (TaskRun::Interrupting, |_| {}),
    ];
    let mut refusal = io::Error::from_raw_os_error(libc::EINVAL);
    for (task_run, flags) in MODES {
        let mut builder = IoUring::builder();
        builder.dontfork();
        flags(&mut builder);
        match builder.build(slots.next_power_of_two()) {
            Ok(mut ring) => {
                let signal = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
                ring.submitter().register_eventfd(signal.as_fd().as_raw_fd())?;
                if task_run == TaskRun::Interrupting || eventfd_wakes(&mut ring, &signal)? {
                    return Ok((ring, signal, task_run));
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refusal = error,
            Err(error) => return Err(error),
        }
    }
    Err(refusal)
}

/// Returns whether a thread that sleeps in epoll is woken by work that the kernel finishes later. No manual
/// guarantees this, so it is tested with a timer of 1 ms: deferred work does not make the ring itself
/// readable (seen on Linux 6.18), but it does signal an eventfd.
fn eventfd_wakes(ring: &mut IoUring, signal: &EventFd) -> io::Result<bool> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(signal, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
    let after = types::Timespec::from(Duration::from_millis(1));
    let entry = opcode::Timeout::new(&after).build();
    // SAFETY: the kernel copies the timespec at submission, which is before this function returns.
    let pushed = unsafe { ring.submission().push(&entry) };
    pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
    ring.submit()?;
    // Work that the kernel passes to a sleeping thread may interrupt its sleep first, so try again after EINTR.
    let mut woken = Err(nix::Error::EINTR);
    for _ in 0..8 {
        if woken == Err(nix::Error::EINTR) {
            woken = epoll.wait(&mut [EpollEvent::empty()], 250u8);
        }
    }
    while ring.submit_and_wait(1).is_err_and(|error| error.raw_os_error() == Some(libc::EINTR)) {}
    ring.completion().for_each(drop);
    Ok(woken == Ok(1))
}

fn raw_fd(file: &SlabFile) -> i32 {
    file.file().map_or(-1, |file| file.as_raw_fd())
}

fn why_unregistered(error: io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => format!("{error}; raise RLIMIT_MEMLOCK (ulimit -l)"),
        _ => error.to_string(),
    }
}

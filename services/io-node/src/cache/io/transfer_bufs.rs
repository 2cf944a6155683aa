//! The buffers for background writes to a drive and reads from it.

use crossbeam_queue::ArrayQueue;
use ring::AlignedBuf;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of one transfer: long enough for nearly all of a drive's bandwidth with one transfer per core at a time, short
/// enough that reads never wait long behind it (`docs/performance.md`).
///
/// In tests, a transfer is so short that even short extents need several.
pub const TRANSFER_BYTES: usize = if cfg!(test) { 8 << 10 } else { 256 << 10 };

/// The maximum number of transfers of one drive at a time: enough to keep several rings busy. Each of eight rings can
/// have four in flight, and the buffers take 8 MiB.
const TRANSFERS_MAX: usize = 32;

/// The maximum number of bytes that one drive's transfer buffers take.
pub const TRANSFERS_BYTES_MAX: usize = TRANSFERS_MAX * TRANSFER_BYTES;

/// A drive's buffers of [`TRANSFER_BYTES`], made once and lent for one write or read at a time.
///
/// Newly allocated memory would cost a page fault per 4 KiB, and reach the drive as one scatter-gather entry per page.
/// Freeing it on another core would take a lock of the allocator.
pub struct TransferBufs {
    free: ArrayQueue<AlignedBuf>,
    /// As many permits as there are buffers. Each lent buffer takes one.
    permits: Semaphore,
}

impl TransferBufs {
    /// Creates enough buffers to hold `bytes` bytes in total, but at most [`TRANSFERS_MAX`] buffers.
    pub fn new(bytes: u64) -> Self {
        let wanted = bytes.div_ceil(TRANSFER_BYTES as u64);
        let count = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, TRANSFERS_MAX);
        let free = ArrayQueue::new(count);
        for buf in AlignedBuf::in_huge_pages(count, TRANSFER_BYTES) {
            free.push(buf).expect("the queue has space for every buffer");
        }
        Self { free, permits: Semaphore::new(count) }
    }

    /// Lends a buffer of `len` bytes once one is free. `len` is a multiple of a sector's length, at most
    /// [`TRANSFER_BYTES`]. The content of the buffer is arbitrary.
    pub async fn lend(&self, len: usize) -> (Loan<'_>, AlignedBuf) {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        // The queue is empty if a buffer was lost, because its ring ended, its drive hung or its step panicked. A new
        // one replaces it.
        let mut buf = self.free.pop().unwrap_or_else(|| AlignedBuf::zeroed(TRANSFER_BYTES));
        buf.resize(len);
        (Loan { free: &self.free, _permit: permit }, buf)
    }
}

/// A lent buffer's permit; dropping it lets the next borrower in.
pub struct Loan<'a> {
    free: &'a ArrayQueue<AlignedBuf>,
    _permit: SemaphorePermit<'a>,
}

impl Loan<'_> {
    /// Puts the buffer back, to be lent again. `buf` is `None` if the buffer was lost.
    pub fn give_back(self, buf: Option<AlignedBuf>) {
        // The queue has space for every buffer that is lent.
        let _ = buf.map(|buf| self.free.push(buf));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn as_many_are_lent_as_extents_can_use() {
        for (bytes, count) in [(0, 1), (1, 1), (3 * TRANSFER_BYTES as u64 + 1, 4), (1 << 40, 32)] {
            let bufs = TransferBufs::new(bytes);
            let lent: Vec<_> =
                std::iter::from_fn(|| bufs.lend(TRANSFER_BYTES).now_or_never()).collect();
            assert_eq!(lent.len(), count, "{bytes}");
        }
    }

    #[test]
    fn what_is_given_back_is_lent_again_and_what_is_lost_is_made_anew() {
        let bufs = TransferBufs::new(1);
        let (loan, mut buf) = bufs.lend(4096).now_or_never().unwrap();
        assert_eq!(buf.len(), 4096);
        buf.fill(7);
        assert!(bufs.lend(4096).now_or_never().is_none());
        loan.give_back(Some(buf));
        let (loan, buf) = bufs.lend(8192).now_or_never().unwrap();
        assert_eq!((buf.len(), buf[0]), (8192, 7));
        drop((loan, buf));
        let (_, buf) = bufs.lend(8192).now_or_never().unwrap();
        assert_eq!((buf.len(), buf[0]), (8192, 0));
    }
}

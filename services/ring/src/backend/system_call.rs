//! Carries out a request as one blocking system call.

use std::io;
use std::os::unix::fs::FileExt;

use super::{Completion, Request};
use crate::SlabFile;
use crate::progress::OpKind;

/// Carries out a request and returns its completion.
pub(super) fn carry_out(files: &[SlabFile], request: Request) -> Completion {
    let Request { slot, kind, drive, offset, start, len, mut buf } = request;
    let range = start as usize..(start + len) as usize;
    let result = match files[usize::from(drive.0)].file() {
        None => Err(io::Error::from_raw_os_error(libc::EBADF)),
        Some(file) => match kind {
            OpKind::Read => file.read_at(&mut buf[range], offset.0),
            OpKind::Write => file.write_at(&buf[range], offset.0),
            OpKind::Fsync => file.sync_data().map(|()| 0),
        },
    };
    let result = match result {
        Ok(bytes) => Ok(bytes as u32),
        Err(error) => Err(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    Completion { slot, result, buf }
}

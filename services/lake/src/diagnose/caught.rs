//! Turns panics in Lance into errors.
//!
//! Lance and the decoders below it index and unwrap what they read from files, so a damaged file makes them panic.
//! Calls into Lance that open, read and search tables go through [`caught`]. If Lance panics, the caller gets an error
//! that names the table, and the caller's task, permits and locks end as after any other error. Ingests and index
//! builds, which nodes don't run, also call Lance directly. A panic in a task that Lance started reaches the future
//! that awaits the task as a `JoinError`, which Lance turns into an error or into another panic.
//!
//! A failed allocation, a stack overflow, and a panic while another one unwinds are not caught: they end the process.
//! `store/checked.rs` rejects files whose metadata would cause the first two, before Lance reads them.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::diagnose::one_line;
use crate::error::{LakeError, Result};

/// The maximum number of characters of a panic's message that an error repeats.
const MESSAGE_MAX: usize = 200;

/// Awaits `work` on the table at `uri`. Errors: those of `work`, and `Corrupt` if it panics.
pub(crate) async fn caught<T>(uri: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    // Unwind safe: state that a panic leaves half-done belongs to the future, which is dropped, or to Lance's caches,
    // which keep nothing of a load that failed.
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        Err(panic) => Err(LakeError::Corrupt {
            uri: uri.to_owned(),
            why: format!("Lance panicked on it: {}", message(panic.as_ref())),
        }),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    one_line(text).chars().take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_that_names_the_table() {
        let index = 7;
        let error = caught::<u8>("/t", async { Ok([1, 2][index % 8]) }).await.unwrap_err();
        let LakeError::Corrupt { uri, why } = error else { panic!("{error}") };
        assert_eq!(uri, "/t");
        assert!(why.starts_with("Lance panicked on it: index out of bounds"), "{why}");
        let long = caught::<u8>("/t", async { panic!("{}", "a\n".repeat(1000)) }).await;
        let long = long.unwrap_err().to_string();
        assert!(long.len() < 400 && !long.contains('\n'), "{long}");
        assert_eq!(caught("/t", async { Ok(1) }).await.unwrap(), 1);
    }
}

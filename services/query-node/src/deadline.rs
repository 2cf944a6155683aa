//! When a request's answer is no longer of use.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, timeout_at};
use tonic::metadata::MetadataMap;

use crate::error::{QueryError, Result};

/// A request's deadline, for all of its stages.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
}

impl Deadline {
    /// `timeout` from now.
    pub fn after(timeout: Duration) -> Self {
        Self { at: Instant::now() + timeout }
    }

    /// From a request's `grpc-timeout`, or `timeout` from now if it brings none.
    ///
    /// A little before the caller's own, because what is answered then still gets there: after it
    /// tonic says no more than "cancelled".
    pub fn of(metadata: &MetadataMap, timeout: Duration) -> Self {
        match asked_timeout(metadata) {
            Some(asked) => Self::after(asked - (asked / 10).min(Duration::from_millis(20))),
            None => Self::after(timeout),
        }
    }

    /// By when an I/O node has to answer: what is left after it is for reading the table instead.
    pub fn of_io_nodes(self) -> Instant {
        let now = Instant::now();
        now + (self.at.saturating_duration_since(now)) * 3 / 4
    }

    /// # Errors
    /// [`QueryError::DeadlinePassed`].
    pub fn check(self, during: &'static str) -> Result<()> {
        match Instant::now() < self.at {
            true => Ok(()),
            false => Err(QueryError::DeadlinePassed { during }),
        }
    }

    /// `work`, dropped when the deadline passes.
    pub async fn bound<T>(self, during: &'static str, work: BoxFuture<'_, Result<T>>) -> Result<T> {
        let late = |_| QueryError::DeadlinePassed { during };
        timeout_at(self.at, work).await.map_err(late)?
    }
}

/// `grpc-timeout`: up to eight digits and a unit.
pub fn asked_timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        let read = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            asked_timeout(&metadata)
        };
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(read("5S"), Some(Duration::from_secs(5)));
        assert_eq!(read("99999999u"), Some(Duration::from_micros(99_999_999)));
        assert_eq!([read("5"), read("S"), read("5x"), read("999999999S")], [None; 4]);
        assert_eq!(asked_timeout(&MetadataMap::new()), None);
    }
}

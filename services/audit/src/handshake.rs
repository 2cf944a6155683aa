//! Lines of TLS handshakes that were refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use crate::record::{Verdict, line, rfc3339};
use crate::{Audit, Reserved};

/// The maximum length of a reason, in bytes. It is bounded because parts of it may come from the other side.
const REASON_BYTES_MAX: usize = 256;

/// The reason in the line of a handshake whose connection was closed early to make room for another.
const CLOSED: &str = "it took too long, and another connection needed its place";

/// Writes a line for each TLS handshake of a node that was refused.
#[derive(Clone, Debug)]
pub struct HandshakeAudit {
    audit: Audit,
    node: Arc<str>,
}

/// A handshake under way, with the place of its line. If this is dropped without a call of [`succeeded`] or
/// [`refused`], the connection was closed before the handshake ended; a line is written for that too.
///
/// [`succeeded`]: Self::succeeded
/// [`refused`]: Self::refused
#[derive(Debug)]
pub struct Handshake {
    place: Option<Reserved>,
    node: Arc<str>,
    peer: SocketAddr,
}

/// A line of the log.
#[derive(Serialize)]
struct RefusedHandshake<'a> {
    #[serde(serialize_with = "rfc3339")]
    time: SystemTime,
    node: &'a str,
    peer: SocketAddr,
    event: &'a str,
    verdict: Verdict,
    reason: &'a str,
}

impl HandshakeAudit {
    /// Creates the log of the handshakes of `node`.
    pub fn new(audit: &Audit, node: &str) -> Self {
        Self { audit: audit.clone(), node: node.into() }
    }

    /// Begins a handshake with `peer`. Waits for the place of its line, as [`Audit::reserve`] does. The caller bounds
    /// the number of handshakes, and the time of each.
    pub async fn begin(&self, peer: SocketAddr) -> Handshake {
        Handshake { place: self.audit.reserve().await, node: Arc::clone(&self.node), peer }
    }
}

impl Handshake {
    /// Ends a handshake that succeeded, without writing a line.
    pub fn succeeded(mut self) {
        self.place = None;
    }

    /// Ends a handshake that failed, and writes its line.
    pub fn refused(mut self, reason: &str) {
        self.write(reason);
    }

    fn write(&mut self, reason: &str) {
        let Some(place) = self.place.take() else { return };
        place.write(line(&RefusedHandshake {
            time: SystemTime::now(),
            node: &self.node,
            peer: self.peer,
            event: "handshake",
            verdict: Verdict::Denied,
            reason: &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)],
        }));
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.write(CLOSED);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_handshake_that_does_not_succeed_has_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::open(&path).unwrap();
        let handshakes = HandshakeAudit::new(&audit, "io-0");
        let peer = "10.0.0.7:4711".parse().unwrap();
        handshakes.begin(peer).await.succeeded();
        handshakes.begin(peer).await.refused("invalid peer certificate: \"Unknown\nIssuer\"");
        drop(handshakes.begin(peer).await);
        handshakes.begin(peer).await.refused(&"\u{fffd}".repeat(1000));
        audit.flush(Duration::from_secs(60));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> =
            text.lines().map(|line| line.split_once("\"node\"").unwrap().1).collect();
        let line = |reason: &str| {
            format!(
                ":\"io-0\",\"peer\":\"10.0.0.7:4711\",\"event\":\"handshake\",\"verdict\":\"denied\",\
                 \"reason\":\"{reason}\"}}"
            )
        };
        let refused = line("invalid peer certificate: \\\"Unknown\\nIssuer\\\"");
        assert_eq!(lines, [refused, line(CLOSED), line(&"\u{fffd}".repeat(85))]);
    }
}

//! The transport to an endpoint, without HTTP/2 windows and timeouts, and the reasons why it failed.

use connections::tls::NoTls;
use endpoint::Endpoint;
use tonic::transport::{self, Uri};
use tonic::{Code, Status};

/// The maximum size of an HTTP/2 window, in bytes.
pub(crate) const WINDOW_BYTES_LIMIT: u32 = (1 << 31) - 1;

/// Maximum size of an HTTP/2 frame from a node, in bytes. Each frame costs the node a system call and the client a
/// wake-up, so the maximum is larger than HTTP/2's default of 16 KiB. It is also the size of the parts in which a node
/// hands a reply to HTTP/2 (`traffic/src/leaving.rs`).
pub const FRAME_BYTES: u32 = 256 << 10;

/// Returns the endpoint for tonic, without HTTP/2 windows and timeouts. Its scheme is always `http`: [`Network`] adds
/// TLS.
///
/// [`Network`]: crate::Network
pub(crate) fn transport(endpoint: &Endpoint) -> transport::Endpoint {
    let mut parts = endpoint.uri().clone().into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTP);
    // A valid URI stays valid with another scheme.
    let uri = Uri::from_parts(parts).unwrap_or_else(|_| endpoint.uri().clone());
    transport::Endpoint::from(uri).tcp_nodelay(true).max_frame_size(FRAME_BYTES)
}

/// Iterates over an error and its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |cause| cause.source())
}

/// Returns the message of a transport error's innermost cause, which is the informative one.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Returns whether connecting with TLS failed because the node does not speak TLS.
pub(crate) fn lacks_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        inner.is_some_and(|inner| inner.is::<NoTls>())
    })
}

/// Describes why a call got no answer from a node. Never empty.
pub(crate) fn why(status: &Status) -> String {
    let cause = std::error::Error::source(status);
    match (status.code(), cause) {
        // The connection could not be made, or was lost.
        (Code::Unavailable | Code::Cancelled, Some(cause)) => root_cause(cause),
        (Code::Unimplemented, _) => "it has no such service".into(),
        (_, Some(cause)) => format!("it speaks no gRPC, or broke off: {}", root_cause(cause)),
        (code, None) if status.message().is_empty() => code.description().into(),
        (_, None) => status.message().into(),
    }
}

//! The form of a call's bodies.

/// The form of the bodies of a call's request and reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Messages of gRPC, each with its length; a reply ends with a status in its trailers.
    Grpc,
    /// Bytes. A reply that is cut short breaks its connection (HTTP/1.1) or its stream (HTTP/2), so that it is never
    /// taken for a whole one.
    Plain,
}

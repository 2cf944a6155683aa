//! The numbers by which a core knows its requests and streams.

/// Identifies a batch under way. Serial numbers are never reused, so a piece that outlives its request finds none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestNo {
    /// The request's index in its core's list of requests.
    pub index: u32,
    /// The request's serial number on its core, in the order in which requests began.
    pub serial: u64,
}

/// Identifies a stream. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionNo(pub u64);

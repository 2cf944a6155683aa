//! Receives responses. Each message is joined in the memory in which its rows stay.
//!
//! tonic's decoder joins a message in new memory without regard to the alignment of its rows, and Arrow then copies
//! them to aligned memory. That makes two copies, and the kernel zeroes the pages of both. Here each frame's bytes
//! are copied at once, while they are in the CPU's cache, to a reused buffer. The sender aligns the rows within the
//! message (`pieces.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_buffer::MutableBuffer;
use bytes::{Buf, Bytes};
use prost::{DecodeError, Message};

use crate::MESSAGE_BYTES_MAX;
use crate::buffer_pool::BufferPool;
use crate::fetch::FetchResponse;
use crate::pieces::PREFIX_BYTES;

/// A decoder of a response body, which returns messages once they are complete.
#[derive(Debug)]
pub struct ResponseDecoder {
    buffers: Arc<BufferPool>,
    /// The bytes received of a message prefix that is still incomplete.
    prefix: Vec<u8>,
    coming: Option<Coming>,
    messages: VecDeque<FetchResponse>,
}

/// The maximum memory that a message gets before its data arrives, in bytes. Nearly every message fits. For a larger
/// one the buffer doubles as data arrives, so that a sender that announces much and sends little does not take more.
const INITIAL_BYTES_MAX: usize = 8 << 20;

/// A message that is partly received.
#[derive(Debug)]
struct Coming {
    len: usize,
    /// Memory for the whole message, or for a part of it: the buffer doubles when it is full.
    buffer: MutableBuffer,
    filled: usize,
}

/// The error for data that is not a valid message.
#[derive(Debug, thiserror::Error)]
pub enum ResponseDecodeError {
    /// A message is compressed, which the client did not offer to accept.
    #[error("a message is compressed")]
    Compressed,
    /// A message is larger than `MESSAGE_BYTES_MAX`.
    #[error("a message of {0} bytes is larger than any may be")]
    TooLarge(usize),
    /// A message can't be decoded.
    #[error("a message can't be decoded: {0}")]
    Damaged(#[from] DecodeError),
}

impl ResponseDecoder {
    /// Creates a decoder that takes the memory for messages from `buffers`.
    pub fn new(buffers: Arc<BufferPool>) -> Self {
        Self { buffers, prefix: Vec::new(), coming: None, messages: VecDeque::new() }
    }

    /// Takes the data of one frame.
    ///
    /// # Errors
    /// [`ResponseDecodeError`] if the data is invalid. The rest of the body can't be decoded then.
    pub fn push(&mut self, mut data: Bytes) -> Result<(), ResponseDecodeError> {
        loop {
            match &mut self.coming {
                Some(coming) => {
                    coming.fill(&mut data, &self.buffers);
                    if !coming.is_whole() {
                        return Ok(());
                    }
                }
                None => {
                    let missing = PREFIX_BYTES - self.prefix.len();
                    self.prefix.extend_from_slice(&data.split_to(missing.min(data.len())));
                    let Ok([compressed, len @ ..]) = <[u8; PREFIX_BYTES]>::try_from(&*self.prefix)
                    else {
                        return Ok(());
                    };
                    if compressed != 0 {
                        return Err(ResponseDecodeError::Compressed);
                    }
                    let len = u32::from_be_bytes(len) as usize;
                    if len > MESSAGE_BYTES_MAX {
                        return Err(ResponseDecodeError::TooLarge(len));
                    }
                    self.prefix.clear();
                    let buffer = self.buffers.take(len.min(INITIAL_BYTES_MAX));
                    self.coming = Some(Coming { len, buffer, filled: 0 });
                }
            }
            if let Some(whole) = self.coming.take_if(|coming| coming.is_whole()) {
                let bytes = self.buffers.lend(whole.buffer.into());
                self.messages.push_back(FetchResponse::decode(bytes)?);
            }
        }
    }

    /// Returns the next complete message.
    pub fn next_message(&mut self) -> Option<FetchResponse> {
        self.messages.pop_front()
    }

    /// Returns whether neither a message nor a part of one is left.
    pub fn is_empty(&self) -> bool {
        self.prefix.is_empty() && self.coming.is_none() && self.messages.is_empty()
    }
}

impl Coming {
    fn fill(&mut self, data: &mut Bytes, buffers: &BufferPool) {
        while !self.is_whole() && !data.is_empty() {
            if self.filled == self.buffer.len() {
                let mut larger = buffers.take(self.len.min(self.filled * 2));
                larger.as_slice_mut()[..self.filled].copy_from_slice(&self.buffer);
                self.buffer = larger;
            }
            let len = data.len().min(self.buffer.len() - self.filled);
            let place = &mut self.buffer.as_slice_mut()[self.filled..self.filled + len];
            data.copy_to_slice(place);
            self.filled += len;
        }
    }

    fn is_whole(&self) -> bool {
        self.filled == self.len
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use proptest::prelude::*;

    use super::*;
    use crate::fetch::fetch_response::Kind;
    use crate::fetch::reply::Outcome;
    use crate::fetch::{Reply, Welcome};
    use crate::{ArrowBatch, grpc_pieces};

    fn responses(rows: &[i64]) -> Vec<FetchResponse> {
        let welcome = Welcome { credit_rows: 9, ..Default::default() };
        let replies = rows.iter().map(|&rows| {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
            let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
            let batch = ArrowBatch::from_record_batch(&batch).unwrap();
            Kind::Reply(Reply { id: 7, outcome: Some(Outcome::Rows(batch)), ..Default::default() })
        });
        let kinds = [Kind::Welcome(welcome)].into_iter().chain(replies);
        kinds
            .map(|kind| FetchResponse { kind: Some(kind) })
            .chain([FetchResponse::default()])
            .collect()
    }

    proptest! {
        #[test]
        fn messages_round_trip_whatever_the_frames(
            rows in prop::collection::vec(0i64..3000, 0..4),
            cuts in prop::collection::vec(1usize..9000, 1..40),
        ) {
            let sent = responses(&rows);
            let pieces = |sent| grpc_pieces(sent, |buffer| Bytes::copy_from_slice(&buffer));
            let mut bytes = Bytes::from(sent.iter().cloned().flat_map(pieces).collect::<Vec<_>>().concat());
            let (mut decoder, mut came) = (ResponseDecoder::new(Arc::default()), Vec::new());
            for cut in cuts.iter().cycle() {
                if bytes.is_empty() {
                    break;
                }
                decoder.push(bytes.split_to((*cut).min(bytes.len()))).unwrap();
                came.extend(std::iter::from_fn(|| decoder.next_message()));
            }
            prop_assert!(decoder.is_empty());
            prop_assert_eq!(came, sent);
        }

        #[test]
        fn any_bytes_are_messages_or_an_error_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = ResponseDecoder::new(Arc::default());
            let mut push = |data| decoder.push(Bytes::copy_from_slice(data));
            let _ = bytes.chunks(7).try_for_each(&mut push);
        }
    }

    /// Checks that large rows are aligned where they were received, and that their memory is reused.
    #[test]
    fn large_rows_stay_where_they_were_received() {
        for missing in 0..40 {
            let buffers = Arc::new(BufferPool::default());
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
            let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
            let rows = ArrowBatch::from_record_batch(&batch).unwrap();
            // Lengthen the fields before the rows byte by byte.
            let (outcome, missing) = (Some(Outcome::Rows(rows)), (0..missing).collect());
            let kind = Kind::Reply(Reply { id: 7, outcome, missing, ..Default::default() });
            let sent = FetchResponse { kind: Some(kind) };
            let mut decoder = ResponseDecoder::new(Arc::clone(&buffers));
            for piece in grpc_pieces(sent, |buffer| Bytes::copy_from_slice(&buffer)) {
                decoder.push(piece).unwrap();
            }
            let Some(FetchResponse { kind: Some(Kind::Reply(reply)) }) = decoder.next_message()
            else {
                panic!("no reply")
            };
            let Some(Outcome::Rows(rows)) = reply.outcome else { panic!("no rows") };
            let back = rows.to_record_batch(&batch.schema()).unwrap();
            assert_eq!(back, batch);
            // `back` still refers to the buffer. If Arrow had copied the rows, the buffer would return to the pool
            // here.
            drop(rows);
            assert_eq!(buffers.bytes(), 0);
            drop(back);
            assert!(buffers.bytes() > 800_000);
        }
    }

    #[test]
    fn errors_describe_invalid_messages() {
        let problem = |bytes: &'static [u8]| {
            let mut decoder = ResponseDecoder::new(Arc::default());
            decoder.push(Bytes::from_static(bytes)).unwrap_err().to_string()
        };
        assert_eq!(problem(&[1, 0, 0, 0, 0]), "a message is compressed");
        let too_large = "a message of 4294967295 bytes is larger than any may be";
        assert_eq!(problem(&[0, 255, 255, 255, 255]), too_large);
        assert!(problem(&[0, 0, 0, 0, 1, 255]).starts_with("a message can't be decoded: "));
    }

    #[test]
    fn a_partial_message_is_not_empty() {
        for part in [&[0][..], &[0, 0, 0, 0, 2, 0]] {
            let mut decoder = ResponseDecoder::new(Arc::default());
            assert!(decoder.is_empty());
            decoder.push(Bytes::from_static(part)).unwrap();
            assert!(decoder.next_message().is_none() && !decoder.is_empty());
        }
    }
}

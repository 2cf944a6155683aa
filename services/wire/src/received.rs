//! Responses on their way in, without joining what belongs to one message.
//!
//! tonic's decoder copies the data of all HTTP/2 frames into one buffer of its own, and Arrow then wants
//! its arrays aligned: two copies of all rows. Here the frames' data stay where they are until the message
//! is whole; then the rows are copied once, to memory of their own.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use prost::{DecodeError, Message};

use crate::MESSAGE_BYTES_MAX;
use crate::fetch::FetchResponse;
use crate::pieces::PREFIX_BYTES;

/// The data of a response body that came and were not decoded yet.
#[derive(Debug, Default)]
pub struct Received {
    data: Rope,
    /// Length of the message that is coming, in bytes, once its prefix is there.
    message: Option<usize>,
}

/// Data that are no message.
#[derive(Debug, thiserror::Error)]
pub enum ReceivedError {
    /// Nobody asked for it.
    #[error("a message is compressed")]
    Compressed,
    /// More than `MESSAGE_BYTES_MAX`.
    #[error("a message of {0} bytes is larger than any may be")]
    TooLarge(usize),
    /// Not what its bytes should be.
    #[error("a message can't be decoded: {0}")]
    Damaged(#[from] DecodeError),
}

impl Received {
    /// Adds what one frame brought.
    pub fn push(&mut self, data: Bytes) {
        self.data.push(data);
    }

    /// Whether nothing is left, not even a part of a message.
    pub fn is_empty(&self) -> bool {
        self.data.len == 0 && self.message.is_none()
    }

    /// The next message, if all of it has come.
    ///
    /// # Errors
    /// [`ReceivedError`]; nothing that follows can be made sense of then.
    pub fn next_message(&mut self) -> Result<Option<FetchResponse>, ReceivedError> {
        let len = match self.message {
            Some(len) => len,
            None if self.data.len < PREFIX_BYTES => return Ok(None),
            None => {
                if self.data.get_u8() != 0 {
                    return Err(ReceivedError::Compressed);
                }
                let len = self.data.get_u32() as usize;
                if len > MESSAGE_BYTES_MAX {
                    return Err(ReceivedError::TooLarge(len));
                }
                *self.message.insert(len)
            }
        };
        if self.data.len < len {
            return Ok(None);
        }
        self.message = None;
        Ok(Some(FetchResponse::decode(self.data.split_to(len))?))
    }
}

/// Bytes in pieces, none of them empty.
#[derive(Debug, Default)]
struct Rope {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Rope {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    fn split_to(&mut self, len: usize) -> Rope {
        let mut front = Rope::default();
        while front.len < len {
            let Some(piece) = self.pieces.front_mut() else { break };
            let taken = match piece.len() <= len - front.len {
                true => self.pieces.pop_front().unwrap_or_default(),
                false => piece.split_to(len - front.len),
            };
            self.len -= taken.len();
            front.push(taken);
        }
        front
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.len, "{count} bytes of {} that there are", self.len);
        self.split_to(count);
    }

    /// Copies nothing of what lies in one piece; else everything, to memory that is aligned for Arrow.
    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        assert!(len <= self.len, "{len} bytes of {} that there are", self.len);
        let mut rope = self.split_to(len);
        if rope.pieces.len() <= 1 {
            return rope.pieces.pop_front().unwrap_or_default();
        }
        let mut joined = BytesMut::with_capacity(len);
        rope.pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
        joined.freeze()
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
        fn messages_come_back_however_they_were_cut(
            rows in prop::collection::vec(0i64..3000, 0..4),
            cuts in prop::collection::vec(1usize..9000, 1..40),
        ) {
            let sent = responses(&rows);
            let pieces = |sent| grpc_pieces(sent, |buffer| Bytes::copy_from_slice(&buffer));
            let mut bytes = Bytes::from(sent.iter().cloned().flat_map(pieces).collect::<Vec<_>>().concat());
            let (mut received, mut came) = (Received::default(), Vec::new());
            for cut in cuts.iter().cycle() {
                if bytes.is_empty() {
                    break;
                }
                received.push(bytes.split_to((*cut).min(bytes.len())));
                while let Some(message) = received.next_message().unwrap() {
                    came.push(message);
                }
            }
            prop_assert!(received.is_empty());
            prop_assert_eq!(came, sent);
        }

        #[test]
        fn any_bytes_are_messages_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut received = Received::default();
            bytes.chunks(7).for_each(|data| received.push(Bytes::copy_from_slice(data)));
            while let Ok(Some(_)) = received.next_message() {}
        }
    }

    #[test]
    fn what_is_no_message_is_said() {
        let problem = |bytes: &'static [u8]| {
            let mut received = Received::default();
            received.push(Bytes::from_static(bytes));
            received.next_message().unwrap_err().to_string()
        };
        assert_eq!(problem(&[1, 0, 0, 0, 0]), "a message is compressed");
        let too_large = "a message of 4294967295 bytes is larger than any may be";
        assert_eq!(problem(&[0, 255, 255, 255, 255]), too_large);
        assert!(problem(&[0, 0, 0, 0, 1, 255]).starts_with("a message can't be decoded: "));
    }

    #[test]
    fn a_part_of_a_message_is_not_nothing() {
        let mut received = Received::default();
        assert!(received.is_empty());
        received.push(Bytes::from_static(&[0, 0, 0, 0, 1]));
        assert!(received.next_message().unwrap().is_none());
        assert!(!received.is_empty());
    }
}

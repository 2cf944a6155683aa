//! The limit of memory for one message of a Fetch stream.
//!
//! An empty batch has 2 bytes in a message and takes 150 in memory, so a message of 16 MiB could take more than 1 GiB once
//! it is decoded. The memory of a message's elements is therefore added up before the message is decoded.

use bytes::{Buf, Bytes};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::{self, DecodeBuf};

use crate::codec::undecodable;
use crate::fetch::{Batch, FetchRequest, Predicate, PredicateStep};
use crate::{Fault, Reason};

/// The maximum memory of a message's elements, in bytes. A client sends up to `REQUEST_BYTES_FILLED` (1 MiB) and one more
/// batch. Of what batches in use consist of, a predicate's empty values grow most: from 2 bytes to 32.
const ELEMENT_BYTES_MAX: usize = 32 << 20;

/// A field whose elements may take more memory than they have bytes in a message.
struct Element {
    /// Its number in `fetch.proto`.
    field: u32,
    /// The memory that it takes, in bytes, without its own elements.
    bytes: usize,
    within: &'static [Element],
}

/// The elements of a [`FetchRequest`].
const REQUEST: &[Element] = &[
    Element { field: 1, bytes: 0, within: &[COLUMN] },
    Element { field: 2, bytes: 0, within: &[BATCH] },
];
const COLUMN: Element = Element { field: 4, bytes: size_of::<String>(), within: &[] };
const BATCH: Element = Element { field: 1, bytes: size_of::<Batch>(), within: &[PREDICATE] };
const PREDICATE: Element = Element { field: 10, bytes: size_of::<Predicate>(), within: &[STEP] };
const STEP: Element = Element { field: 1, bytes: size_of::<PredicateStep>(), within: &[VALUE] };
const VALUE: Element = Element { field: 3, bytes: size_of::<Bytes>(), within: &[] };

/// Decodes the requests of a Fetch stream, and refuses those with too many elements.
#[derive(Debug)]
pub struct FetchRequestDecoder;

impl codec::Decoder for FetchRequestDecoder {
    type Item = FetchRequest;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<FetchRequest>, Status> {
        // `copy_to_bytes` of tonic's buffer takes the message out without a copy.
        decode(buf.copy_to_bytes(buf.remaining())).map(Some)
    }
}

fn decode(message: Bytes) -> Result<FetchRequest, Status> {
    let bytes = element_bytes(&message, REQUEST).map_err(|error| undecodable(&error))?;
    if bytes > ELEMENT_BYTES_MAX {
        let what = format!(
            "a message whose batches, values and columns take more than {ELEMENT_BYTES_MAX} bytes of memory; send \
             several messages"
        );
        return Err(Fault::new(Reason::BadProtocol, what).into());
    }
    FetchRequest::decode(message).map_err(|error| undecodable(&error))
}

/// Returns the memory of the `elements` in `message`, in bytes. Once it exceeds [`ELEMENT_BYTES_MAX`], no more are added.
fn element_bytes(mut message: &[u8], elements: &[Element]) -> Result<usize, DecodeError> {
    let mut memory = 0;
    while !message.is_empty() && memory <= ELEMENT_BYTES_MAX {
        let (field, wire_type) = decode_key(&mut message)?;
        match elements.iter().find(|element| element.field == field) {
            Some(element) if wire_type == WireType::LengthDelimited => {
                let length = decode_varint(&mut message)?;
                // If the message ends before the element, it can't be decoded, and the decoder says so.
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(message.len());
                memory += element.bytes;
                if !element.within.is_empty() {
                    memory += element_bytes(&message[..length], element.within)?;
                }
                message.advance(length);
            }
            _ => skip_field(wire_type, field, &mut message, DecodeContext::default())?,
        }
    }
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use fuzz::{cases, damage, within};
    use prost::encoding::encode_varint;

    use super::*;
    use crate::fetch::fetch_request::Kind;
    use crate::fetch::{Batches, Open, Rerank};

    fn batches(batches: Vec<Batch>) -> FetchRequest {
        FetchRequest { kind: Some(Kind::Batches(Batches { batches })) }
    }

    fn bytes_of(request: &FetchRequest) -> usize {
        element_bytes(&request.encode_to_vec(), REQUEST).unwrap()
    }

    fn full_batch() -> Batch {
        let step =
            |values| PredicateStep { values: vec!["x".into(); values], ..Default::default() };
        Batch {
            id: 3,
            row_addrs: vec![7; 100],
            rerank: Some(Rerank { vector: vec![1; 99].into(), ..Default::default() }),
            traceparent: "a trace".into(),
            predicate: Some(Predicate { steps: vec![step(2), step(0), step(5)] }),
            ..Default::default()
        }
    }

    #[test]
    fn the_memory_of_batches_steps_values_and_columns_is_added_up() {
        assert_eq!(bytes_of(&FetchRequest::default()), 0);
        assert_eq!(bytes_of(&batches(vec![Batch::default(); 5])), 5 * size_of::<Batch>());
        let predicate = size_of::<Predicate>() + 3 * size_of::<PredicateStep>() + 7 * 32;
        let expected = 2 * (size_of::<Batch>() + predicate);
        assert_eq!(bytes_of(&batches(vec![full_batch(); 2])), expected);
        let columns = vec![String::new(); 4];
        let open = Open { columns, table_uri: "s3://b/t".into(), ..Default::default() };
        assert_eq!(bytes_of(&FetchRequest { kind: Some(Kind::Open(open)) }), 4 * 24);
    }

    #[test]
    fn a_message_that_would_take_much_memory_is_refused_before_it_is_decoded() {
        let most = batches(vec![Batch::default(); ELEMENT_BYTES_MAX / size_of::<Batch>()]);
        assert_eq!(decode(most.encode_to_vec().into()).unwrap(), most);
        // Batches of 2 bytes each, 16 MiB in all.
        let empty = [0x0a, 0].repeat(8 << 20);
        let mut more = vec![0x12];
        encode_varint(empty.len() as u64, &mut more);
        more.extend(empty);
        let error = within(64 << 10, || decode(more.into())).unwrap_err();
        assert!(error.message().contains("more than 33554432 bytes"), "{error}");
    }

    #[test]
    fn all_that_a_client_sends_at_once_is_accepted() {
        let step = PredicateStep { values: vec![Bytes::new(); 1024], ..Default::default() };
        let predicate = Some(Predicate { steps: vec![step] });
        let batch = Batch { id: 1, handle: 1, row_addrs: vec![7], predicate, ..Default::default() };
        let filled = crate::REQUEST_BYTES_FILLED / batch.encoded_len() + 1;
        assert!(decode(batches(vec![batch; filled]).encode_to_vec().into()).is_ok());
        let batch = Batch { id: 1, handle: 1, row_addrs: vec![7], ..Default::default() };
        let filled = crate::REQUEST_BYTES_FILLED / batch.encoded_len() + 1;
        assert!(decode(batches(vec![batch; filled]).encode_to_vec().into()).is_ok());
    }

    #[test]
    fn fuzz_requests_are_decoded_as_prost_does() {
        let request = batches(vec![full_batch(); 3]).encode_to_vec();
        cases("counted requests", 2_000, |rng| {
            let mut damaged = request.clone();
            damage(rng, &mut damaged);
            let damaged = Bytes::from(damaged);
            let decoded = FetchRequest::decode(damaged.clone()).ok();
            assert!(decode(damaged.clone()).ok() == decoded, "{damaged:?}");
        });
    }
}

//! The gRPC codec of the generated services.

use std::marker::PhantomData;

use bytes::{Buf, BufMut};
use prost::Message;
use tonic::Status;
use tonic::codec::{self, DecodeBuf, EncodeBuf};

use crate::{Fault, Reason};

/// The largest message that is encoded to a flat buffer first, in bytes. Larger messages consist mostly of row bytes,
/// which should not be copied twice.
const FLAT_BYTES_MAX: usize = 64 << 10;

/// A prost codec that is faster than tonic's for lists of numbers, such as row addresses.
///
/// tonic's codec writes each number to tonic's buffer, and reads it, with a separate call. This codec uses contiguous
/// memory, where a number takes one store or load.
#[derive(Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Encoder<T>;
    type Decoder = Decoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        Encoder { flat: Vec::new(), marker: PhantomData }
    }

    fn decoder(&mut self) -> Self::Decoder {
        Decoder(PhantomData)
    }
}

/// Returns the status for a message that can't be decoded. It blames the sender, where tonic's codec would blame the
/// receiver with INTERNAL.
pub(crate) fn undecodable(error: &prost::DecodeError) -> Status {
    Fault::new(Reason::BadProtocol, format!("a message can't be decoded: {error}")).into()
}

/// The encoder of [`Codec`].
#[derive(Debug)]
pub struct Encoder<T> {
    /// A scratch buffer, kept to reuse its allocation.
    flat: Vec<u8>,
    marker: PhantomData<T>,
}

impl<T: Message> codec::Encoder for Encoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let len = item.encoded_len();
        if len > FLAT_BYTES_MAX {
            // Otherwise the buffer grows several times while the buffers of the rows are put, and is copied each time.
            out.reserve(len);
            item.encode_raw(out);
            return Ok(());
        }
        self.flat.clear();
        item.encode_raw(&mut self.flat);
        out.put_slice(&self.flat);
        Ok(())
    }
}

/// The decoder of [`Codec`].
#[derive(Debug)]
pub struct Decoder<U>(PhantomData<U>);

impl<U: Message + Default> codec::Decoder for Decoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // `copy_to_bytes` of tonic's buffer takes the message out without a copy.
        let message = buf.copy_to_bytes(buf.remaining());
        U::decode(message).map(Some).map_err(|error| undecodable(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use fuzz::within;
    use tonic::codec::{Codec as _, EncodeBody};
    use tonic::codegen::Body;
    use tonic::codegen::tokio_stream::once;

    use super::*;
    use crate::ArrowBatch;
    use crate::pieces::PREFIX_BYTES;
    use crate::query::LookupReply;
    use crate::query::lookup_reply::Rows;

    #[test]
    fn memory_for_a_large_message_is_allocated_once() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![7; 5000]));
        let columns = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| (name, column.clone()));
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let rows = Some(Rows::Arrow(ArrowBatch::from_record_batch(&rows).unwrap()));
        let reply = LookupReply { rows, ..Default::default() };
        let len = reply.encoded_len();
        let encoder = Codec::<LookupReply, LookupReply>::default().encoder();
        let replies = once(Ok::<_, Status>(reply));
        let mut body = pin!(EncodeBody::new_client(encoder, replies, None, None));
        let mut context = Context::from_waker(Waker::noop());
        let frame = within(len + (16 << 10), || body.as_mut().poll_frame(&mut context));
        let Poll::Ready(Some(Ok(frame))) = frame else { panic!("there is no frame") };
        assert_eq!(frame.into_data().unwrap().len(), PREFIX_BYTES + len);
    }
}

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
fn undecodable(error: &prost::DecodeError) -> Status {
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
        let full = |error: prost::EncodeError| Status::internal(error.to_string());
        if item.encoded_len() > FLAT_BYTES_MAX {
            return item.encode(out).map_err(full);
        }
        self.flat.clear();
        item.encode(&mut self.flat).map_err(full)?;
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

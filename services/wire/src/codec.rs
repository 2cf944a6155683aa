//! How messages of the generated services are encoded.

use std::marker::PhantomData;

use bytes::{Buf, BufMut};
use prost::Message;
use tonic::Status;
use tonic::codec::{self, DecodeBuf, EncodeBuf};

use crate::{Fault, Reason};

/// Larger messages are mostly bytes of rows, which are not to be copied twice.
const FLAT_BYTES_MAX: usize = 64 << 10;

/// prost's, but cheaper for lists of numbers, such as row addresses: prost puts each number into tonic's
/// buffer, and takes it out, as a call of its own. Here a message lies flat before, and a number is one
/// store or load.
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
        Encoder { flat: Vec::new(), of: PhantomData }
    }

    fn decoder(&mut self) -> Self::Decoder {
        Decoder(PhantomData)
    }
}

/// Whoever sent it is at fault, not who reads it.
fn undecodable(error: &prost::DecodeError) -> Status {
    Fault::new(Reason::BadProtocol, format!("a message can't be decoded: {error}")).into()
}

/// See [`Codec`].
#[derive(Debug)]
pub struct Encoder<T> {
    /// Kept for its allocation.
    flat: Vec<u8>,
    of: PhantomData<T>,
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

/// See [`Codec`].
#[derive(Debug)]
pub struct Decoder<U>(PhantomData<U>);

impl<U: Message + Default> codec::Decoder for Decoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // All of one message, without copying it.
        let message = buf.copy_to_bytes(buf.remaining());
        U::decode(message).map(Some).map_err(|error| undecodable(&error))
    }
}

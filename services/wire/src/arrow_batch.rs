//! Arrow record batches in gRPC messages.
//!
//! `ArrowBatch` is a protobuf message of `proto/bireme/fetch/v1`. It is written by hand to avoid copies. When it is
//! sent in a reply, its body is a list of Arrow buffers, and the large ones are not joined (`pieces.rs`). When it is
//! received, the body stays in the received message, and Arrow arrays point into it.
//!
//! ```text
//! field 1  header  flatbuffer Message { RecordBatch { nodes, buffers } }
//! field 2  body    buffer 0 · pad to 8 · buffer 1 · pad to 8 · ...
//! ```

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::{self as ipc, MetadataVersion};
use arrow_schema::{DataType, Fields, SchemaRef};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use flatbuffers::FlatBufferBuilder;
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

/// The alignment of each buffer within a body: the least that the Arrow format allows.
const BUFFER_ALIGNMENT: usize = 8;

/// The minimum size of a buffer that is sent without a copy. Sending one more piece costs about as much as copying this
/// many bytes.
const PIECE_BYTES_MIN: usize = 16 << 10;

const HEADER_TAG: u32 = 1;
const BODY_TAG: u32 = 2;

/// A record batch without its schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArrowBatch {
    header: Bytes,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    /// A body to send: its buffers, and their total length with padding. The padding is added during encoding.
    Parts(Vec<Buffer>, usize),
    /// A received body.
    Whole(Bytes),
}

/// The error for a batch that can't be sent, or a received batch that does not match its schema.
#[derive(Debug, thiserror::Error)]
#[error("the record batch on the wire is damaged: {0}")]
pub struct BatchError(String);

impl ArrowBatch {
    /// Creates a batch of `columns`, each of which has `rows` rows and no offset.
    ///
    /// A column may be binary where the schema declares text. The bytes are the same, and the receiver validates the
    /// text.
    ///
    /// # Errors
    /// If a column has an offset or a type that is not supported (dictionaries, views, list views, unions, run-end
    /// encoding).
    pub fn from_columns(rows: usize, columns: &[ArrayData]) -> Result<Self, BatchError> {
        let mut layout = BatchLayout::default();
        for column in columns {
            layout.add(column)?;
        }
        Ok(Self { header: layout.header(rows), body: Body::Parts(layout.buffers, layout.bytes) })
    }

    /// Creates a batch of a record batch's columns.
    ///
    /// # Errors
    /// The errors of [`from_columns`](Self::from_columns).
    pub fn from_record_batch(batch: &RecordBatch) -> Result<Self, BatchError> {
        let columns: Vec<_> = batch.columns().iter().map(|c| c.to_data()).collect();
        Self::from_columns(batch.num_rows(), &columns)
    }

    /// Returns the approximate length of the encoded batch in bytes.
    pub fn bytes(&self) -> usize {
        self.header.len() + self.body.len()
    }

    /// Decodes the batch to Arrow arrays of `schema`. The arrays point into the message if the alignment allows it.
    ///
    /// # Errors
    /// If the bytes are not a record batch of `schema`, or text is not valid UTF-8.
    pub fn to_record_batch(&self, schema: &SchemaRef) -> Result<RecordBatch, BatchError> {
        let damaged = |e: &dyn std::fmt::Display| BatchError(e.to_string());
        let message = ipc::root_as_message(&self.header).map_err(|e| damaged(&e))?;
        let batch = message
            .header_as_record_batch()
            .ok_or_else(|| BatchError("its header is no RecordBatch".into()))?;
        let body = Buffer::from(self.body_bytes());
        check_bounds(&batch, body.len())?;
        NodeChecker::of(&batch).check(schema.fields())?;
        read_record_batch(
            &body,
            batch,
            Arc::clone(schema),
            &HashMap::new(),
            None,
            &MetadataVersion::V5,
        )
        .map_err(|e| damaged(&e))
    }

    /// Returns the length of the body, which is the last field of the message.
    pub(crate) fn body_len(&self) -> usize {
        self.body.len()
    }

    /// Encodes everything up to the body's bytes. Omits empty fields.
    fn put_up_to_body(&self, out: &mut impl BufMut) {
        if !self.header.is_empty() {
            begin_field(HEADER_TAG, self.header.len(), out);
            out.put_slice(&self.header);
        }
        if self.body.len() > 0 {
            begin_field(BODY_TAG, self.body.len(), out);
        }
    }

    /// Encodes the batch as pieces. The first piece begins with the bytes that `head` already has. Each buffer of at
    /// least `PIECE_BYTES_MIN` becomes a piece of its own, converted by `piece_of`. A body that was received becomes
    /// one piece.
    pub(crate) fn into_pieces(
        self,
        mut head: BytesMut,
        piece_of: impl Fn(Buffer) -> Bytes,
    ) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        self.put_up_to_body(&mut head);
        match self.body {
            Body::Whole(bytes) => pieces.extend([head.split().freeze(), bytes]),
            Body::Parts(parts, _) => {
                for part in parts {
                    let len = part.len();
                    match len >= PIECE_BYTES_MIN {
                        true => {
                            pieces.extend([head.split().freeze(), piece_of(part)]);
                        }
                        false => head.put_slice(&part),
                    }
                    head.put_bytes(0, padding(len));
                }
            }
        }
        pieces.push(head.freeze());
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }

    fn body_bytes(&self) -> Bytes {
        match &self.body {
            Body::Whole(bytes) => bytes.clone(),
            Body::Parts(..) => self.body.to_vec().into(),
        }
    }
}

/// Checks that all buffers lie within the body. Arrow's reader panics on a buffer that does not.
fn check_bounds(batch: &ipc::RecordBatch<'_>, body: usize) -> Result<(), BatchError> {
    for buffer in batch.buffers().iter().flatten() {
        let (start, len) = (usize::try_from(buffer.offset()), usize::try_from(buffer.length()));
        let end = start.ok().zip(len.ok()).and_then(|(start, len)| start.checked_add(len));
        if end.is_none_or(|end| end > body) {
            return Err(BatchError(format!("a buffer lies outside its body of {body} bytes")));
        }
    }
    Ok(())
}

/// Checks a received batch's nodes and buffers against its schema. Arrow's reader panics if a validity bitmap is too
/// short for its rows, a buffer of offsets ends within an offset, or a count is impossible. It reports other mismatches
/// as errors.
struct NodeChecker<'a> {
    nodes: Vec<&'a ipc::FieldNode>,
    buffers: Vec<&'a ipc::Buffer>,
}

impl<'a> NodeChecker<'a> {
    /// Collects the batch's nodes and buffers in reverse order, so that `pop` returns them in the schema's order.
    fn of(batch: &ipc::RecordBatch<'a>) -> Self {
        Self {
            nodes: batch.nodes().iter().flatten().rev().collect(),
            buffers: batch.buffers().iter().flatten().rev().collect(),
        }
    }

    fn check(&mut self, fields: &Fields) -> Result<(), BatchError> {
        fields.iter().try_for_each(|field| self.check_column(field.data_type()))
    }

    fn check_column(&mut self, data_type: &DataType) -> Result<(), BatchError> {
        let short = || BatchError("it has fewer columns or buffers than its schema".into());
        let node = self.nodes.pop().ok_or_else(short)?;
        let (rows, nulls) = (node.length(), node.null_count());
        if rows < 0 || nulls < 0 || nulls > rows {
            return Err(BatchError(format!("a column of {rows} rows has {nulls} nulls")));
        }
        if *data_type == DataType::Null {
            return Ok(());
        }
        let validity = self.buffers.pop().ok_or_else(short)?.length();
        if nulls > 0 && validity < rows / 8 + i64::from(rows % 8 != 0) {
            return Err(BatchError(format!("a validity bitmap is too short for {rows} rows")));
        }
        match data_type {
            DataType::Struct(fields) => self.check(fields),
            DataType::FixedSizeList(child, _) => self.check_column(child.data_type()),
            DataType::List(child) | DataType::Map(child, _) => {
                self.offsets(size_of::<i32>())?;
                self.check_column(child.data_type())
            }
            DataType::LargeList(child) => {
                self.offsets(size_of::<i64>())?;
                self.check_column(child.data_type())
            }
            DataType::Utf8 | DataType::Binary => {
                self.offsets(size_of::<i32>())?;
                self.buffers.pop().map(drop).ok_or_else(short)
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                self.offsets(size_of::<i64>())?;
                self.buffers.pop().map(drop).ok_or_else(short)
            }
            _ => self.buffers.pop().map(drop).ok_or_else(short),
        }
    }

    fn offsets(&mut self, width: usize) -> Result<(), BatchError> {
        match self.buffers.pop() {
            Some(buffer) if (buffer.length() as usize).is_multiple_of(width) => Ok(()),
            _ => Err(BatchError("an offsets buffer holds no whole number of offsets".into())),
        }
    }
}

/// Collects the nodes and buffers of columns depth first, which is the order of the IPC format.
#[derive(Default)]
struct BatchLayout {
    nodes: Vec<ipc::FieldNode>,
    /// The offset and length of each buffer in the body.
    locations: Vec<ipc::Buffer>,
    buffers: Vec<Buffer>,
    bytes: usize,
}

impl BatchLayout {
    fn add(&mut self, data: &ArrayData) -> Result<(), BatchError> {
        if data.offset() != 0 {
            return Err(BatchError("a column with an offset can't be sent".into()));
        }
        let nulls = match data.data_type() {
            DataType::Null => data.len(),
            _ => data.null_count(),
        };
        self.nodes.push(ipc::FieldNode::new(data.len() as i64, nulls as i64));
        match data.data_type() {
            DataType::Null => {}
            DataType::Dictionary(..)
            | DataType::Union(..)
            | DataType::RunEndEncoded(..)
            | DataType::Utf8View
            | DataType::BinaryView
            | DataType::ListView(_)
            | DataType::LargeListView(_) => {
                return Err(BatchError(format!("{} can't be sent as it is", data.data_type())));
            }
            _ => {
                let validity = data.nulls().filter(|n| n.null_count() > 0);
                self.push(validity.map_or_else(|| Buffer::from(&[]), |n| n.inner().sliced()));
                for buffer in data.buffers() {
                    self.push(buffer.clone());
                }
            }
        }
        data.child_data().iter().try_for_each(|child| self.add(child))
    }

    fn push(&mut self, buffer: Buffer) {
        self.locations.push(ipc::Buffer::new(self.bytes as i64, buffer.len() as i64));
        self.bytes += buffer.len().next_multiple_of(BUFFER_ALIGNMENT);
        self.buffers.push(buffer);
    }

    fn header(&self, rows: usize) -> Bytes {
        let mut fbb = FlatBufferBuilder::new();
        let nodes = fbb.create_vector(&self.nodes);
        let buffers = fbb.create_vector(&self.locations);
        let batch = {
            let mut b = ipc::RecordBatchBuilder::new(&mut fbb);
            b.add_length(rows as i64);
            b.add_nodes(nodes);
            b.add_buffers(buffers);
            b.finish().as_union_value()
        };
        let mut message = ipc::MessageBuilder::new(&mut fbb);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(ipc::MessageHeader::RecordBatch);
        message.add_bodyLength(self.bytes as i64);
        message.add_header(batch);
        let root = message.finish();
        fbb.finish(root, None);
        Bytes::copy_from_slice(fbb.finished_data())
    }
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Body::Parts(_, len) => *len,
            Body::Whole(bytes) => bytes.len(),
        }
    }

    fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.put(&mut out);
        out
    }

    fn put(&self, out: &mut impl BufMut) {
        match self {
            Body::Whole(bytes) => out.put_slice(bytes),
            Body::Parts(parts, _) => {
                for part in parts {
                    out.put_slice(part);
                    out.put_bytes(0, padding(part.len()));
                }
            }
        }
    }
}

fn padding(len: usize) -> usize {
    len.next_multiple_of(BUFFER_ALIGNMENT) - len
}

/// Writes the tag and length of a bytes or message field of `len` bytes.
pub(crate) fn begin_field(tag: u32, len: usize, out: &mut impl BufMut) {
    encoding::encode_key(tag, WireType::LengthDelimited, out);
    encoding::encode_varint(len as u64, out);
}

/// Returns the encoded length of a bytes or message field of `len` bytes, including its tag and length.
pub(crate) fn field_len(tag: u32, len: usize) -> usize {
    encoding::key_len(tag) + encoding::encoded_len_varint(len as u64) + len
}

/// Returns the encoded length of a field that is omitted if it is empty.
fn omittable_len(tag: u32, len: usize) -> usize {
    if len == 0 { 0 } else { field_len(tag, len) }
}

impl Default for Body {
    fn default() -> Self {
        Body::Whole(Bytes::new())
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.to_vec() == other.to_vec()
    }
}

impl Eq for Body {}

/// The generated messages that contain a batch derive `Hash`, so a body needs it too.
impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_vec().hash(state);
    }
}

impl Message for ArrowBatch {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.put_up_to_body(buf);
        self.body.put(buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            HEADER_TAG => encoding::bytes::merge(wire_type, &mut self.header, buf, ctx),
            BODY_TAG => {
                let mut whole = Bytes::new();
                encoding::bytes::merge(wire_type, &mut whole, buf, ctx)?;
                self.body = Body::Whole(whole);
                Ok(())
            }
            _ => encoding::skip_field(wire_type, tag, buf, ctx),
        }
    }

    fn encoded_len(&self) -> usize {
        omittable_len(HEADER_TAG, self.header.len()) + omittable_len(BODY_TAG, self.body.len())
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::{Int32Builder, ListBuilder};
    use arrow_array::types::Float32Type;
    use arrow_array::{
        ArrayRef, BooleanArray, FixedSizeListArray, Int64Array, NullArray, StringArray, StructArray,
    };
    use arrow_schema::{Field, Schema};

    use super::*;

    fn example() -> RecordBatch {
        let mut lists = ListBuilder::new(Int32Builder::new());
        lists.append_value([Some(1), None]);
        lists.append_null();
        lists.append_value([]);
        let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(
            [Some([Some(1.0), Some(2.0)]), None, Some([Some(3.0), Some(4.0)])],
            2,
        );
        let inner = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]));
        let fields = vec![Arc::new(Field::new("b", DataType::Boolean, true))];
        RecordBatch::try_from_iter_with_nullable([
            ("i", Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef, false),
            ("s", Arc::new(StringArray::from(vec![Some("a"), None, Some("ünï")])), true),
            ("l", Arc::new(lists.finish()), true),
            ("v", Arc::new(vectors), true),
            ("t", Arc::new(StructArray::new(fields.into(), vec![inner], None)), true),
            ("n", Arc::new(NullArray::new(3)), true),
        ])
        .unwrap()
    }

    fn sent(batch: &ArrowBatch) -> ArrowBatch {
        let bytes = batch.encode_to_vec();
        assert_eq!(bytes.len(), batch.encoded_len());
        ArrowBatch::decode(Bytes::from(bytes)).unwrap()
    }

    #[test]
    fn a_batch_round_trips() {
        let batch = example();
        let received = sent(&ArrowBatch::from_record_batch(&batch).unwrap());
        assert_eq!(received.to_record_batch(&batch.schema()).unwrap(), batch);
    }

    #[test]
    fn an_empty_batch_round_trips() {
        let batch = RecordBatch::new_empty(example().schema());
        let received = sent(&ArrowBatch::from_record_batch(&batch).unwrap());
        assert_eq!(received.to_record_batch(&batch.schema()).unwrap(), batch);
    }

    #[test]
    fn binary_is_read_as_the_schemas_text_type_and_validated() {
        let schema = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, true)]));
        let column = |bytes: &'static [u8]| {
            arrow_array::Array::to_data(&arrow_array::BinaryArray::from_vec(vec![bytes]))
        };
        let good = sent(&ArrowBatch::from_columns(1, &[column("né".as_bytes())]).unwrap());
        let text = good.to_record_batch(&schema).unwrap();
        assert_eq!(text.column(0).as_ref(), &StringArray::from(vec!["né"]));
        let bad = sent(&ArrowBatch::from_columns(1, &[column(&[0xff, 0xfe])]).unwrap());
        assert!(bad.to_record_batch(&schema).is_err());
    }

    #[test]
    fn damaged_bytes_never_cause_a_panic() {
        let batch = example();
        let bytes = ArrowBatch::from_record_batch(&batch).unwrap().encode_to_vec();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            let mut damaged = bytes.clone();
            for _ in 0..3 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let at = seed as usize % damaged.len();
                damaged[at] ^= (seed >> 32) as u8;
            }
            if let Ok(received) = ArrowBatch::decode(Bytes::from(damaged)) {
                let _ = received.to_record_batch(&batch.schema());
            }
        }
    }
}

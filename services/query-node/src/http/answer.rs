//! The answers of plain HTTP calls.

use arrow_array::RecordBatch;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{DataType, Field, Schema};
use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use futures::{StreamExt, stream};
use spelling::counted;
use tokio::sync::mpsc::Receiver;
use tokio_stream::wrappers::ReceiverStream;
use wire::Fault;

use crate::call::Call;
use crate::counters::Stage;
use crate::error::{QueryError, Result};

/// The reply to a plain HTTP call whose [`Call`] has begun.
pub enum Reply {
    /// The answer is complete, or has failed. The call is still to be ended.
    Whole(Box<Call>, Result<Answer>),
    /// The request is still running. The response's body begins with the first piece of the answer.
    Pieces(Response<Body>),
    /// The request has failed and ended.
    Failed(Fault),
}

/// A whole answer.
pub enum Answer {
    /// JSON.
    Json(serde_json::Value),
    /// Rows.
    Arrow(Bytes, Format),
    /// Success, with an empty body.
    Nothing,
    /// The blob is null.
    Absent,
    /// The size of the blob, without its bytes.
    Size(u64),
    /// The blob has none of the bytes that were asked for.
    NoRange {
        /// The blob's size.
        size: u64,
    },
}

/// Returns the body of an answer that is sent in pieces ([`in_pieces`](crate::requests::in_pieces)). An error ends the
/// connection or stream: its text can't be sent, because the answer's status has been sent before.
pub fn body_of_pieces(first: Bytes, rest: Receiver<std::result::Result<Bytes, Fault>>) -> Body {
    let rest = ReceiverStream::new(rest)
        .map(|piece| piece.map_err(|fault| std::io::Error::other(fault.message)));
    Body::from_stream(stream::iter([Ok(first)]).chain(rest))
}

/// A format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An Arrow IPC file.
    File,
    /// An Arrow IPC stream.
    Stream,
}

impl Answer {
    /// Returns the response.
    pub fn into_response(self) -> Response<Body> {
        match self {
            // A value can always be written.
            Self::Json(value) => {
                let body = serde_json::to_vec(&value).unwrap_or_default();
                response(Body::from(body), "application/json")
            }
            Self::Arrow(bytes, format) => response(Body::from(bytes), format.media_type()),
            Self::Nothing => Response::new(Body::empty()),
            Self::Absent => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Self::Size(bytes) => {
                let mut response = response(Body::empty(), "application/octet-stream");
                let headers = response.headers_mut();
                headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
                headers.insert(CONTENT_LENGTH, bytes.into());
                response
            }
            Self::NoRange { size } => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
                if let Ok(of) = HeaderValue::from_str(&format!("bytes */{size}")) {
                    response.headers_mut().insert(CONTENT_RANGE, of);
                }
                response
            }
        }
    }
}

impl Format {
    pub fn media_type(self) -> &'static str {
        match self {
            Self::File => "application/vnd.apache.arrow.file",
            Self::Stream => "application/vnd.apache.arrow.stream",
        }
    }
}

/// Returns a response with a body of this media type.
pub fn response(body: Body, media_type: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Encodes rows as an Arrow IPC file. Rows with dictionaries become a stream, because the dictionaries of a file can't
/// differ from batch to batch.
pub struct ArrowWriter {
    inner: Inner,
    rows: usize,
}

enum Inner {
    File(Box<FileWriter<Vec<u8>>>),
    Stream(Box<StreamWriter<Vec<u8>>>),
}

impl ArrowWriter {
    /// Creates a writer of rows with this schema.
    pub fn new(schema: &Schema) -> Result<Self> {
        if schema.fields().iter().any(|field| has_dictionary(field)) {
            return Self::stream(schema);
        }
        let inner = Inner::File(Box::new(FileWriter::try_new(Vec::new(), schema)?));
        Ok(Self { inner, rows: 0 })
    }

    /// Creates a writer of rows with this schema that writes a stream even if a file is possible.
    pub fn stream(schema: &Schema) -> Result<Self> {
        let inner = Inner::Stream(Box::new(StreamWriter::try_new(Vec::new(), schema)?));
        Ok(Self { inner, rows: 0 })
    }

    /// Returns the format.
    pub fn format(&self) -> Format {
        match self.inner {
            Inner::File(_) => Format::File,
            Inner::Stream(_) => Format::Stream,
        }
    }

    /// Returns the number of bytes that were written and have not been taken yet.
    pub fn bytes(&self) -> usize {
        match &self.inner {
            Inner::File(writer) => writer.get_ref().len(),
            Inner::Stream(writer) => writer.get_ref().len(),
        }
    }

    /// Adds rows.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.rows += rows.num_rows();
        match &mut self.inner {
            Inner::File(writer) => Ok(writer.write(rows)?),
            Inner::Stream(writer) => Ok(writer.write(rows)?),
        }
    }

    /// Takes the bytes written since the last call.
    pub fn take(&mut self) -> Bytes {
        let out = match &mut self.inner {
            Inner::File(writer) => writer.get_mut(),
            Inner::Stream(writer) => writer.get_mut(),
        };
        std::mem::take(out).into()
    }

    /// Ends the rows, which writes further bytes.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.inner {
            Inner::File(writer) => Ok(writer.finish()?),
            Inner::Stream(writer) => Ok(writer.finish()?),
        }
    }

    /// Ends the rows, and returns them as an answer. Counts them for `call`.
    pub fn into_answer(mut self, call: &mut Call) -> Result<Answer> {
        self.finish()?;
        let bytes = self.take();
        call.count_rows(self.rows, bytes.len());
        call.stage(Stage::Reply, || counted(bytes.len(), "byte"));
        Ok(Answer::Arrow(bytes, self.format()))
    }
}

fn has_dictionary(field: &Field) -> bool {
    match field.data_type() {
        DataType::Dictionary(..) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => has_dictionary(item),
        DataType::Struct(fields) => fields.iter().any(|field| has_dictionary(field)),
        _ => false,
    }
}

/// Returns `value` as a JSON answer.
pub fn json(value: impl serde::Serialize) -> Result<Answer> {
    let written = serde_json::to_value(value);
    written.map(Answer::Json).map_err(|error| QueryError::Server(error.to_string()))
}

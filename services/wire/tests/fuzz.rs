//! Fuzz tests of the decoders of every message of both services, and of their contents: schemas, record batches,
//! streams of rows, and errors in trailers.
//!
//! The inputs are arbitrary bytes, damaged valid messages, and random messages that the descriptors allow. Each must
//! decode or give an error with a reason, and no memory is allocated for a length before its bytes are there.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, StringDictionaryBuilder};
use arrow_array::types::{Float32Type, Int8Type};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeListArray, Float32Array,
    Int64Array, LargeStringArray, NullArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field};
use bytes::Bytes;
use fuzz::rand::Rng;
use fuzz::rand::rngs::StdRng;
use fuzz::{Messages, cases, damage, noise, within};
use prost::Message;
use tonic::Status;
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use wire::fetch::{Reply, fetch_response, reply};
use wire::{
    ArrowBatch, DESCRIPTORS, Fault, ParentSpan, ResponseDecoder, RowStream, fetch, grpc_pieces,
    query, schema_from_bytes, schema_to_bytes, status_of,
};

/// The memory that a decoder may hold for each input byte. A message of one or two bytes in a list becomes a
/// structure of about 200 bytes, in a list that grows by doubling.
const MEMORY_PER_BYTE: usize = 800;

/// The memory that a decoder may hold in addition, for errors and one-time allocations.
const MEMORY_BASE: usize = 64 << 10;

/// The additional memory if Arrow may panic, because the test harness captures the panic messages.
const MEMORY_PANICS: usize = 2 << 20;

/// Decodes a message's bytes. The flag is true if the bytes are known to be valid.
type Try = fn(&[u8], bool);

/// Checks that a message decodes or gives an error, and that a decoded message round-trips.
fn try_message<M: Message + Default + PartialEq>(bytes: &[u8], is_right: bool) {
    let whole = Bytes::copy_from_slice(bytes);
    let decoded = within(bytes.len() * MEMORY_PER_BYTE + MEMORY_BASE, || M::decode(whole));
    match decoded {
        Ok(message) => {
            let again = message.encode_to_vec();
            assert_eq!(again.len(), message.encoded_len());
            let back = M::decode(Bytes::from(again)).expect("a message that was just encoded");
            // A message with a NaN is not equal to itself.
            let is_itself = M::decode(Bytes::copy_from_slice(bytes)).unwrap() == message;
            assert!(back == message || !is_itself);
        }
        Err(error) => {
            assert!(!is_right, "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}

macro_rules! messages {
    ($($package:ident: $($name:ident)*;)*) => {
        [$($((
            concat!("bireme.", stringify!($package), ".v1.", stringify!($name)),
            try_message::<$package::$name> as Try,
        ),)*)*]
    };
}

/// Returns all messages of both services by their full names.
fn all() -> Vec<(&'static str, Try)> {
    let generated = messages![
        fetch: FetchRequest Open Batches Batch Rerank Predicate PredicateStep Close Cancel FetchResponse Welcome Opened Reply Retire Neighbors
            Passing StageTimes Error WarmRequest ReleaseRequest ReleaseResponse RowRange ChunkRange WarmProgress DescribeRequest DescribeResponse Histogram
            StartWarm TableUse StoreUse Drive Core;
        query: SearchRequest OrderBy NamedExpression Vector Vectors Text TextQuery TextMatch TextPhrase TextBoost TextMultiMatch TextCombinedFields TextColumn
            TextBoolean TuneRequest TuneProgress IndexRecall RecallSetting SearchResponse Stage GetRequest GetResponse Error LookupRequest LookupOpen
            LookupBatch Integers Strings LookupResponse LookupWelcome LookupSchema LookupReply LookupResult TakeRequest TakeResponse
            CountRequest CountResponse ListTablesRequest ListTablesResponse TableSummary DescribeTableRequest DescribeTableResponse Fragment
            ListVersionsRequest ListVersionsResponse VersionSummary ListTagsRequest ListTagsResponse Tag
            Column Index KeyIndex WarmRequest IndexFiles WarmProgress PlacementRequest PlacementResponse NodePlacement StatusRequest
            StatusResponse TableFolder Calls Membership IoNode;
    ];
    let mut all = generated.to_vec();
    all.push(("bireme.fetch.v1.ArrowBatch", try_message::<ArrowBatch>));
    all
}

#[test]
fn fuzz_every_message() {
    let messages = Messages::of(DESCRIPTORS, &["t", "vector", "s3://bucket/table"]);
    let all = all();
    let known: BTreeSet<_> = all.iter().map(|(name, _)| *name).collect();
    let declared: BTreeSet<_> = messages.names("bireme.").into_iter().collect();
    assert_eq!(known, declared, "the messages tested here differ from those of the proto files");
    cases("fuzz_every_message", 12_000, |rng| {
        let (name, attempt) = all[rng.random_range(0..all.len())];
        let mut bytes = messages.message(rng, name);
        attempt(&bytes, true);
        for _ in 0..4 {
            let mut damaged = bytes.clone();
            damage(rng, &mut damaged);
            attempt(&damaged, false);
        }
        bytes = noise(rng, 200);
        attempt(&bytes, false);
    });
}

/// Generates a record batch with columns of types that differ in their buffers.
fn batch(rng: &mut StdRng) -> RecordBatch {
    let rows = rng.random_range(0..20usize);
    let mut maybe = |likely: f64| (0..rows).map(|_| rng.random_bool(likely)).collect::<Vec<_>>();
    let (some, other) = (maybe(0.7), maybe(0.5));
    let given = |row: usize| some[row].then_some(row);
    let mut lists = ListBuilder::new(Int32Builder::new());
    let mut words = StringDictionaryBuilder::<Int8Type>::new();
    for row in 0..rows {
        match given(row) {
            Some(row) => lists.append_value((0..row as i32 % 4).map(Some)),
            None => lists.append_null(),
        }
        words.append_option(given(row).map(|row| ["oak", "ash", ""][row % 3]));
    }
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(
        (0..rows).map(|row| given(row).map(|row| [Some(row as f32), Some(0.5)])),
        2,
    );
    let flags = Arc::new(BooleanArray::from(other)) as ArrayRef;
    let numbers =
        Arc::new(Int64Array::from_iter((0..rows).map(|row| given(row).map(|it| it as i64))));
    let of = |name, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
    let numbers = numbers as ArrayRef;
    let fields = vec![of("flag", &flags), of("number", &numbers)];
    let nested =
        StructArray::new(fields.into(), vec![Arc::clone(&flags), Arc::clone(&numbers)], None);
    let text = |row: usize| given(row).map(|row| "ünï".repeat(row % 5));
    let decimals = Decimal128Array::from_iter((0..rows).map(|row| given(row).map(|it| it as i128)));
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("numbers", numbers),
        ("flags", flags),
        ("texts", Arc::new((0..rows).map(text).collect::<StringArray>())),
        ("large", Arc::new((0..rows).map(text).collect::<LargeStringArray>())),
        ("bytes", Arc::new((0..rows).map(text).collect::<BinaryArray>())),
        (
            "floats",
            Arc::new((0..rows).map(|row| given(row).map(|it| it as f32)).collect::<Float32Array>()),
        ),
        ("times", Arc::new(TimestampMicrosecondArray::from(vec![7; rows]).with_timezone("UTC"))),
        ("decimals", Arc::new(decimals.with_precision_and_scale(20, 3).unwrap())),
        ("lists", Arc::new(lists.finish())),
        ("vectors", Arc::new(vectors)),
        ("nested", Arc::new(nested)),
        ("nothing", Arc::new(NullArray::new(rows))),
        ("words", Arc::new(words.finish())),
    ];
    for at in (0..columns.len()).rev() {
        if columns.len() > 1 && rng.random_bool(0.6) {
            columns.remove(at);
        }
    }
    let nullable = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(nullable).unwrap()
}

/// Generates a record batch without dictionaries, as in replies.
fn plain_batch(rng: &mut StdRng) -> RecordBatch {
    loop {
        let batch = batch(rng);
        let is_plain = |field: &Arc<Field>| !matches!(field.data_type(), DataType::Dictionary(..));
        if batch.schema().fields().iter().all(is_plain) {
            return batch;
        }
    }
}

fn validate(batch: &RecordBatch) {
    batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
}

#[test]
fn fuzz_record_batches() {
    let (mut refused, mut accepted) = (0, 0);
    cases("fuzz_record_batches", 4_000, |rng| {
        let batch = plain_batch(rng);
        let sent = ArrowBatch::from_record_batch(&batch).unwrap().encode_to_vec();
        let whole = ArrowBatch::decode(Bytes::from(sent.clone())).unwrap();
        assert_eq!(whole.to_record_batch(&batch.schema()).unwrap(), batch);
        for _ in 0..6 {
            let mut damaged = sent.clone();
            damage(rng, &mut damaged);
            let Ok(received) = ArrowBatch::decode(Bytes::from(damaged)) else { continue };
            let schema = batch.schema();
            let read = within(sent.len() * 16 + MEMORY_BASE, || received.to_record_batch(&schema));
            match read {
                Ok(read) => {
                    accepted += 1;
                    validate(&read);
                }
                Err(error) => {
                    refused += 1;
                    assert!(
                        error.to_string().starts_with("the record batch on the wire is damaged: ")
                    );
                }
            }
        }
    });
    assert!(refused > accepted / 100 && accepted > refused / 100, "{refused} {accepted}");
}

#[test]
fn fuzz_schemas() {
    let (mut refused, mut accepted) = (0, 0);
    cases("fuzz_schemas", 3_000, |rng| {
        let schema = batch(rng).schema();
        let good = schema_to_bytes(&schema).unwrap().to_vec();
        assert_eq!(schema_from_bytes(&good).unwrap(), *schema);
        for _ in 0..6 {
            let mut damaged = good.clone();
            match rng.random_bool(0.1) {
                true => damaged = noise(rng, 300),
                false => damage(rng, &mut damaged),
            }
            match within(good.len() * 64 + MEMORY_PANICS, || schema_from_bytes(&damaged)) {
                Ok(_) => accepted += 1,
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    });
    assert!(refused > accepted / 100 && accepted > refused / 100, "{refused} {accepted}");
}

#[test]
fn fuzz_row_streams() {
    let (mut refused, mut accepted) = (0, 0);
    cases("fuzz_row_streams", 3_000, |rng| {
        let batch = batch(rng);
        let count = rng.random_range(0..3);
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        (0..count).for_each(|_| writer.write(&batch).unwrap());
        let good = writer.into_inner().unwrap();
        let read = |bytes: &[u8], cut: usize| {
            let mut stream = RowStream::default();
            let mut batches = Vec::new();
            for part in bytes.chunks(cut) {
                batches.extend(stream.push(Bytes::copy_from_slice(part))?);
            }
            stream.finish().map(|schema| (schema, batches))
        };
        let cut = [rng.random_range(1..60), 1 << 20][rng.random_range(0..2)];
        let (schema, batches) = read(&good, cut).unwrap();
        assert_eq!(schema, batch.schema());
        assert_eq!(batches, vec![batch.clone(); count]);
        for _ in 0..6 {
            let mut damaged = good.clone();
            damage(rng, &mut damaged);
            match within(good.len() * 64 + MEMORY_PANICS, || read(&damaged, cut)) {
                Ok((_, batches)) => {
                    accepted += 1;
                    batches.iter().for_each(validate);
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    });
    assert!(refused > accepted / 100 && accepted > refused / 100, "{refused} {accepted}");
}

#[test]
fn fuzz_fetch_frames() {
    cases("fuzz_fetch_frames", 3_000, |rng| {
        let replies = (0..rng.random_range(1..4)).map(|id| {
            let rows = ArrowBatch::from_record_batch(&plain_batch(rng)).unwrap();
            let outcome = Some(reply::Outcome::Rows(rows));
            let reply = Reply { id, outcome, ..Default::default() };
            fetch::FetchResponse { kind: Some(fetch_response::Kind::Reply(reply)) }
        });
        let sent: Vec<_> = replies.collect();
        let pieces = |sent| grpc_pieces(sent, |buffer| Bytes::copy_from_slice(&buffer));
        let good = sent.iter().cloned().flat_map(pieces).collect::<Vec<_>>().concat();
        let cut = rng.random_range(1..200);
        let receive = |bytes: &[u8]| {
            let mut decoder = ResponseDecoder::new(Arc::default());
            let mut came = Vec::new();
            for part in bytes.chunks(cut) {
                decoder.push(Bytes::copy_from_slice(part))?;
                came.extend(std::iter::from_fn(|| decoder.next_message()));
            }
            Ok::<_, wire::ResponseDecodeError>((came, decoder.is_empty()))
        };
        assert_eq!(receive(&good).unwrap(), (sent, true));
        for _ in 0..4 {
            let mut damaged = good.clone();
            damage(rng, &mut damaged);
            let limit = (8 << 20) + damaged.len() * MEMORY_PER_BYTE + MEMORY_BASE;
            if let Err(error) = within(limit, || receive(&damaged)) {
                assert!(error.to_string().starts_with("a message "));
            }
        }
    });
}

/// Damages the headers of a status: its code, message or details.
#[test]
fn fuzz_trailers() {
    cases("fuzz_trailers", 6_000, |rng| {
        let reason = wire::Reason::ALL[rng.random_range(0..wire::Reason::ALL.len())];
        let fault = Fault::new(reason, "no column \"ü\"").with("column", "ü");
        let mut headers = HeaderMap::new();
        Status::from(fault.clone()).add_header(&mut headers).unwrap();
        let read = |headers: &HeaderMap| status_of(headers).map(|it| Fault::from_status(&it));
        assert_eq!(read(&headers), Some(fault));
        let names: Vec<HeaderName> = headers.keys().cloned().collect();
        let name = names[rng.random_range(0..names.len())].clone();
        let mut value = headers[&name].as_bytes().to_vec();
        damage(rng, &mut value);
        let Ok(value) = HeaderValue::from_bytes(&value) else { return };
        headers.insert(name, value);
        within(MEMORY_BASE * 4, || drop(read(&headers)));
    });
}

#[test]
fn fuzz_spans() {
    cases("fuzz_spans", 4_000, |rng| {
        let parent = ParentSpan {
            trace: rng.random::<u128>().max(1),
            span: rng.random::<u64>().max(1),
            is_sampled: rng.random(),
        };
        let mut text = parent.to_string().into_bytes();
        assert_eq!(ParentSpan::parse(&parent.to_string()), Some(parent));
        damage(rng, &mut text);
        let text = String::from_utf8_lossy(&text);
        if let Some(read) = within(MEMORY_BASE, || ParentSpan::parse(&text)) {
            assert_eq!(ParentSpan::parse(&read.to_string()), Some(read));
        }
    });
}

//! Random encoded messages of every shape that a service's descriptors allow.

use std::collections::HashMap;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use rand::Rng;
use rand::rngs::StdRng;

use crate::noise;

/// Maximum nesting depth of the messages.
const DEPTH_MAX: u32 = 4;

/// A field number that no message of Bireme's services uses.
const UNKNOWN_TAG: u32 = 1999;

/// A method of a gRPC service.
#[derive(Clone, Debug)]
pub struct Method {
    /// The value of HTTP/2's `:path`.
    pub path: String,
    /// The full name of the request message.
    pub request: String,
    /// Whether the client may stream several requests.
    pub is_client_streaming: bool,
}

/// A generator of random messages from a set of descriptors.
pub struct Messages {
    /// Descriptors by full name, without the leading dot.
    types: HashMap<String, DescriptorProto>,
    methods: Vec<Method>,
    /// Strings that string fields often contain.
    words: Vec<String>,
}

impl Messages {
    /// Makes a generator from an encoded `FileDescriptorSet`. Most string fields contain one of `words`, so that the
    /// receiver recognises them.
    ///
    /// # Panics
    /// If `descriptors` is not an encoded `FileDescriptorSet`.
    pub fn of(descriptors: &[u8], words: &[&str]) -> Self {
        let set = FileDescriptorSet::decode(descriptors).expect("a descriptor set");
        let (mut types, mut methods) = (HashMap::new(), Vec::new());
        for file in set.file {
            let package = file.package().to_owned();
            for service in &file.service {
                methods.extend(service.method.iter().map(|method| Method {
                    path: format!("/{package}.{}/{}", service.name(), method.name()),
                    request: method.input_type().trim_start_matches('.').to_owned(),
                    is_client_streaming: method.client_streaming(),
                }));
            }
            file.message_type.into_iter().for_each(|it| add(&mut types, &package, it));
        }
        Self { types, methods, words: words.iter().map(|&word| word.to_owned()).collect() }
    }

    /// Returns the full names, sorted, of all messages in packages that begin with `prefix`. The entry types
    /// of maps are left out.
    pub fn names(&self, prefix: &str) -> Vec<&str> {
        let is_entry = |descriptor: &DescriptorProto| {
            descriptor.options.as_ref().is_some_and(|it| it.map_entry())
        };
        let ours = self
            .types
            .iter()
            .filter(|(name, descriptor)| name.starts_with(prefix) && !is_entry(descriptor));
        let mut names: Vec<_> = ours.map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the methods whose path begins with `prefix`, of all services.
    pub fn methods(&self, prefix: &str) -> Vec<Method> {
        self.methods.iter().filter(|it| it.path.starts_with(prefix)).cloned().collect()
    }

    /// Returns an encoded message of type `name`. It conforms to its descriptor; its contents are random.
    ///
    /// # Panics
    /// If there is no such message type.
    pub fn message(&self, rng: &mut StdRng, name: &str) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(rng, name, DEPTH_MAX, &mut out);
        out
    }

    fn put(&self, rng: &mut StdRng, name: &str, depth: u32, out: &mut Vec<u8>) {
        let descriptor =
            self.types.get(name).unwrap_or_else(|| panic!("there is no message type `{name}`"));
        let mut chosen: HashMap<i32, i32> = HashMap::new();
        for (oneof, _) in (0..).zip(&descriptor.oneof_decl) {
            let members: Vec<_> =
                descriptor.field.iter().filter(|it| it.oneof_index == Some(oneof)).collect();
            if !members.is_empty() {
                chosen.insert(oneof, members[rng.random_range(0..members.len())].number());
            }
        }
        for field in &descriptor.field {
            let is_chosen = field.oneof_index.is_none_or(|it| chosen[&it] == field.number());
            // Rarely encode several members of a oneof: a decoder keeps the last one.
            if rng.random_bool(if is_chosen { 0.8 } else { 0.03 }) {
                self.put_field(rng, field, depth, out);
            }
        }
        // An unknown field, as a newer version of the protocol would send.
        if rng.random_bool(0.05) {
            encode_key(UNKNOWN_TAG, WireType::Varint, out);
            encode_varint(rng.random(), out);
        }
    }

    fn put_field(
        &self,
        rng: &mut StdRng,
        field: &FieldDescriptorProto,
        depth: u32,
        out: &mut Vec<u8>,
    ) {
        let tag = field.number() as u32;
        let is_repeated = field.label() == Label::Repeated;
        let count = match (is_repeated, rng.random_bool(0.02)) {
            (false, _) => 1,
            (true, false) => rng.random_range(0..4),
            (true, true) => rng.random_range(0..600),
        };
        let is_a_message = field.r#type() == Type::Message;
        if is_a_message && depth == 0 {
            return;
        }
        // Bound the size, because lists of messages may be nested.
        let count = if is_a_message { count.min(8) } else { count };
        let wire_type = wire_type(field.r#type());
        if is_repeated && wire_type != WireType::LengthDelimited && rng.random_bool(0.9) {
            let mut packed = Vec::new();
            (0..count).for_each(|_| self.put_value(rng, field, depth, &mut packed));
            encode_key(tag, WireType::LengthDelimited, out);
            encode_varint(packed.len() as u64, out);
            return out.extend(packed);
        }
        for _ in 0..count {
            encode_key(tag, wire_type, out);
            self.put_value(rng, field, depth, out);
        }
    }

    fn put_value(
        &self,
        rng: &mut StdRng,
        field: &FieldDescriptorProto,
        depth: u32,
        out: &mut Vec<u8>,
    ) {
        match field.r#type() {
            Type::Message => {
                let mut inner = Vec::new();
                self.put(rng, field.type_name().trim_start_matches('.'), depth - 1, &mut inner);
                put_bytes(&inner, out);
            }
            Type::String => put_bytes(self.text(rng).as_bytes(), out),
            Type::Bytes => put_bytes(&noise(rng, 80), out),
            Type::Fixed64 | Type::Sfixed64 => out.extend(number(rng).to_le_bytes()),
            Type::Fixed32 | Type::Sfixed32 => out.extend((number(rng) as u32).to_le_bytes()),
            Type::Double => out.extend(f64::from_bits(number(rng)).to_le_bytes()),
            Type::Float => match rng.random_bool(0.7) {
                true => out.extend(rng.random_range(-1.0f32..1.0).to_le_bytes()),
                false => out.extend((number(rng) as u32).to_le_bytes()),
            },
            Type::Bool => encode_varint(rng.random_range(0..2), out),
            // Includes values that the enum does not define.
            Type::Enum => encode_varint(rng.random_range(0..6), out),
            Type::Int32 | Type::Sint32 | Type::Uint32 => {
                encode_varint((number(rng) as u32).into(), out);
            }
            Type::Int64 | Type::Sint64 | Type::Uint64 | Type::Group => {
                encode_varint(number(rng), out);
            }
        }
    }

    fn text(&self, rng: &mut StdRng) -> String {
        match rng.random_range(0..10) {
            0 => String::new(),
            1 => (0..rng.random_range(0..40)).map(|_| rng.random::<char>()).collect(),
            2 => number(rng).to_string(),
            _ if self.words.is_empty() => "word".into(),
            _ => self.words[rng.random_range(0..self.words.len())].clone(),
        }
    }
}

fn add(
    types: &mut HashMap<String, DescriptorProto>,
    parent: &str,
    mut descriptor: DescriptorProto,
) {
    let name = format!("{parent}.{}", descriptor.name());
    std::mem::take(&mut descriptor.nested_type).into_iter().for_each(|it| add(types, &name, it));
    types.insert(name, descriptor);
}

/// Returns a random number: mostly a small one, sometimes one at the limits of the integer types.
fn number(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..10) {
        0..=6 => rng.random_range(0..4),
        7 => rng.random_range(0..5000),
        8 => {
            let ends = [i32::MAX as u64, u32::MAX.into(), i64::MAX as u64, u64::MAX];
            ends[rng.random_range(0..ends.len())].wrapping_sub(rng.random_range(0..2))
        }
        _ => rng.random(),
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    encode_varint(bytes.len() as u64, out);
    out.extend(bytes);
}

fn wire_type(field_type: Type) -> WireType {
    match field_type {
        Type::Message | Type::String | Type::Bytes => WireType::LengthDelimited,
        Type::Fixed64 | Type::Sfixed64 | Type::Double => WireType::SixtyFourBit,
        Type::Fixed32 | Type::Sfixed32 | Type::Float => WireType::ThirtyTwoBit,
        _ => WireType::Varint,
    }
}

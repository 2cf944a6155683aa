//! Changes protobuf messages without their descriptors: parses the fields' wire format, and encodes it again.

use fuzz::damage;
use fuzz::rand::Rng;
use fuzz::rand::rngs::StdRng;

/// Boundary values that tend to break the handling of lengths, counts, offsets and ids.
pub const NUMBERS: [u64; 18] = [
    0,
    1,
    2,
    63,
    0x7f,
    0xffff,
    100_000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 33,
    1 << 40,
    1 << 47,
    1 << 62,
    0x7fff_ffff_ffff_ffff,
    u64::MAX - 7,
    u64::MAX - 1,
    u64::MAX,
];

/// Returns a number to replace `now`: one nearby, a multiple, or one of [`NUMBERS`].
pub fn number(rng: &mut StdRng, now: u64) -> u64 {
    match rng.random_range(0..6) {
        0 => now.wrapping_add(1),
        1 => now.wrapping_sub(1),
        2 => now.wrapping_mul(rng.random_range(2..1000)),
        _ => NUMBERS[rng.random_range(0..NUMBERS.len())],
    }
}

#[derive(Clone)]
enum Value {
    Varint(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
}

#[derive(Clone)]
struct Field {
    key: u64,
    value: Value,
}

/// Returns `bytes` with one to three fields changed, at any depth. Corrupts the bytes if they are not a message.
pub fn change(rng: &mut StdRng, bytes: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for _ in 0..rng.random_range(1..=3) {
        changed = change_one(rng, &changed, 0);
    }
    changed
}

fn change_one(rng: &mut StdRng, bytes: &[u8], depth: usize) -> Vec<u8> {
    let Some(mut fields) = parse(bytes).filter(|it| !it.is_empty()) else {
        let mut bytes = bytes.to_vec();
        damage(rng, &mut bytes);
        return bytes;
    };
    let at = rng.random_range(0..fields.len());
    match rng.random_range(0..20) {
        0 => drop(fields.remove(at)),
        1 => {
            let again = fields[at].clone();
            fields.insert(at, again);
        }
        2 => {
            let again = fields[at].clone();
            for _ in 0..rng.random_range(2..2000) {
                fields.push(again.clone());
            }
        }
        3 => fields[at].key = fields[at].key & 7 | rng.random_range(1..30) << 3,
        4 => {
            let other = rng.random_range(0..fields.len());
            fields[at].value = fields[other].value.clone();
            fields[at].key = fields[at].key & !7 | fields[other].key & 7;
        }
        _ => match &mut fields[at].value {
            Value::Varint(now) => *now = number(rng, *now),
            Value::Fixed(bytes) => damage(rng, bytes),
            Value::Bytes(inner) => {
                let is_message = parse(inner).is_some_and(|it| !it.is_empty());
                *inner = match is_message && depth < 12 && rng.random_bool(0.9) {
                    true => change_one(rng, inner, depth + 1),
                    // The field contains packed numbers or text. One message in ten, and each message from depth 12 on,
                    // is damaged here too, without regard to its fields.
                    false => {
                        let mut bytes = inner.clone();
                        damage(rng, &mut bytes);
                        bytes
                    }
                };
            }
        },
    }
    encode(&fields)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn parse(mut bytes: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        if key >> 3 == 0 || key >> 3 > 5000 {
            return None;
        }
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut bytes)?),
            kind @ (1 | 5) => {
                let (value, rest) = bytes.split_at_checked(if kind == 1 { 8 } else { 4 })?;
                bytes = rest;
                Value::Fixed(value.to_vec())
            }
            2 => {
                let len = usize::try_from(varint(&mut bytes)?).ok()?;
                let (value, rest) = bytes.split_at_checked(len)?;
                bytes = rest;
                Value::Bytes(value.to_vec())
            }
            _ => return None,
        };
        fields.push(Field { key, value });
    }
    Some(fields)
}

fn encode(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in fields {
        put(&mut bytes, field.key);
        match &field.value {
            Value::Varint(number) => put(&mut bytes, *number),
            Value::Fixed(fixed) => bytes.extend(fixed),
            Value::Bytes(inner) => {
                put(&mut bytes, inner.len() as u64);
                bytes.extend(inner);
            }
        }
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

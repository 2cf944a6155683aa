//! Protobuf messages, looked at without being decoded: a decoded one takes up to a hundred times its bytes.

use super::Checked;

/// A schema nests so deep at most. Lance, Arrow and DataFusion walk schemas by recursion.
const DEPTH_MAX: u32 = 64;

/// Fields of a schema, nested ones included, at most. Wide tables of features have some ten thousand; some of what Lance
/// does with them takes time by their square.
const FIELDS_MAX: usize = 1 << 15;

/// A field of a message.
pub enum Field<'a> {
    Number(u32, u64),
    Bytes(u32, &'a [u8]),
    /// Four or eight bytes.
    Fixed,
}

/// The fields of a message, in their order.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Checked<Field<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or_else(|| "a message in it breaks off".to_owned());
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<Field<'a>> {
        let key = varint(&mut self.0)?;
        let number = u32::try_from(key >> 3).ok()?;
        Some(match key & 7 {
            0 => Field::Number(number, varint(&mut self.0)?),
            1 => self.take(8).map(|_| Field::Fixed)?,
            2 => {
                let len = usize::try_from(varint(&mut self.0)?).ok()?;
                Field::Bytes(number, self.take(len)?)
            }
            5 => self.take(4).map(|_| Field::Fixed)?,
            _ => return None,
        })
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Numbers that were written together.
pub fn packed(mut bytes: &[u8]) -> Checked<Vec<u64>> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        numbers.push(varint(&mut bytes).ok_or("a list of numbers in it breaks off")?);
    }
    Ok(numbers)
}

/// The fields of a schema, one by one: each names its parent, so that their nesting is bounded by nothing.
#[derive(Default)]
pub struct Schema {
    /// By id. Of fields with the same, the deepest.
    depths: std::collections::HashMap<i32, u32>,
    count: usize,
}

impl Schema {
    /// One more: Lance's `Field`.
    pub fn add(&mut self, field: &[u8]) -> Checked {
        self.count += 1;
        if self.count > FIELDS_MAX {
            return Err(format!("its schema has more than {FIELDS_MAX} fields"));
        }
        let (mut id, mut parent) = (0, 0);
        for field in Fields(field) {
            match field? {
                Field::Number(3, number) => id = number as i32,
                Field::Number(4, number) => parent = number as i32,
                _ => {}
            }
        }
        // One that names no field before it is refused by Lance.
        let depth = self.depths.get(&parent).filter(|_| parent != -1).copied().unwrap_or(0) + 1;
        if depth > DEPTH_MAX {
            return Err(format!("its schema nests deeper than {DEPTH_MAX}"));
        }
        let known = self.depths.entry(id).or_default();
        *known = depth.max(*known);
        Ok(())
    }
}

//! Reads Protobuf messages without decoding them: a decoded message takes up to 100 times its size.

use super::Checked;

/// The largest depth of a schema. Lance, Arrow and DataFusion walk schemas by recursion.
const DEPTH_MAX: u32 = 64;

/// The largest number of fields in a schema, nested ones included. Wide feature tables have about 10,000; some of
/// Lance's work takes time proportional to the square of their number.
const FIELDS_MAX: usize = 1 << 15;

/// A field of a message.
pub enum Field<'a> {
    Number(u32, u64),
    Bytes(u32, &'a [u8]),
    /// A value of four or eight bytes.
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

/// Decodes a packed list of numbers.
pub fn packed(mut bytes: &[u8]) -> Checked<Vec<u64>> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        numbers.push(varint(&mut bytes).ok_or("a list of numbers in it breaks off")?);
    }
    Ok(numbers)
}

/// Checks the fields of a schema one by one. Each names its parent, so nothing else bounds their nesting.
#[derive(Default)]
pub struct SchemaCheck {
    /// The depth of each field, by id; the largest one if several fields have the same id.
    depths: std::collections::HashMap<i32, u32>,
    count: usize,
}

impl SchemaCheck {
    /// Checks one more field: Lance's message `Field`.
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
        // Lance refuses a field whose parent is not among the fields before it.
        let depth = self.depths.get(&parent).filter(|_| parent != -1).copied().unwrap_or(0) + 1;
        if depth > DEPTH_MAX {
            return Err(format!("its schema nests deeper than {DEPTH_MAX}"));
        }
        let known = self.depths.entry(id).or_default();
        *known = depth.max(*known);
        Ok(())
    }
}

//! The parsing of JSON bodies, and the limit on the memory that a parsed body takes.
//!
//! Parsed JSON may take sixteen times as much memory as its text: two bytes (`1,`) become a value of 32. The limit on a
//! body's bytes (`call_rules.rs`) allows for what takes no more memory than its text, or about as much: a filter with the
//! ids of many rows, and vectors. So a large body is weighed before it is parsed, and its other parts must be small.

use std::fmt;

use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::{QueryError, Result};

/// Maximum size of a body in bytes, without its filter and its vectors.
const SMALL_BODY_BYTES: usize = 1 << 20;

/// Maximum number of numbers in the vectors of a body: enough for 100 vectors of 10,000 dimensions. Parsed, they take 4 MiB
/// (8 MiB while they grow), as much as a Search over gRPC may have.
const NUMBERS_MAX: usize = 1 << 20;

/// The least number of bytes that a value other than a text takes in a list, with the comma behind it.
const VALUE_BYTES: usize = 2;

/// Parses a JSON body. An empty one has no fields.
///
/// # Errors
/// [`QueryError::BadRequest`] if it is not the JSON of its call, or would take too much memory.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let body = if body.is_empty() { b"{}" } else { body };
    if body.len() > SMALL_BODY_BYTES {
        check_large(body)?;
    }
    serde_json::from_slice(body).map_err(unparsed)
}

/// Reads a value that may be null, which is the same as absence.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> std::result::Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// Refuses a body that is large for another reason than its filter and its vectors, or has too many vectors.
fn check_large(body: &[u8]) -> Result<()> {
    let BodyWeight { numbers, rest } = serde_json::from_slice(body).map_err(unparsed)?;
    let problem = if rest > SMALL_BODY_BYTES {
        format!(
            "has {rest} bytes beside its filter and its vectors; send at most {SMALL_BODY_BYTES}"
        )
    } else if numbers > NUMBERS_MAX {
        format!("has {numbers} numbers in its vectors; send at most {NUMBERS_MAX}")
    } else {
        return Ok(());
    };
    Err(QueryError::BadRequest { field: "body", problem })
}

fn unparsed(error: serde_json::Error) -> QueryError {
    let problem = format!("is not the JSON of this call: {error}");
    QueryError::BadRequest { field: "body", problem }
}

/// The weight of a body, or of the query in a body.
#[derive(Default)]
struct BodyWeight {
    /// The number of numbers in its vectors.
    numbers: usize,
    /// The bytes of all other fields but the filter, without spaces. A number counts as [`VALUE_BYTES`].
    rest: usize,
}

/// The weight of a value.
#[derive(Default)]
struct Weight {
    /// The number of numbers in it.
    numbers: usize,
    /// The bytes of everything else in it, without spaces.
    bytes: usize,
    /// Whether it is a text.
    is_text: bool,
}

impl Weight {
    fn all(&self) -> usize {
        self.bytes + self.numbers * VALUE_BYTES
    }
}

impl<'de> Deserialize<'de> for BodyWeight {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = BodyWeight;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_unit<E: Error>(self) -> std::result::Result<BodyWeight, E> {
                Ok(BodyWeight::default())
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<BodyWeight, A::Error> {
                let mut body = BodyWeight::default();
                while let Some(name) = map.next_key::<String>()? {
                    body.rest += name.len() + VALUE_BYTES;
                    match name.as_str() {
                        "filter" | "predicate" => {
                            let filter: Weight = map.next_value()?;
                            body.rest += if filter.is_text { 0 } else { filter.all() };
                        }
                        "vector" => {
                            let vectors: Weight = map.next_value()?;
                            body.numbers += vectors.numbers;
                            body.rest += vectors.bytes;
                        }
                        "query" => {
                            let query: BodyWeight = map.next_value()?;
                            body.numbers += query.numbers;
                            body.rest += query.rest;
                        }
                        _ => body.rest += map.next_value::<Weight>()?.all(),
                    }
                }
                Ok(body)
            }
        }

        from.deserialize_any(FieldsVisitor)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_any(WeightVisitor)
    }
}

struct WeightVisitor;

impl WeightVisitor {
    fn value<E>() -> std::result::Result<Weight, E> {
        Ok(Weight { bytes: VALUE_BYTES, ..Weight::default() })
    }

    fn number<E>() -> std::result::Result<Weight, E> {
        Ok(Weight { numbers: 1, ..Weight::default() })
    }
}

impl<'de> Visitor<'de> for WeightVisitor {
    type Value = Weight;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> std::result::Result<Weight, E> {
        Self::value()
    }

    fn visit_bool<E: Error>(self, _: bool) -> std::result::Result<Weight, E> {
        Self::value()
    }

    fn visit_f64<E: Error>(self, _: f64) -> std::result::Result<Weight, E> {
        Self::number()
    }

    fn visit_i64<E: Error>(self, _: i64) -> std::result::Result<Weight, E> {
        Self::number()
    }

    fn visit_u64<E: Error>(self, _: u64) -> std::result::Result<Weight, E> {
        Self::number()
    }

    fn visit_str<E: Error>(self, text: &str) -> std::result::Result<Weight, E> {
        Ok(Weight { bytes: text.len() + VALUE_BYTES, is_text: true, numbers: 0 })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Weight, A::Error> {
        let mut all = Weight { bytes: VALUE_BYTES, ..Weight::default() };
        while let Some(Weight { numbers, bytes, .. }) = list.next_element()? {
            all.numbers += numbers;
            all.bytes += bytes;
        }
        Ok(all)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Weight, A::Error> {
        let mut all = Weight { bytes: VALUE_BYTES, ..Weight::default() };
        while let Some((name, value)) = map.next_entry::<String, Weight>()? {
            all.numbers += value.numbers;
            all.bytes += name.len() + VALUE_BYTES + value.bytes;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;

    /// Parses a body of which only the size matters. Returns the error, if there is one.
    fn refused(body: &str) -> Option<String> {
        parse::<IgnoredAny>(body.as_bytes()).err().map(|error| error.to_string())
    }

    #[test]
    fn filters_and_vectors_may_make_a_body_large() {
        let ids = "1234567,".repeat(1 << 18);
        let vector = "0.10000000149011612,".repeat(767) + "1";
        let vectors = format!("[{vector}],").repeat(100);
        let vectors = vectors.trim_end_matches(',');
        for body in [
            format!(r#"{{"filter": "id IN ({ids}1)", "k": 3}}"#),
            format!(r#"{{"predicate": "id IN ({ids}1)"}}"#),
            format!(r#"{{"query": {{"filter": "id IN ({ids}1)"}}}}"#),
            format!(r#"{{"vector": [{vectors}], "k": 3}}"#),
            format!(r#"{{"vector": {{"multi_vector": [{vectors}]}}}}"#),
            format!(r#"{{"query": {{"vector": [{vectors}], "filter": "id IN ({ids}1)"}}}}"#),
            format!("{{{}}}", " ".repeat(2 << 20)),
        ] {
            assert!(body.len() > SMALL_BODY_BYTES);
            assert_eq!(refused(&body), None, "{body:.60}");
        }
    }

    #[test]
    fn nothing_else_may() {
        let many = |of: &str| of.repeat((1 << 20) / VALUE_BYTES);
        for body in [
            format!(r#"{{"columns": [{}1]}}"#, many("1, ")),
            format!(r#"{{"filter": [{}1]}}"#, many("1, ")),
            format!(r#"{{"vector": [{}""]}}"#, many(r#""", "#)),
            format!(r#"{{"vector": [{}[]]}}"#, many("[], ")),
            format!(r#"{{"query": {{"full_text_query": {{"x": [{}null]}}}}}}"#, many("null,")),
            format!(r#"{{"x": "{}"}}"#, "y".repeat(2 << 20)),
            format!(r#"{{"{}": 1}}"#, "y".repeat(2 << 20)),
        ] {
            let problem = refused(&body).unwrap_or_else(|| panic!("{body:.60}"));
            assert!(problem.contains("beside its filter and its vectors"), "{problem}");
        }
        let numbers = format!(r#"{{"vector": [{}1]}}"#, "1,".repeat(NUMBERS_MAX));
        let problem = refused(&numbers).unwrap();
        assert!(problem.contains("has 1048577 numbers in its vectors"), "{problem}");
        let cut = format!(r#"{{"vector": [{}"#, "1,".repeat(NUMBERS_MAX));
        assert!(refused(&cut).unwrap().contains("is not the JSON of this call"));
    }
}

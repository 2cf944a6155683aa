//! The body of a `query` call, in both dialects ([`Dialect`](super::route::Dialect)). Pure.

use std::fmt;

use lake::OrderBy;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::columns::{Columns, columns};
use crate::stages::{NPROBES, VECTORS_MAX};

/// A `query` call. Unknown fields are ignored, and null is the same as absence.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct QueryBody {
    /// The parts of the table's id, as Namespace clients repeat them.
    pub id: Option<Vec<String>>,
    /// The number of rows; without a limit LanceDB's clients send 2⁶³ − 1.
    pub k: Option<u64>,
    #[serde(default, deserialize_with = "vectors")]
    pub vector: Vectors,
    pub version: Option<u64>,
    pub branch: Option<String>,
    pub prefilter: Option<bool>,
    pub filter: Option<String>,
    #[serde(default, deserialize_with = "columns")]
    pub columns: Option<Columns>,
    pub offset: Option<u64>,
    pub with_row_id: Option<bool>,
    pub fast_search: Option<bool>,
    pub order_by: Option<Vec<Ordered>>,
    pub full_text_query: Option<serde_json::Value>,
    pub vector_column: Option<String>,
    pub distance_type: Option<String>,
    pub nprobes: Option<u32>,
    pub minimum_nprobes: Option<u32>,
    pub maximum_nprobes: Option<u32>,
    pub lower_bound: Option<f32>,
    pub upper_bound: Option<f32>,
    pub ef: Option<u32>,
    pub refine_factor: Option<u32>,
    pub bypass_vector_index: Option<bool>,
}

impl QueryBody {
    /// Takes the order of the answer.
    pub fn take_order(&mut self) -> Vec<OrderBy> {
        self.order_by.take().unwrap_or_default().into_iter().map(OrderBy::from).collect()
    }

    /// Returns the maximum number of partitions to search with a filter; 0 if there is no maximum.
    pub fn nprobes_max(&self) -> u32 {
        self.maximum_nprobes.unwrap_or_default()
    }

    /// Returns the number of partitions to search; 0 for the node's default. `minimum_nprobes` is only a lower bound:
    /// Lance goes on to further partitions from there, so a search of only so many would find less.
    pub fn nprobes(&self) -> u32 {
        let (wanted, most) = (self.nprobes, Some(self.nprobes_max()).filter(|most| *most > 0));
        if [wanted, self.minimum_nprobes, most].iter().all(Option::is_none) {
            return 0;
        }
        let wanted = wanted.unwrap_or(NPROBES).max(self.minimum_nprobes.unwrap_or_default());
        wanted.min(most.unwrap_or(u32::MAX))
    }

    /// Returns whether the query searches for words.
    pub fn has_words(&self) -> bool {
        self.full_text_query.as_ref().is_some_and(|words| !words.is_null())
    }

    /// Returns whether the query reads rows without a search.
    pub fn is_scan(&self) -> bool {
        self.vector == Vectors::None && !self.has_words()
    }
}

/// The query vectors.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Vectors {
    /// None: the call does not search by vectors.
    #[default]
    None,
    One(Vec<f32>),
    Several(Vec<Vec<f32>>),
}

/// The order of rows by one column.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Ordered {
    column_name: String,
    ascending: Option<bool>,
    nulls_first: Option<bool>,
}

impl From<Ordered> for OrderBy {
    fn from(ordered: Ordered) -> Self {
        let Ordered { column_name, ascending, nulls_first } = ordered;
        let is_descending = ascending == Some(false);
        Self { column: column_name, is_descending, nulls_first: nulls_first.unwrap_or(false) }
    }
}

/// Reads vectors in any of their forms: `[]`, `[1.0, …]`, `[[1.0, …], …]`, `{"single_vector": [1.0, …]}`,
/// `{"multi_vector": [[1.0, …], …]}`, or null.
fn vectors<'de, D: Deserializer<'de>>(from: D) -> Result<Vectors, D::Error> {
    from.deserialize_any(VectorsVisitor)
}

fn too_many<E: Error>() -> E {
    E::custom(format!("more than {VECTORS_MAX} vectors"))
}

struct VectorsVisitor;

/// An element of the list of a query vector: a number, or a whole vector.
enum Element {
    Number(f32),
    Vector(Vec<f32>),
}

#[derive(Deserialize)]
struct NamespaceVectors {
    single_vector: Option<Vec<f32>>,
    multi_vector: Option<Vec<Vec<f32>>>,
}

impl<'de> Visitor<'de> for VectorsVisitor {
    type Value = Vectors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers, or a list of such lists")
    }

    fn visit_unit<E: Error>(self) -> Result<Vectors, E> {
        Ok(Vectors::None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vectors, A::Error> {
        match list.next_element()? {
            None => Ok(Vectors::None),
            Some(Element::Number(first)) => {
                let mut vector = vec![first];
                while let Some(number) = list.next_element()? {
                    vector.push(number);
                }
                Ok(Vectors::One(vector))
            }
            Some(Element::Vector(first)) => {
                let mut vectors = vec![first];
                while let Some(vector) = list.next_element()? {
                    if vectors.len() == VECTORS_MAX {
                        return Err(too_many());
                    }
                    vectors.push(vector);
                }
                Ok(Vectors::Several(vectors))
            }
        }
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Vectors, A::Error> {
        let map = serde::de::value::MapAccessDeserializer::new(map);
        let NamespaceVectors { single_vector, multi_vector } = Deserialize::deserialize(map)?;
        Ok(match (single_vector, multi_vector) {
            (Some(one), _) if !one.is_empty() => Vectors::One(one),
            (_, Some(several)) if several.len() > VECTORS_MAX => return Err(too_many()),
            (_, Some(several)) if !several.is_empty() => Vectors::Several(several),
            _ => Vectors::None,
        })
    }
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ElementVisitor;

        impl<'de> Visitor<'de> for ElementVisitor {
            type Value = Element;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a list of numbers")
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Element, E> {
                Ok(Element::Number(number as f32))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Element, E> {
                Ok(Element::Number(number as f32))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Element, E> {
                Ok(Element::Number(number as f32))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Element, A::Error> {
                let mut vector = Vec::new();
                while let Some(number) = list.next_element()? {
                    vector.push(number);
                }
                Ok(Element::Vector(vector))
            }
        }

        from.deserialize_any(ElementVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> QueryBody {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_body_as_pythons_client_sends_it() {
        let body = parsed(
            r#"{"ef":null,"k":9223372036854775807,"lower_bound":null,"maximum_nprobes":20,
                "minimum_nprobes":20,"nprobes":20,"prefilter":true,"refine_factor":null,
                "upper_bound":0.5,"vector":[0.10000000149011612,1,-2],"version":null}"#,
        );
        assert_eq!(body.k, Some(i64::MAX as u64));
        assert_eq!(body.vector, Vectors::One(vec![0.1, 1.0, -2.0]));
        assert_eq!((body.minimum_nprobes, body.upper_bound), (Some(20), Some(0.5)));
        assert_eq!((body.version, body.ef, body.prefilter), (None, None, Some(true)));
    }

    #[test]
    fn partitions_are_searched_within_the_bounds() {
        for (body, nprobes) in [
            ("{}", 0),
            (r#"{"nprobes": 7}"#, 7),
            (r#"{"minimum_nprobes": 1, "maximum_nprobes": 0}"#, 20),
            (r#"{"minimum_nprobes": 30}"#, 30),
            (r#"{"maximum_nprobes": 3}"#, 3),
            (r#"{"minimum_nprobes": 5, "maximum_nprobes": 20, "nprobes": 20}"#, 20),
            (r#"{"minimum_nprobes": 5, "maximum_nprobes": 8, "nprobes": 20}"#, 8),
        ] {
            assert_eq!(parsed(body).nprobes(), nprobes, "{body}");
        }
    }

    #[test]
    fn vectors_have_many_forms() {
        for (json, expected) in [
            (r#"{"vector":[]}"#, Vectors::None),
            (r#"{"vector":null}"#, Vectors::None),
            ("{}", Vectors::None),
            (r#"{"vector":[[1],[2.5]]}"#, Vectors::Several(vec![vec![1.0], vec![2.5]])),
            (r#"{"vector":{"single_vector":[1]}}"#, Vectors::One(vec![1.0])),
            (r#"{"vector":{"multi_vector":[[1]]}}"#, Vectors::Several(vec![vec![1.0]])),
        ] {
            assert_eq!(parsed(json).vector, expected, "{json}");
        }
        for json in [r#"{"vector":"x"}"#, r#"{"vector":[1,[2]]}"#, r#"{"vector":[[1],2]}"#] {
            assert!(serde_json::from_str::<QueryBody>(json).is_err(), "{json}");
        }
    }
}

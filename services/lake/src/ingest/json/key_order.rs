//! The order in which a file first names its keys, which `serde_json` loses because it sorts the keys of objects.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};
use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

/// The keys of the objects at one position in the rows (at the top, or below some key), in the order of their first
/// occurrence. Each key comes with the order of the keys below it.
#[derive(Debug, Default)]
pub(super) struct KeyOrder(Vec<(String, KeyOrder)>);

impl KeyOrder {
    /// Adds the keys of one JSON value. Errors: `json` is no JSON value.
    pub(super) fn learn(&mut self, json: &str) -> serde_json::Result<()> {
        self.deserialize(&mut serde_json::Deserializer::from_str(json))
    }

    /// Sorts `fields`, and the fields nested in them, by this order.
    pub(super) fn sorted(&self, fields: &Fields) -> Fields {
        let mut sorted: Vec<(usize, Field)> =
            fields.iter().map(|field| self.placed(field)).collect();
        sorted.sort_by_key(|(place, _)| *place);
        sorted.into_iter().map(|(_, field)| field).collect()
    }

    fn placed(&self, field: &Field) -> (usize, Field) {
        match self.0.iter().position(|(key, _)| key == field.name()) {
            None => (self.0.len(), field.clone()),
            Some(place) => {
                let data_type = self.0[place].1.sorted_type(field.data_type());
                (place, field.clone().with_data_type(data_type))
            }
        }
    }

    fn sorted_type(&self, data_type: &DataType) -> DataType {
        match data_type {
            DataType::Struct(fields) => DataType::Struct(self.sorted(fields)),
            DataType::List(item) => {
                let data_type = self.sorted_type(item.data_type());
                DataType::List(Arc::new(item.as_ref().clone().with_data_type(data_type)))
            }
            other => other.clone(),
        }
    }

    fn child(&mut self, key: String) -> &mut Self {
        let place = self.0.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            self.0.push((key, Self::default()));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }
}

impl<'de> DeserializeSeed<'de> for &mut KeyOrder {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

/// Adds the keys of objects. The elements of a list add their keys at the list's position; other values have no keys.
impl<'de> Visitor<'de> for &mut KeyOrder {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(self.child(key))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_order_in_which_they_are_first_named() {
        let mut order = KeyOrder::default();
        order.learn(r#"{"z": 1, "m": [{"y": null}], "b": {"d": true, "c": "x"}}"#).unwrap();
        order.learn(r#"{"a": -1.5, "z": 2, "m": [[{"x": 1, "y": 2}]], "b": {"a": 1}}"#).unwrap();
        let plain = |name: &str| Field::new(name, DataType::Int64, true);
        let of = |fields: &[Field]| DataType::Struct(fields.to_vec().into());
        let list = |item: DataType| DataType::new_list(item, true);
        let sorted = order.sorted(&Fields::from(vec![
            plain("?"),
            plain("a"),
            Field::new("b", of(&[plain("a"), plain("c"), plain("d")]), true),
            Field::new("m", list(of(&[plain("x"), plain("y")])), true),
            plain("z"),
        ]));
        let expected = Fields::from(vec![
            plain("z"),
            Field::new("m", list(of(&[plain("y"), plain("x")])), true),
            Field::new("b", of(&[plain("d"), plain("c"), plain("a")]), true),
            plain("a"),
            plain("?"),
        ]);
        assert_eq!(sorted, expected);
    }
}

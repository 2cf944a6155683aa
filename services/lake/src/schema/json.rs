//! Schemas as JSON, as clients of LanceDB and of the Lance Namespace specification read them.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use lance::arrow::json::JsonSchema;
use lance_namespace::schema::arrow_schema_to_json;

use crate::diagnose::one_line;

/// The names of types in a schema's JSON. Clients of one kind refuse the names of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeNames {
    /// Lance's own names: `float`, `string`, `timestamp:us:-`. LanceDB's clients read them.
    Lance,
    /// Names of the Lance Namespace specification: `float32`, `utf8`, `timestamp`.
    Namespace,
}

/// Returns `schema` as JSON, without the columns whose type has no name there. Maps have none among Lance's own names.
///
/// Errors: a text.
pub fn schema_json(schema: &Schema, names: TypeNames) -> Result<serde_json::Value, String> {
    if let Ok(json) = whole_json(schema, names) {
        return Ok(json);
    }
    let mut named: Vec<FieldRef> = schema.fields().to_vec();
    named.retain(|field| whole_json(&Schema::new(vec![Arc::clone(field)]), names).is_ok());
    whole_json(&Schema::new_with_metadata(named, schema.metadata().clone()), names)
}

/// Returns `schema` as JSON. Returns an error text if it has a type without a name.
fn whole_json(schema: &Schema, names: TypeNames) -> Result<serde_json::Value, String> {
    let said = |error: lance::Error| one_line(&error.to_string());
    let json = match names {
        TypeNames::Lance => serde_json::to_value(JsonSchema::try_from(schema).map_err(said)?),
        TypeNames::Namespace => serde_json::to_value(arrow_schema_to_json(schema).map_err(said)?),
    };
    json.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn columns_whose_type_has_no_name_are_left_out() {
        let entry = vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Int32, true),
        ];
        let entries = Arc::new(Field::new("entries", DataType::Struct(entry.into()), false));
        let map = |name| Field::new(name, DataType::Map(Arc::clone(&entries), false), true);
        let of_maps = DataType::List(Arc::new(map("item")));
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            map("map"),
            Field::new("maps", of_maps, true),
            Field::new("text", DataType::Utf8, true),
        ]);
        let described = |names| {
            let json = schema_json(&schema, names).unwrap();
            let fields = json["fields"].as_array().unwrap().iter();
            fields.map(|field| field["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(described(TypeNames::Lance), ["id", "text"]);
        assert_eq!(described(TypeNames::Namespace), ["id", "map", "maps", "text"]);
    }
}

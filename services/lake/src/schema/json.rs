//! Schemas as JSON, as clients of LanceDB and of the Lance Namespace specification read them.

use arrow::datatypes::Schema;
use lance::arrow::json::JsonSchema;
use lance_namespace::schema::arrow_schema_to_json;

/// The names of types in a schema's JSON. Clients of one kind refuse the names of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeNames {
    /// Lance's own names: `float`, `string`, `timestamp:us:-`. LanceDB's clients read them.
    Lance,
    /// Names of the Lance Namespace specification: `float32`, `utf8`, `timestamp`.
    Namespace,
}

/// Returns `schema` as JSON. Returns an error text if it has a type without a name.
pub fn schema_json(schema: &Schema, names: TypeNames) -> Result<serde_json::Value, String> {
    let said = |error: lance::Error| error.to_string();
    let json = match names {
        TypeNames::Lance => serde_json::to_value(JsonSchema::try_from(schema).map_err(said)?),
        TypeNames::Namespace => serde_json::to_value(arrow_schema_to_json(schema).map_err(said)?),
    };
    json.map_err(|error| error.to_string())
}

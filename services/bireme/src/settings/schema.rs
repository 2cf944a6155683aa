//! The schema of a node's settings, which is derived from the structs that files are read into.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Returns the JSON schema of a configuration. Sections are nested in it, not referenced.
pub fn schema<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Returns the settings of a section by their names, in alphabetical order. A list or a map has none.
pub fn settings(section: &Value) -> impl Iterator<Item = (&String, &Value)> {
    section["properties"].as_object().into_iter().flatten()
}

/// Returns the JSON type of a setting's value, whether the setting is optional or not.
pub fn json_type(setting: &Value) -> &str {
    let of_choices = &setting["oneOf"][0]["type"];
    match &setting["type"] {
        Value::String(name) => name,
        Value::Array(names) => names.iter().find_map(Value::as_str).unwrap_or_default(),
        _ => of_choices.as_str().unwrap_or_default(),
    }
}

//! The settings that have a single value, which an environment variable can set: `BIREME_IO_RAM_TIER` is `ram_tier` of
//! an I/O node, `BIREME_QUERY_STORE_REQUESTS_MAX` is `store.requests_max` of a query node.

use schemars::JsonSchema;
use toml::Value;

use super::schema::{json_type, schema, settings};

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScalarType {
    /// Text, which may be a size, a duration or an address.
    Text,
    /// A whole number.
    Integer,
    /// A number, whole or not.
    Float,
    /// true or false.
    Flag,
}

/// A setting with a single value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The setting's name in the file; `store.requests_max` is `requests_max` in the section `store`.
    pub field: String,
    scalar_type: ScalarType,
}

impl Scalar {
    /// Returns the variable's name without the prefix.
    pub fn variable(&self) -> String {
        self.field.replace('.', "_").to_ascii_uppercase()
    }

    /// Converts a variable's text to the setting's value.
    pub fn value(&self, text: &str) -> Result<Value, String> {
        match self.scalar_type {
            ScalarType::Text => Ok(Value::String(text.to_owned())),
            ScalarType::Integer => text
                .trim()
                .parse()
                .map(Value::Integer)
                .map_err(|_| format!("`{text}` is not a whole number")),
            ScalarType::Float => text
                .trim()
                .parse()
                .map(Value::Float)
                .map_err(|_| format!("`{text}` is not a number")),
            ScalarType::Flag => text
                .trim()
                .parse()
                .map(Value::Boolean)
                .map_err(|_| format!("`{text}` is neither true nor false")),
        }
    }
}

/// Returns the settings of a configuration that have a single value.
pub fn scalars<T: JsonSchema>() -> Vec<Scalar> {
    let mut found = Vec::new();
    collect("", &schema::<T>(), &mut found);
    found
}

fn collect(prefix: &str, section: &serde_json::Value, found: &mut Vec<Scalar>) {
    for (name, setting) in settings(section) {
        let field = format!("{prefix}{name}");
        let scalar_type = match json_type(setting) {
            "string" => ScalarType::Text,
            "integer" => ScalarType::Integer,
            "number" => ScalarType::Float,
            "boolean" => ScalarType::Flag,
            "object" => {
                collect(&format!("{field}."), setting, found);
                continue;
            }
            _ => continue,
        };
        found.push(Scalar { field, scalar_type });
    }
}

#[cfg(test)]
mod tests {
    use io_node::IoConfig;
    use query_node::QueryConfig;

    use super::*;

    fn scalar(field: &str, scalar_type: ScalarType) -> Scalar {
        Scalar { field: field.into(), scalar_type }
    }

    #[test]
    fn a_setting_with_one_value_is_a_scalar_of_its_type_and_no_other_setting_is() {
        let (io, query) = (scalars::<IoConfig>(), scalars::<QueryConfig>());
        for expected in [
            scalar("engine", ScalarType::Text),
            scalar("idle_poll", ScalarType::Text),
            scalar("ram_tier", ScalarType::Text),
            scalar("pin", ScalarType::Flag),
            scalar("slots", ScalarType::Integer),
            scalar("hit_ratio_at_start", ScalarType::Float),
            scalar("telemetry.trace_ratio", ScalarType::Float),
            scalar("telemetry.log_format", ScalarType::Text),
            scalar("tls.client_ca", ScalarType::Text),
        ] {
            assert!(io.contains(&expected), "{expected:?} is not in {io:?}");
        }
        for expected in [
            scalar("store.requests_max", ScalarType::Integer),
            scalar("io_nodes_from", ScalarType::Text),
            scalar("io_tls.server_name", ScalarType::Text),
        ] {
            assert!(query.contains(&expected), "{expected:?} is not in {query:?}");
        }
        // These are lists, maps, and constants that only tests may change.
        let others = ["drives", "serve", "shares", "storage", "tables", "io_nodes", "read_max"];
        let fields = || io.iter().chain(&query).map(|scalar| scalar.field.as_str());
        assert!(others.iter().all(|other| fields().all(|field| field != *other)));
    }

    #[test]
    fn texts_are_converted_to_values() {
        let integer = scalar("store.requests_max", ScalarType::Integer);
        let flag = scalar("pin", ScalarType::Flag);
        let float = scalar("x", ScalarType::Float);
        assert_eq!(integer.value(" 4"), Ok(Value::Integer(4)));
        assert_eq!(flag.value("false"), Ok(Value::Boolean(false)));
        assert_eq!(scalar("name", ScalarType::Text).value("12"), Ok(Value::String("12".into())));
        assert_eq!(float.value("0.05"), Ok(Value::Float(0.05)));
        assert_eq!(float.value("1"), Ok(Value::Float(1.0)));
        assert!(integer.value("four").unwrap_err().contains("four"));
        assert!(flag.value("yes").unwrap_err().contains("neither"));
        assert_eq!(integer.variable(), "STORE_REQUESTS_MAX");
    }
}

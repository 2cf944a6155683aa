//! The settings that have a single value, which an environment variable can set: `BIREME_IO_RAM_TIER` is `ram_tier` of
//! an I/O node, `BIREME_QUERY_LIMITS_K_MAX` is `limits.k_max` of a query node.

use toml::Value;

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
#[derive(Clone, Copy, Debug)]
pub struct Scalar {
    /// The setting's name in the file; `limits.k_max` is `k_max` in the section `limits`.
    pub field: &'static str,
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

const fn text(field: &'static str) -> Scalar {
    Scalar { field, scalar_type: ScalarType::Text }
}

const fn integer(field: &'static str) -> Scalar {
    Scalar { field, scalar_type: ScalarType::Integer }
}

const fn float(field: &'static str) -> Scalar {
    Scalar { field, scalar_type: ScalarType::Float }
}

const fn flag(field: &'static str) -> Scalar {
    Scalar { field, scalar_type: ScalarType::Flag }
}

/// Returns the settings of an I/O node.
pub fn io_scalars() -> Vec<Scalar> {
    [IO, STORE, TELEMETRY, TLS].concat()
}

/// Returns the settings of a query node.
pub fn query_scalars() -> Vec<Scalar> {
    [QUERY, STORE, TELEMETRY, TLS, IO_TLS].concat()
}

/// Settings of both tiers for object stores.
const STORE: &[Scalar] = &[integer("store.requests_max")];

/// Settings of both tiers for connections of clients.
const TLS: &[Scalar] = &[text("tls.cert"), text("tls.key"), text("tls.client_ca")];

/// Settings of query nodes for connections to I/O nodes.
const IO_TLS: &[Scalar] =
    &[text("io_tls.ca"), text("io_tls.cert"), text("io_tls.key"), text("io_tls.server_name")];

/// Settings of both tiers for metrics, traces and logs.
const TELEMETRY: &[Scalar] = &[
    text("telemetry.metrics_listen"),
    text("telemetry.otlp_endpoint"),
    float("telemetry.trace_ratio"),
    text("telemetry.trace_slow"),
    text("telemetry.log_format"),
];

const IO: &[Scalar] = &[
    text("listen"),
    text("name"),
    integer("cores"),
    flag("pin"),
    text("idle_poll"),
    text("engine"),
    flag("allow_buffered"),
    flag("overwrite"),
    text("ram_tier"),
    integer("slots"),
    text("segment"),
    text("memory"),
    text("admission"),
    text("warm_at_start_max"),
    float("hit_ratio_at_start"),
    text("hit_ratio_at_start_max"),
    text("fill_rate"),
];

const QUERY: &[Scalar] = &[
    text("listen"),
    text("name"),
    integer("cores"),
    text("idle_poll"),
    text("memory"),
    text("index_cache"),
    text("refresh_interval"),
    text("timeout"),
    text("io_nodes_from"),
    text("member_hold"),
    text("slow_start"),
    integer("nprobes"),
    integer("refine_factor"),
    integer("limits.k_max"),
    integer("limits.keys_max"),
    integer("limits.take_rows_max"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use client::ClientTlsConfig;
    use connections::tls::ServerTlsConfig;
    use io_node::IoConfig;
    use lake::StoreLimits;
    use query_node::{Limits, QueryConfig};
    use serde::de::DeserializeOwned;
    use telemetry::TelemetryConfig;

    use super::*;

    /// Returns the fields of a configuration, as serde's error about an unknown field lists them.
    fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
        let unknown = toml::from_str::<T>("unknown_field = 1").err().unwrap();
        let (_, expected) = unknown.message().split_once("expected").unwrap();
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    fn named<'a>(fields: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
        fields.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn every_setting_with_one_value_has_a_variable() {
        let mut io = named(IO.iter().map(|scalar| scalar.field));
        let lists = ["also_reads", "drives", "serve", "shares", "warm_at_start", "warm_members"];
        io.extend(named(lists.into_iter().chain(["storage", "store", "telemetry", "tls"])));
        assert_eq!(io, fields::<IoConfig>());
        let mut store = named(STORE.iter().filter_map(|s| s.field.strip_prefix("store.")));
        store.extend(named(["prices"]));
        assert_eq!(store, fields::<StoreLimits>());
        let of_telemetry = TELEMETRY.iter().filter_map(|s| s.field.strip_prefix("telemetry."));
        assert_eq!(named(of_telemetry), fields::<TelemetryConfig>());
        let of_tls = TLS.iter().filter_map(|s| s.field.strip_prefix("tls."));
        assert_eq!(named(of_tls), fields::<ServerTlsConfig>());
        let of_io_tls = IO_TLS.iter().filter_map(|s| s.field.strip_prefix("io_tls."));
        assert_eq!(named(of_io_tls), fields::<ClientTlsConfig>());
        let of_query = QUERY.iter().map(|scalar| scalar.field);
        let (limits, rest): (Vec<&str>, Vec<&str>) =
            of_query.partition(|field| field.contains('.'));
        let mut query = named(rest);
        let sections = ["tables", "io_nodes", "storage", "store", "limits", "telemetry"];
        query.extend(named(sections.into_iter().chain(["tls", "io_tls"])));
        assert_eq!(query, fields::<QueryConfig>());
        let limits = limits.iter().filter_map(|field| field.strip_prefix("limits."));
        assert_eq!(named(limits), fields::<Limits>());
    }

    #[test]
    fn texts_are_converted_to_values() {
        assert_eq!(integer("cores").value(" 4"), Ok(Value::Integer(4)));
        assert_eq!(flag("pin").value("false"), Ok(Value::Boolean(false)));
        assert_eq!(text("name").value("12"), Ok(Value::String("12".into())));
        assert_eq!(float("x").value("0.05"), Ok(Value::Float(0.05)));
        assert_eq!(float("x").value("1"), Ok(Value::Float(1.0)));
        assert!(integer("cores").value("four").unwrap_err().contains("four"));
        assert!(flag("pin").value("yes").unwrap_err().contains("neither"));
        assert_eq!(integer("limits.k_max").variable(), "LIMITS_K_MAX");
    }
}

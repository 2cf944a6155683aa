//! The paths of plain HTTP calls. Pure.
//!
//! A table's id is its namespace's parts and its name, joined by `$` or by the delimiter that the query string names.
//! The tables of a node are all in the root namespace, whose id is the delimiter alone.

use std::borrow::Cow;

use axum::http::Method;
use percent_encoding::percent_decode_str;

use super::error::HttpError;

/// The delimiter of ids, unless the request names another.
const DELIMITER: &str = "$";

/// The kind of client. Both send the same calls, with other names in some bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// LanceDB's clients. Their paths of tables end with a slash.
    LanceDb,
    /// Clients of the Lance Namespace specification. Their paths do not.
    Namespace,
}

/// A call of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Lists the tables of a namespace.
    Tables {
        /// The namespace's parts; none for the root.
        namespace: Vec<String>,
    },
    /// Lists the namespaces in a namespace.
    Namespaces {
        /// The namespace's parts.
        namespace: Vec<String>,
    },
    /// Describes a namespace.
    Namespace {
        /// The namespace's parts.
        namespace: Vec<String>,
    },
    /// A call of one table.
    Table {
        /// The name of the table. Contains the delimiter if the table is in a namespace.
        name: String,
        /// The call.
        call: TableCall,
        /// The kind of client.
        dialect: Dialect,
    },
}

/// A call of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableCall {
    Describe,
    Exists,
    Query,
    CountRows,
    Stats,
    ExplainPlan,
    AnalyzePlan,
    Versions,
    Tags,
    TagVersion,
    Branches,
    Indexes,
    IndexStats { index: String },
    PrewarmIndex { index: String },
    PrewarmRows,
}

/// Parses the path and the query string of a request.
///
/// # Errors
/// [`HttpError::NoSuchPath`], [`HttpError::Method`], and [`HttpError::NotBuilt`] for calls that Bireme does not serve.
pub fn route(method: &Method, path: &str, query: &str) -> Result<Route, HttpError> {
    let delimiter = parameter(query, "delimiter").filter(|it| !it.is_empty());
    let delimiter = delimiter.as_deref().unwrap_or(DELIMITER);
    let has_slash = path.ends_with('/');
    let parts: Vec<Cow<'_, str>> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| percent_decode_str(part).decode_utf8_lossy())
        .collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let namespace = |id: &str| ids(id, delimiter);
    let (route, wanted) = match parts.as_slice() {
        ["v1", "table"] => (Route::Tables { namespace: Vec::new() }, Method::GET),
        ["v1", "namespace", id, "table", "list"] => {
            (Route::Tables { namespace: namespace(id) }, Method::GET)
        }
        ["v1", "namespace", id, "list"] => {
            (Route::Namespaces { namespace: namespace(id) }, Method::GET)
        }
        ["v1", "namespace", id, "describe"] => {
            (Route::Namespace { namespace: namespace(id) }, Method::POST)
        }
        ["v1", "table", id, call @ ..] => {
            let call = table_call(call).ok_or_else(|| HttpError::not_built(path))?;
            let dialect = if has_slash { Dialect::LanceDb } else { Dialect::Namespace };
            (Route::Table { name: ids(id, delimiter).join(DELIMITER), call, dialect }, Method::POST)
        }
        ["v1", ..] => return Err(HttpError::not_built(path)),
        _ => return Err(HttpError::NoSuchPath(path.to_owned())),
    };
    match *method == wanted {
        true => Ok(route),
        false => Err(HttpError::Method { path: path.to_owned(), wanted }),
    }
}

fn table_call(parts: &[&str]) -> Option<TableCall> {
    Some(match parts {
        ["describe"] => TableCall::Describe,
        ["exists"] => TableCall::Exists,
        ["query"] => TableCall::Query,
        ["count_rows"] => TableCall::CountRows,
        ["stats"] => TableCall::Stats,
        ["explain_plan"] => TableCall::ExplainPlan,
        ["analyze_plan"] => TableCall::AnalyzePlan,
        ["version", "list"] => TableCall::Versions,
        ["tags", "list"] => TableCall::Tags,
        ["tags", "version"] => TableCall::TagVersion,
        ["branches", "list"] => TableCall::Branches,
        ["index", "list"] => TableCall::Indexes,
        ["index", index, "stats"] => TableCall::IndexStats { index: (*index).to_owned() },
        ["index", index, "prewarm"] => TableCall::PrewarmIndex { index: (*index).to_owned() },
        ["page_cache", "prewarm"] => TableCall::PrewarmRows,
        _ => return None,
    })
}

/// Splits an id into its parts.
fn ids(id: &str, delimiter: &str) -> Vec<String> {
    id.split(delimiter).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Returns the value of a parameter of a query string.
pub fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(path: &str) -> Result<Route, HttpError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        route(&Method::POST, path, query)
    }

    fn table(name: &str, call: TableCall, dialect: Dialect) -> Option<Route> {
        Some(Route::Table { name: name.into(), call, dialect })
    }

    #[test]
    fn both_kinds_of_clients_name_tables() {
        for (path, expected) in [
            ("/v1/table/words/query/", table("words", TableCall::Query, Dialect::LanceDb)),
            ("/v1/table/words/query", table("words", TableCall::Query, Dialect::Namespace)),
            (
                "/v1/table/a%24b/describe?delimiter=%24",
                table("a$b", TableCall::Describe, Dialect::Namespace),
            ),
            (
                "/v1/table/a.b/describe/?delimiter=.",
                table("a$b", TableCall::Describe, Dialect::LanceDb),
            ),
            (
                "/v1/table/t/index/v%20idx/stats/",
                table("t", TableCall::IndexStats { index: "v idx".into() }, Dialect::LanceDb),
            ),
            (
                "/v1/table/t/index/v_idx/prewarm/",
                table("t", TableCall::PrewarmIndex { index: "v_idx".into() }, Dialect::LanceDb),
            ),
            (
                "/v1/table/t/page_cache/prewarm/",
                table("t", TableCall::PrewarmRows, Dialect::LanceDb),
            ),
            ("/v1/namespace/$/describe", Some(Route::Namespace { namespace: vec![] })),
            ("/v1/namespace/a$b/describe", {
                Some(Route::Namespace { namespace: vec!["a".into(), "b".into()] })
            }),
        ] {
            assert_eq!(post(path).ok(), expected, "{path}");
        }
        let get = |path| route(&Method::GET, path, "").ok();
        assert_eq!(get("/v1/table/"), Some(Route::Tables { namespace: vec![] }));
        assert_eq!(get("//v1/table"), Some(Route::Tables { namespace: vec![] }));
        let list = get("/v1/namespace/a/table/list");
        assert_eq!(list, Some(Route::Tables { namespace: vec!["a".into()] }));
    }

    #[test]
    fn other_paths_are_refused_each_in_its_way() {
        let error = |method, path| route(&method, path, "").unwrap_err();
        assert!(matches!(error(Method::POST, "/v2/x"), HttpError::NoSuchPath(_)));
        assert!(matches!(error(Method::POST, "/v1/table/t/insert/"), HttpError::NotBuilt { .. }));
        assert!(matches!(error(Method::POST, "/v1/jobs/list"), HttpError::NotBuilt { .. }));
        let wrong = error(Method::GET, "/v1/table/t/query/");
        assert!(matches!(&wrong, HttpError::Method { wanted, .. } if *wanted == Method::POST));
    }
}

//! The paths of plain HTTP calls. Pure.
//!
//! A table's id is its namespace's parts and its name, joined by `$` or by the delimiter that the query string names.
//! The id of the root namespace is the delimiter alone.

use std::borrow::Cow;

use axum::http::Method;
use lake::ID_DELIMITER;
use percent_encoding::percent_decode_str;

use super::error::HttpError;

/// The kind of client. Both kinds send the same calls, but with different names in some bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// LanceDB's clients. Their paths of tables end with a slash.
    LanceDb,
    /// Clients of the Lance Namespace specification. Their paths of tables do not end with a slash.
    Namespace,
}

/// The call that a path stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A call of one namespace.
    Namespace {
        /// The namespace's parts; none for the root.
        namespace: Vec<String>,
        /// The call.
        call: NamespaceCall,
    },
    /// A call of one table.
    Table {
        /// The name of the table; with the parts of its namespace, joined by `$`, if the id has any.
        name: String,
        /// The call.
        call: TableCall,
        /// The kind of client.
        dialect: Dialect,
    },
}

/// A call of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceCall {
    /// Lists the tables directly in it.
    Tables,
    /// Lists all tables in it, however deep, by their ids.
    AllTables {
        /// The delimiter of ids in the answer.
        delimiter: String,
    },
    /// Lists the namespaces directly in it.
    Children,
    Describe,
    /// Succeeds if it exists.
    Exists,
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
    /// Describes one version.
    Version,
    Tags,
    TagVersion,
    Branches,
    Indexes,
    IndexStats {
        index: String,
    },
    PrewarmIndex {
        index: String,
    },
    PrewarmRows,
    /// The blobs of a column in some rows.
    Blobs,
    /// Bytes of the blob in one row.
    BlobBytes {
        column: String,
        row: String,
        /// Whether only their number is asked for.
        is_size_only: bool,
    },
}

/// A path that is served. `{id}`, `{index}`, `{column}` and `{row}` stand for any part of a path.
struct Served {
    method: Method,
    path: &'static str,
    route: fn(Parts<'_>) -> Route,
}

/// The parts of a request's path in the places of `{id}`, `{index}`, `{column}` and `{row}`.
struct Parts<'a> {
    /// The parts of the id.
    id: Vec<String>,
    named: PathParts<'a>,
    dialect: Dialect,
    delimiter: &'a str,
}

/// The parts of a request's path in the places of `{index}`, `{column}` and `{row}`; empty if the path has no such
/// place.
#[derive(Clone, Copy, Default)]
struct PathParts<'a> {
    index: &'a str,
    column: &'a str,
    row: &'a str,
}

/// Returns the entry of a call of one table.
const fn of_table(path: &'static str, route: fn(Parts<'_>) -> Route) -> Served {
    Served { method: Method::POST, path, route }
}

const BLOB_BYTES: &str = "/v1/table/{id}/blob/{column}/{row}/bytes";

/// The paths that are served. `openapi.json` describes each.
static SERVED: [Served; 24] = [
    Served {
        method: Method::GET,
        path: "/v1/table",
        route: |parts| Route::Namespace {
            namespace: Vec::new(),
            call: match parts.dialect {
                Dialect::LanceDb => NamespaceCall::Tables,
                Dialect::Namespace => {
                    NamespaceCall::AllTables { delimiter: parts.delimiter.to_owned() }
                }
            },
        },
    },
    Served {
        method: Method::GET,
        path: "/v1/namespace/{id}/table/list",
        route: |parts| Route::Namespace { namespace: parts.id, call: NamespaceCall::Tables },
    },
    Served {
        method: Method::GET,
        path: "/v1/namespace/{id}/list",
        route: |parts| Route::Namespace { namespace: parts.id, call: NamespaceCall::Children },
    },
    Served {
        method: Method::POST,
        path: "/v1/namespace/{id}/describe",
        route: |parts| Route::Namespace { namespace: parts.id, call: NamespaceCall::Describe },
    },
    Served {
        method: Method::POST,
        path: "/v1/namespace/{id}/exists",
        route: |parts| Route::Namespace { namespace: parts.id, call: NamespaceCall::Exists },
    },
    of_table("/v1/table/{id}/describe", |parts| parts.call(TableCall::Describe)),
    of_table("/v1/table/{id}/exists", |parts| parts.call(TableCall::Exists)),
    of_table("/v1/table/{id}/query", |parts| parts.call(TableCall::Query)),
    of_table("/v1/table/{id}/count_rows", |parts| parts.call(TableCall::CountRows)),
    of_table("/v1/table/{id}/stats", |parts| parts.call(TableCall::Stats)),
    of_table("/v1/table/{id}/explain_plan", |parts| parts.call(TableCall::ExplainPlan)),
    of_table("/v1/table/{id}/analyze_plan", |parts| parts.call(TableCall::AnalyzePlan)),
    of_table("/v1/table/{id}/version/list", |parts| parts.call(TableCall::Versions)),
    of_table("/v1/table/{id}/version/describe", |parts| parts.call(TableCall::Version)),
    of_table("/v1/table/{id}/tags/list", |parts| parts.call(TableCall::Tags)),
    of_table("/v1/table/{id}/tags/version", |parts| parts.call(TableCall::TagVersion)),
    of_table("/v1/table/{id}/branches/list", |parts| parts.call(TableCall::Branches)),
    of_table("/v1/table/{id}/index/list", |parts| parts.call(TableCall::Indexes)),
    of_table("/v1/table/{id}/index/{index}/stats", |parts| {
        let index = parts.named.index.to_owned();
        parts.call(TableCall::IndexStats { index })
    }),
    of_table("/v1/table/{id}/index/{index}/prewarm", |parts| {
        let index = parts.named.index.to_owned();
        parts.call(TableCall::PrewarmIndex { index })
    }),
    of_table("/v1/table/{id}/page_cache/prewarm", |parts| parts.call(TableCall::PrewarmRows)),
    of_table("/v1/table/{id}/fetch_blobs", |parts| parts.call(TableCall::Blobs)),
    Served { method: Method::GET, path: BLOB_BYTES, route: |parts| parts.blob_bytes(false) },
    Served { method: Method::HEAD, path: BLOB_BYTES, route: |parts| parts.blob_bytes(true) },
];

impl Parts<'_> {
    fn call(self, call: TableCall) -> Route {
        Route::Table { name: self.id.join(ID_DELIMITER), call, dialect: self.dialect }
    }

    fn blob_bytes(self, is_size_only: bool) -> Route {
        let PathParts { column, row, .. } = self.named;
        let (column, row) = (column.to_owned(), row.to_owned());
        self.call(TableCall::BlobBytes { column, row, is_size_only })
    }
}

impl Served {
    /// Returns the parts in the places of `{id}` and of the other names in braces, if `parts` have the form of this
    /// path.
    fn matches<'a>(&self, parts: &[&'a str]) -> Option<(&'a str, PathParts<'a>)> {
        let own = self.path.split('/').skip(1);
        if own.clone().count() != parts.len() {
            return None;
        }
        let mut found = ("", PathParts::default());
        for (own, part) in own.zip(parts) {
            match own {
                "{id}" => found.0 = part,
                "{index}" => found.1.index = part,
                "{column}" => found.1.column = part,
                "{row}" => found.1.row = part,
                own if own == *part => {}
                _ => return None,
            }
        }
        Some(found)
    }
}

/// Parses the path and the query string of a request.
///
/// # Errors
/// [`HttpError::NoSuchPath`], [`HttpError::Method`], and [`HttpError::NotBuilt`] for calls that Bireme does not serve.
pub fn route(method: &Method, path: &str, query: &str) -> Result<Route, HttpError> {
    let delimiter = parameter(query, "delimiter").filter(|it| !it.is_empty());
    let delimiter = delimiter.as_deref().unwrap_or(ID_DELIMITER);
    let parts: Vec<Cow<'_, str>> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| percent_decode_str(part).decode_utf8_lossy())
        .collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let of_path = || SERVED.iter().filter_map(|served| Some((served, served.matches(&parts)?)));
    let of_method = of_path().find(|(served, _)| served.method == *method);
    let Some((served, (id, named))) = of_method.or_else(|| of_path().next()) else {
        return Err(match parts.first() {
            Some(&"v1") => HttpError::not_built(path),
            _ => HttpError::NoSuchPath(path.to_owned()),
        });
    };
    if *method != served.method {
        return Err(HttpError::Method { path: path.to_owned(), wanted: served.method.clone() });
    }
    let dialect = if path.ends_with('/') { Dialect::LanceDb } else { Dialect::Namespace };
    Ok((served.route)(Parts { id: ids(id, delimiter), named, dialect, delimiter }))
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
    use std::collections::BTreeSet;

    use super::*;

    fn post(path: &str) -> Result<Route, HttpError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        route(&Method::POST, path, query)
    }

    fn table(name: &str, call: TableCall, dialect: Dialect) -> Option<Route> {
        Some(Route::Table { name: name.into(), call, dialect })
    }

    fn namespace(parts: &[&str], call: NamespaceCall) -> Option<Route> {
        let namespace = parts.iter().map(|&part| part.to_owned()).collect();
        Some(Route::Namespace { namespace, call })
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
            ("/v1/table/t/fetch_blobs/", table("t", TableCall::Blobs, Dialect::LanceDb)),
            ("/v1/namespace/$/describe", namespace(&[], NamespaceCall::Describe)),
            ("/v1/namespace/a$b/describe", namespace(&["a", "b"], NamespaceCall::Describe)),
            ("/v1/namespace/a/exists", namespace(&["a"], NamespaceCall::Exists)),
        ] {
            assert_eq!(post(path).ok(), expected, "{path}");
        }
        let get = |path| route(&Method::GET, path, "").ok();
        let path = "/v1/table/t/blob/s%2Eimage/7/bytes";
        for (method, is_size_only) in [(Method::GET, false), (Method::HEAD, true)] {
            let (column, row) = ("s.image".into(), "7".into());
            let bytes = TableCall::BlobBytes { column, row, is_size_only };
            let found = route(&method, path, "").ok();
            assert_eq!(found, table("t", bytes, Dialect::Namespace));
        }
        for (path, expected) in [
            ("/v1/table/", namespace(&[], NamespaceCall::Tables)),
            ("//v1/table", namespace(&[], NamespaceCall::AllTables { delimiter: "$".into() })),
            ("/v1/namespace/a/table/list", namespace(&["a"], NamespaceCall::Tables)),
            ("/v1/namespace/a/list", namespace(&["a"], NamespaceCall::Children)),
        ] {
            assert_eq!(get(path), expected, "{path}");
        }
    }

    #[test]
    fn the_document_describes_every_path_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(super::super::OPENAPI).unwrap();
        let mut described = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                described.insert((path.clone(), method.to_ascii_uppercase()));
            }
        }
        let alone = ["/healthz", "/openapi.json"].map(|path| (path.to_owned(), "GET".to_owned()));
        let served = SERVED.iter().map(|it| (it.path.to_owned(), it.method.to_string()));
        assert_eq!(described, served.chain(alone).collect());
        // Each reference leads to a part of the document.
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }

    #[test]
    fn other_paths_are_refused_each_in_its_way() {
        let error = |method, path| route(&method, path, "").unwrap_err();
        assert!(matches!(error(Method::POST, "/v2/x"), HttpError::NoSuchPath(_)));
        assert!(matches!(error(Method::POST, "/v1/table/t/insert/"), HttpError::NotBuilt { .. }));
        assert!(matches!(error(Method::POST, "/v1/jobs/list"), HttpError::NotBuilt { .. }));
        let wrong = error(Method::GET, "/v1/table/t/query/");
        assert!(matches!(&wrong, HttpError::Method { wanted, .. } if *wanted == Method::POST));
        assert!(matches!(error(Method::HEAD, "/v1/table"), HttpError::Method { .. }));
    }
}

//! Folders of tables, as LanceDB and Lance's directory namespace lay them out:
//!
//! ```text
//! s3://bucket/tables/             the folder; its URI may be written without the slash
//!     orders.lance/               the table `orders`
//!     words.lance/                the table `words`
//!     __manifest/                 a table of all namespaces, and of the tables in them with their folders
//!     7c1aa33c_eu$orders/         the table `orders` of the namespace `eu`, whose id is `eu$orders`
//! ```

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::uri::{BadUri, TableUri, UriPrefix, shown};

/// The suffix of the names of tables' folders.
const SUFFIX: &str = ".lance";

/// The maximum length of a table's name, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// The maximum length of a part of a namespace's id, in bytes.
const PART_BYTES_MAX: usize = 64;

/// The maximum number of parts of a namespace's id.
const PARTS_MAX: usize = 10;

/// The text between the parts of a namespace's or a table's id.
pub const ID_DELIMITER: &str = "$";

/// A folder, a bucket, or a part of a bucket, that holds tables directly. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TableFolder {
    /// The canonical URI, with a slash at its end.
    prefix: Arc<str>,
}

impl TableFolder {
    /// Canonicalises a URI from a configuration or a command line, with or without a slash at its end. A relative path
    /// starts at the working directory.
    ///
    /// # Errors
    /// [`BadUri`] if it is not the URI of a folder or bucket.
    pub fn of_config(text: &str) -> Result<Self, BadUri> {
        let slash = if text.ends_with('/') { "" } else { "/" };
        match UriPrefix::of_config(&format!("{text}{slash}"))? {
            UriPrefix::Below(prefix) if !text.trim().is_empty() => Ok(Self { prefix }),
            _ => Err(BadUri::Empty),
        }
    }

    /// Returns the folder at a canonical URI.
    pub fn at(uri: &TableUri) -> Self {
        Self { prefix: format!("{uri}/").into() }
    }

    /// Returns the URI as text, with a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.prefix
    }

    /// Returns the prefix of the folder's tables.
    pub fn prefix(&self) -> UriPrefix {
        UriPrefix::Below(Arc::clone(&self.prefix))
    }

    /// Returns the folder's own URI; `None` for a whole bucket, which is not the URI of a table.
    pub fn uri(&self) -> Option<TableUri> {
        TableUri::parse(&self.prefix).ok()
    }

    /// Returns the URI of a folder directly in this one; `None` if there can be none of that name.
    pub fn below(&self, name: &str) -> Option<TableUri> {
        let uri = || TableUri::of_wire(&format!("{}{name}", self.prefix));
        (!name.contains('/')).then(uri).flatten()
    }
}

/// Returns the name of the table whose folder has the name `folder`; `None` if no table's folder can have it. The
/// table's name may be one that is not allowed ([`is_table_name`]).
pub fn table_of_folder(folder: &str) -> Option<&str> {
    folder.strip_suffix(SUFFIX)
}

/// Returns whether LanceDB's clients and those of the Lance Namespace specification accept a table's name.
pub fn is_table_name(name: &str) -> bool {
    is_name(name, NAME_BYTES_MAX)
}

/// Returns whether these clients accept a table's id: its name, after the parts of its namespace if it is in one.
pub fn is_table_id(id: &str) -> bool {
    match id.rsplit_once(ID_DELIMITER) {
        None => is_table_name(id),
        Some((namespace, name)) => is_namespace_id(namespace) && is_table_name(name),
    }
}

/// Returns whether these clients accept a namespace's id.
pub fn is_namespace_id(id: &str) -> bool {
    let parts = || id.split(ID_DELIMITER);
    parts().count() <= PARTS_MAX && parts().all(|part| is_name(part, PART_BYTES_MAX))
}

fn is_name(name: &str, bytes_max: usize) -> bool {
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    let is_short = (1..=bytes_max).contains(&name.len());
    is_short && name.bytes().all(is_allowed) && name != "." && name != ".."
}

impl fmt::Debug for TableFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)
    }
}

impl fmt::Display for TableFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)
    }
}

impl<'de> Deserialize<'de> for TableFolder {
    fn deserialize<D: serde::Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        let text = String::deserialize(text)?;
        Self::of_config(&text).map_err(|error| {
            serde::de::Error::custom(format_args!("`{}` is no folder: {error}", shown(&text)))
        })
    }
}

impl Serialize for TableFolder {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_uri_however_it_is_written() {
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        for (text, uri) in [
            ("s3://bucket/tables", "s3://bucket/tables/"),
            ("s3://bucket/tables/", "s3://bucket/tables/"),
            ("gs://bucket", "gs://bucket/"),
            ("az://container/", "az://container/"),
            ("file:///data", "/data/"),
            ("/data/lake", "/data/lake/"),
            (".", &format!("{here}/")),
            ("lake", &format!("{here}/lake/")),
        ] {
            assert_eq!(TableFolder::of_config(text).unwrap().as_str(), uri, "{text}");
        }
        for (text, error) in [
            ("", BadUri::Root),
            (" ", BadUri::Space),
            ("/", BadUri::Root),
            ("s3:///tables", BadUri::Bucket),
            ("s3://bucket//", BadUri::Slashes),
            ("s3://key:secret@bucket/", BadUri::Userinfo),
            ("https://host/tables", BadUri::Scheme),
            ("/data/../tables", BadUri::Dots),
        ] {
            assert_eq!(TableFolder::of_config(text), Err(error), "{text}");
        }
    }

    #[test]
    fn tables_are_below_their_folder() {
        let folder = TableFolder::of_config("s3://bucket/tables").unwrap();
        let table = folder.below("orders.lance").unwrap();
        assert_eq!(table.as_str(), "s3://bucket/tables/orders.lance");
        assert!(folder.prefix().covers(&table));
        let bucket = TableFolder::of_config("s3://bucket").unwrap();
        assert_eq!(bucket.below("a$t").unwrap().as_str(), "s3://bucket/a$t");
        assert_eq!((bucket.uri(), folder.uri().unwrap().as_str()), (None, "s3://bucket/tables"));
        assert_eq!(TableFolder::at(&folder.uri().unwrap()), folder);
        for name in ["", "a/b", "/", ".", "..", "50%"] {
            assert_eq!(folder.below(name), None, "{name}");
        }
    }

    #[test]
    fn names_are_those_that_clients_accept() {
        for name in ["t", "Orders_2024-01.eu", &"n".repeat(128)] {
            assert!(is_table_name(name), "{name}");
        }
        for name in ["", ".", "..", "a$b", "a b", "ä", "a/b", "a\n"] {
            assert!(!is_table_name(name), "{name:?}");
        }
        for id in ["t", "a$t", "a$b.c$t-1", &format!("{}$t", ["n"; 10].join("$"))] {
            assert!(is_table_id(id), "{id}");
        }
        let long = "n".repeat(65);
        for id in ["", "a$", "$t", "a$$t", "a$b c", &format!("{long}$t"), &["n"; 12].join("$")] {
            assert!(!is_table_id(id), "{id:?}");
        }
        assert!(is_namespace_id("a") && is_namespace_id("a$b") && !is_namespace_id(""));
        assert_eq!(table_of_folder("orders.lance"), Some("orders"));
        assert_eq!(table_of_folder(".lance"), Some(""));
        assert_eq!(table_of_folder("orders"), None);
    }
}

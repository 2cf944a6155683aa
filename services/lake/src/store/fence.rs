//! A table's fence: the paths that it may read.
//!
//! A table's manifest may name base paths, and its blobs may name files of any URI; whoever can write the table chooses
//! them. So every path that Lance asks for is checked against the table's own folder and the prefixes that the operator
//! allows this table: once by its URI, before a store is made for it ([`providers`](super::providers)), and again by
//! its path at each request ([`guarded`](super::guarded), [`folder`](super::folder)).

use std::fmt;
use std::sync::Arc;

use object_store::Error as StoreError;
use tables::{TableFolder, TableUri, UriPrefix, shown};

use super::mark::Mark;

/// The paths that one table may read. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Fence {
    /// The prefixes, without a slash at their end.
    prefixes: Arc<[Box<str>]>,
}

impl Fence {
    /// A fence around a table's own folder and the prefixes that it may also read.
    pub fn new(table: &TableUri, also_reads: impl IntoIterator<Item = UriPrefix>) -> Self {
        let also =
            also_reads.into_iter().map(|prefix| prefix.as_str().trim_end_matches('/').into());
        Self { prefixes: std::iter::once(table.as_str().into()).chain(also).collect() }
    }

    /// A fence around a folder of tables.
    pub fn around(folder: &TableFolder) -> Self {
        Self { prefixes: [folder.as_str().trim_end_matches('/').into()].into() }
    }

    /// Checks a place: an absolute path, or `scheme://bucket/path`.
    ///
    /// # Errors
    /// [`ForbiddenPath`] if it is outside the fence.
    pub fn check(&self, place: &str) -> Result<(), ForbiddenPath> {
        let is_below = |prefix: &str| {
            place.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match self.prefixes.iter().any(|prefix| is_below(prefix)) {
            true => Ok(()),
            false => Err(ForbiddenPath::outside(place)),
        }
    }

    /// Encodes the fence as the value of a storage option, the only thing that Lance passes to a provider each time it
    /// needs a store. One prefix per line: canonical URIs have no line breaks.
    pub fn to_option(&self) -> String {
        self.prefixes.join("\n")
    }

    /// Decodes what [`to_option`](Self::to_option) encoded.
    pub fn of_option(option: &str) -> Self {
        Self { prefixes: option.lines().map(Into::into).collect() }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.prefixes.iter()).finish()
    }
}

/// A table names a path that it may not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{place} {why}", Mark::Forbidden)]
pub struct ForbiddenPath {
    /// The path, without credentials.
    pub place: String,
    why: &'static str,
}

/// The reason for a path that no prefix covers.
const NOT_COVERED: &str =
    "is outside the table's own folder; it is not read, unless the table's `also_reads` lists it";
const LINK: &str =
    "is reached through a symbolic link, and inside a table's folder none is followed";
const NOT_A_FILE: &str = "is not a regular file, and nothing else is read of a table's folder";

impl ForbiddenPath {
    pub fn outside(place: &str) -> Self {
        Self { place: shown(place), why: NOT_COVERED }
    }

    pub fn link(place: &str) -> Self {
        Self { place: shown(place), why: LINK }
    }

    pub fn not_a_file(place: &str) -> Self {
        Self { place: shown(place), why: NOT_A_FILE }
    }
}

impl From<ForbiddenPath> for StoreError {
    fn from(outside: ForbiddenPath) -> Self {
        Self::PermissionDenied { path: outside.place.clone(), source: Box::new(outside) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(table: &str, also: &[&str]) -> Fence {
        let also = also.iter().map(|prefix| UriPrefix::of_config(prefix).unwrap());
        Fence::new(&TableUri::parse(table).unwrap(), also)
    }

    #[test]
    fn a_table_may_read_its_folder_and_allowed_prefixes() {
        let fence = fence("s3://b/t", &["s3://base/a/", "/data/u"]);
        for fence in [Fence::of_option(&fence.to_option()), fence] {
            for place in ["s3://b/t", "s3://b/t/data/x", "s3://base/a/x", "/data/u", "/data/u/x"] {
                assert_eq!(fence.check(place), Ok(()), "{place}");
            }
            for place in [
                "s3://b/t2",
                "s3://b/",
                "s3://b2/t",
                "gs://b/t/x",
                "/data/u2",
                "/",
                "",
                "s3://base/ab",
            ] {
                assert_eq!(fence.check(place), Err(ForbiddenPath::outside(place)), "{place}");
            }
        }
        let error = ForbiddenPath::outside("https://u:secret@h/x?sig=secret");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

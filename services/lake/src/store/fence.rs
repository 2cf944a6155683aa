//! Which files a table may name.
//!
//! A table's manifest may name base paths, and its blobs files of any URI; whoever can write the table decides what
//! they are. So every place that Lance asks for is held against the table's own folder and the prefixes that an
//! operator allows this table besides: once by its URI, before a store is made for it ([`providers`](super::providers)),
//! and once more by its path at each request ([`guarded`](super::guarded), [`folder`](super::folder)).

use std::fmt;
use std::sync::Arc;

use object_store::Error as StoreError;
use tables::{TableUri, UriPrefix, shown};

/// The places of one table. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Fence {
    /// Without a slash at their ends.
    prefixes: Arc<[Box<str>]>,
}

impl Fence {
    /// A table's own folder, and what it may read besides.
    pub fn new(table: &TableUri, also_reads: impl IntoIterator<Item = UriPrefix>) -> Self {
        let also =
            also_reads.into_iter().map(|prefix| prefix.as_str().trim_end_matches('/').into());
        Self { prefixes: std::iter::once(table.as_str().into()).chain(also).collect() }
    }

    /// Lets a place pass: an absolute path, or `scheme://bucket/path`.
    ///
    /// # Errors
    /// [`Outside`] for any other.
    pub fn check(&self, place: &str) -> Result<(), Outside> {
        let is_below = |prefix: &str| {
            place.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match self.prefixes.iter().any(|prefix| is_below(prefix)) {
            true => Ok(()),
            false => Err(Outside::new(place)),
        }
    }

    /// As the value of a storage option: the one thing that Lance hands to the providers of stores with each request
    /// for one. Canonical URIs have no line breaks.
    pub fn to_option(&self) -> String {
        self.prefixes.join("\n")
    }

    /// The reverse of [`to_option`](Self::to_option).
    pub fn of_option(option: &str) -> Self {
        Self { prefixes: option.lines().map(Into::into).collect() }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.prefixes.iter()).finish()
    }
}

/// A table names a file that it may not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} {why}")]
pub struct Outside {
    /// The file, as it may be shown.
    pub place: String,
    why: &'static str,
}

/// What is said of a place that no prefix covers. Also found in the text of errors that Lance keeps as text alone.
const NOT_COVERED: &str =
    "is outside the table's own folder; it is not read, unless the table's `also_reads` lists it";
const LINK: &str =
    "is reached through a symbolic link, and inside a table's folder none is followed";
const NO_FILE: &str = "is not a regular file, and nothing else is read of a table's folder";

impl Outside {
    pub fn new(place: &str) -> Self {
        Self { place: shown(place), why: NOT_COVERED }
    }

    pub fn link(place: &str) -> Self {
        Self { place: shown(place), why: LINK }
    }

    pub fn no_file(place: &str) -> Self {
        Self { place: shown(place), why: NO_FILE }
    }

    /// Whether an error's text is of this kind, where nothing but its text was kept.
    pub fn is_text(text: &str) -> bool {
        [NOT_COVERED, LINK, NO_FILE].iter().any(|why| text.contains(why))
    }
}

impl From<Outside> for StoreError {
    fn from(outside: Outside) -> Self {
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
    fn a_table_has_its_folder_and_what_it_is_allowed_besides() {
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
                assert_eq!(fence.check(place), Err(Outside::new(place)), "{place}");
            }
        }
        let error = Outside::new("https://u:secret@h/x?sig=secret");
        assert!(!error.to_string().contains("secret") && Outside::is_text(&error.to_string()));
    }
}

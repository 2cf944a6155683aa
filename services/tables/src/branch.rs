//! The names of a table's branches.
//!
//! ```text
//! s3://bucket/table/                   the main branch, which has no name here
//! s3://bucket/table/tree/exp/          the branch `exp`: its own versions, data files, indexes
//! s3://bucket/table/tree/team/exp/     the branch `team/exp`
//! ```

use std::fmt;
use std::sync::Arc;

/// The folder, in a table's folder, that has the folders of its branches.
pub(crate) const BRANCHES: &str = "tree";

/// The folders, in a table's or a branch's folder, whose files never change and hold no rows: Lance's indexes and
/// deletion files, and the files that Bireme keeps beside a table.
pub(crate) const FOLDERS: [&str; 3] = ["_indices", "_deletions", "_bireme"];

/// The maximum length of a name, in bytes.
const BYTES_MAX: usize = 256;

/// The name of a branch other than the main one. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BranchName(Arc<str>);

/// The reason why a text is not the name of a branch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no branch's name: it may have letters, digits, `.`, `-` and `_` in parts that `/` separates, up to {BYTES_MAX} \
     bytes"
)]
pub struct BadBranch;

impl BranchName {
    /// The name of the main branch. [`of_request`](Self::of_request) treats it like an empty text.
    pub const MAIN: &str = "main";

    /// Parses the branch that a request names. Returns `None` for the main branch, which an empty text and `main` stand
    /// for.
    ///
    /// # Errors
    /// [`BadBranch`] for a text that Lance does not allow as a name, that is longer than 256 bytes, that has a part
    /// `.`, or that has a part named like one of the folders whose files never change (such as `_indices`): a file's
    /// path would then not show where the branch's name ends.
    pub fn of_request(text: &str) -> Result<Option<Self>, BadBranch> {
        if matches!(text, "" | Self::MAIN) {
            return Ok(None);
        }
        let is_allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_part = |part: &str| {
            !part.is_empty()
                && part != "."
                && part.chars().all(is_allowed)
                && !FOLDERS.contains(&part)
        };
        let is_name = text.len() <= BYTES_MAX
            && !text.contains("..")
            && !text.ends_with(".lock")
            && text.split('/').all(is_part);
        if is_name { Ok(Some(Self(text.into()))) } else { Err(BadBranch) }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path of the branch's folder in the table's folder.
    pub fn folder(&self) -> String {
        format!("{BRANCHES}/{self}")
    }
}

impl fmt::Debug for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_lance() {
        for main in ["", "main"] {
            assert_eq!(BranchName::of_request(main), Ok(None));
        }
        for name in ["exp", "team/exp", "v1.2_b-3", "größe", &"n".repeat(BYTES_MAX)] {
            let branch = BranchName::of_request(name).unwrap().unwrap();
            assert_eq!((branch.as_str(), branch.folder()), (name, format!("tree/{name}")));
        }
        for name in [
            "/exp",
            "exp/",
            "a//b",
            "a/./b",
            "..",
            "a/../b",
            "a..b",
            "a b",
            "a\\b",
            "a%2Fb",
            "a\n",
            "exp.lock",
            "a/_indices/b",
            "_deletions",
            &"n".repeat(BYTES_MAX + 1),
        ] {
            assert_eq!(BranchName::of_request(name), Err(BadBranch), "{name:?}");
        }
    }
}

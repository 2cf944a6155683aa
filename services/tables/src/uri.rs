//! The canonical URIs of tables, and prefixes of URIs.
//!
//! ```text
//! /folder/table                  a folder: absolute, without `file://`
//! s3://bucket/path/to/table      an object store: also gs:// and az://
//! ```
//!
//! Caches, quotas and the names of extents use this form as their key, so each table must have only one. Nothing is
//! percent-decoded, and parts that a URL parser treats specially (`%`, `?`, `#`, `\`, userinfo, a port) are refused
//! instead of being interpreted. Symbolic links are resolved elsewhere, because this crate reads no files.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The maximum length of a URI, in bytes: that of a path on Linux.
const BYTES_MAX: usize = 4096;

/// The last part of the URI of a table's index and deletion files.
const FILES: &str = "_files";

/// A table's URI in its canonical form. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct TableUri(Arc<str>);

/// The reason why a text is not a table's URI. It does not contain the text, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUri {
    /// The text is empty or white space.
    #[error("it is empty; name a folder, or s3://, gs:// or az:// with a bucket and a path")]
    Empty,
    /// The text is longer than any path.
    #[error("it is longer than {BYTES_MAX} bytes")]
    Long,
    /// The text has a control character, or one that changes how text is displayed.
    #[error("it has a control or invisible character in it; write it without")]
    Unprintable,
    /// The text begins or ends with white space.
    #[error("it begins or ends with white space; remove that")]
    Space,
    /// The scheme is not supported.
    #[error(
        "its scheme is not file, s3, gs or az, in lower case; a table is at a path, or at s3://, gs:// or az://"
    )]
    Scheme,
    /// There is a user name, a password or a token before the bucket.
    #[error("it has `@` before its path; credentials belong in the storage options")]
    Userinfo,
    /// There is a query string.
    #[error(
        "it has `?` in it; tables have no query strings, and tokens belong in the storage options"
    )]
    Query,
    /// There is a URL fragment.
    #[error("it has `#` in it; tables have no fragments")]
    Fragment,
    /// A part is percent-encoded.
    #[error("it has `%` in it; nothing is percent-decoded, and a table's path must do without")]
    Percent,
    /// There is a backslash.
    #[error("it has `\\` in it; parts of a path are separated by `/`")]
    Backslash,
    /// There is no bucket, or its name is invalid.
    #[error(
        "its bucket must begin with a letter or digit, have only letters, digits, `-`, `_` and `.` after that, without \
        `..`, and no port"
    )]
    Bucket,
    /// A file URI names a host.
    #[error("a file:// URI continues with an absolute path, as in file:///data/table")]
    Host,
    /// There is no path below a bucket or the root folder.
    #[error("it names a whole bucket or the root folder; add the table's path")]
    Root,
    /// The path has a part `.` or `..`.
    #[error("it has `.` or `..` as a part of its path; write the path without")]
    Dots,
    /// The path has an empty part.
    #[error("it has `//` in its path; write one `/`")]
    Slashes,
    /// The path is relative, and must be absolute here.
    #[error("it is a relative path; write the absolute one")]
    Relative,
    /// The path is relative, and the working directory can't be determined or is not UTF-8.
    #[error(
        "it is a relative path, and the working directory can't be named; write the absolute one"
    )]
    WorkingDirectory,
}

impl TableUri {
    /// Canonicalises a URI from a configuration or a command line. A relative path, which may begin with `./`, is
    /// relative to the working directory.
    ///
    /// # Errors
    /// [`BadUri`] if it is not a table's URI.
    pub fn of_config(text: &str) -> Result<Self, BadUri> {
        if text.contains("://") || text.starts_with('/') || text.is_empty() {
            return Self::parse(text);
        }
        check_characters(text)?;
        let relative = match text.strip_prefix("./") {
            Some(rest) => rest,
            None if text == "." => "",
            None => text,
        };
        // If the first part of the path has a `:`, as in `s3:bucket`, it is taken for a scheme without its slashes. A
        // folder with such a name can be written as `./s3:bucket`.
        let first = text.split('/').next().unwrap_or_default();
        if first.contains(':') {
            return Err(BadUri::Scheme);
        }
        let folder = std::env::current_dir().map_err(|_| BadUri::WorkingDirectory)?;
        let folder = folder.to_str().ok_or(BadUri::WorkingDirectory)?;
        Self::parse(&format!("{}/{relative}", folder.trim_end_matches('/')))
    }

    /// Canonicalises an absolute path, a `file://` URI, or the URI of an object store. It may end in one slash.
    ///
    /// # Errors
    /// [`BadUri`] if it is not a table's URI.
    pub fn parse(text: &str) -> Result<Self, BadUri> {
        check_characters(text)?;
        let text = text.strip_suffix('/').unwrap_or(text);
        // There may be white space before the slash at the end.
        if text.trim_end() != text {
            return Err(BadUri::Space);
        }
        let (before, path) = match text.split_once("://") {
            None if text.starts_with('/') => ("", text),
            None if text.is_empty() => return Err(BadUri::Root),
            None if text.split('/').next().is_some_and(|first| first.contains(':')) => {
                return Err(BadUri::Scheme);
            }
            None => return Err(BadUri::Relative),
            Some(("file", "" | "/")) => return Err(BadUri::Root),
            Some(("file", path)) if path.starts_with('/') => ("", path),
            Some(("file", _)) => return Err(BadUri::Host),
            Some(("s3" | "gs" | "az", rest)) => {
                let (bucket, _) = rest.split_once('/').unwrap_or((rest, ""));
                check_bucket(bucket)?;
                text.split_at(text.len() - rest.len() + bucket.len())
            }
            Some(_) => return Err(BadUri::Scheme),
        };
        check_path(path)?;
        Ok(Self(format!("{before}{path}").into()))
    }

    /// Checks a URI received over the network. Returns `None` if it is not canonical.
    pub fn of_wire(text: &str) -> Option<Self> {
        Self::parse(text).ok().filter(|uri| uri.as_str() == text)
    }

    /// Returns the URI as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the folder's path. Returns `None` for a table in an object store.
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.0.starts_with('/').then(|| std::path::Path::new(&*self.0))
    }

    /// Returns the URI under which the table's index and deletion files are counted and have a share. It is only a
    /// name: there is no such folder.
    pub fn files(&self) -> Self {
        Self(format!("{self}/{FILES}").into())
    }

    /// Returns the URI of the table that this URI of [`files`](Self::files) belongs to; `None` for any other URI.
    pub fn table_of_files(&self) -> Option<Self> {
        let table = self.0.strip_suffix(FILES)?.strip_suffix('/')?;
        Self::parse(table).ok()
    }

    /// Returns the last part of the path.
    pub fn last_part(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Debug for TableUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for TableUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One table, or all tables below a folder or bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UriPrefix {
    /// One table.
    Table(TableUri),
    /// All tables below this prefix, which ends in `/`. It may be a whole bucket, but not the root folder.
    Below(Arc<str>),
}

impl UriPrefix {
    /// Parses an entry of a configuration: a table's URI, or a prefix that ends in `/`.
    ///
    /// # Errors
    /// [`BadUri`] if it is neither.
    pub fn of_config(text: &str) -> Result<Self, BadUri> {
        if !text.ends_with('/') {
            return TableUri::of_config(text).map(Self::Table);
        }
        match TableUri::of_config(text) {
            Ok(uri) => Ok(Self::below(&uri)),
            Err(BadUri::Root) if text.starts_with('/') || text.starts_with("file:") => {
                Err(BadUri::Root)
            }
            Err(BadUri::Root) if text.ends_with("//") => Err(BadUri::Slashes),
            // The prefix is a whole bucket: `s3://bucket/`.
            Err(BadUri::Root) => Ok(Self::Below(text.into())),
            Err(error) => Err(error),
        }
    }

    /// Returns the prefix of everything below a table's own folder.
    pub fn below(uri: &TableUri) -> Self {
        Self::Below(format!("{uri}/").into())
    }

    /// Returns whether the prefix includes a table.
    pub fn covers(&self, uri: &TableUri) -> bool {
        match self {
            Self::Table(table) => table == uri,
            Self::Below(prefix) => uri.as_str().starts_with(&**prefix),
        }
    }

    /// Returns the prefix as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Table(table) => table.as_str(),
            Self::Below(prefix) => prefix,
        }
    }
}

impl fmt::Display for UriPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for UriPrefix {
    fn deserialize<D: serde::Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        let text = String::deserialize(text)?;
        Self::of_config(&text).map_err(|error| {
            serde::de::Error::custom(format_args!("`{}` names no tables: {error}", shown(&text)))
        })
    }
}

impl Serialize for UriPrefix {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The maximum number of characters of a text in a message.
const SHOWN_MAX: usize = 120;

/// Returns a text for use in a message: without parts that may be secret (before `@`, after `?` or `#`), with control
/// characters escaped, and shortened.
pub fn shown(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let (seen, cut) = text.split_at(end);
    let scheme = seen.find("://").map_or(0, |at| at + 3);
    let start = seen.rfind('@').filter(|&at| at >= scheme).map(|at| at + 1);
    let mut shown = String::new();
    if let Some(start) = start {
        shown.push_str(&seen[..scheme]);
        shown.push_str("***@");
        shown.extend(seen[start..].chars().take(SHOWN_MAX).flat_map(escaped));
    } else {
        shown.extend(seen.chars().take(SHOWN_MAX).flat_map(escaped));
    }
    if seen.chars().count() > SHOWN_MAX {
        shown.push('…');
    }
    if let Some(mark) = cut.chars().next() {
        shown.push(mark);
        shown.push_str("***");
    }
    shown
}

fn escaped(character: char) -> impl Iterator<Item = char> {
    let (escape, plain) = match is_unprintable(character) {
        true => (Some(character.escape_unicode()), None),
        false => (None, Some(character)),
    };
    escape.into_iter().flatten().chain(plain)
}

/// Returns whether a character could forge a log line, or change how a name is displayed.
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Direction marks and overrides, joiners, line separators, and the byte order mark.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

fn check_characters(text: &str) -> Result<(), BadUri> {
    if text.trim().is_empty() {
        return Err(BadUri::Empty);
    }
    if text.len() > BYTES_MAX {
        return Err(BadUri::Long);
    }
    // Credentials before an `@` are reported first, then an unprintable character, then the first other fault in the
    // text. So a URI with a token is refused for the `?` before the token, not for a `%` in it.
    let authority = text.split_once("://").map_or("", |(_, rest)| rest);
    if authority.split('/').next().is_some_and(|authority| authority.contains('@')) {
        return Err(BadUri::Userinfo);
    }
    let mut found = None;
    for character in text.chars() {
        let fault = match character {
            '?' => BadUri::Query,
            '#' => BadUri::Fragment,
            '%' => BadUri::Percent,
            '\\' => BadUri::Backslash,
            _ if is_unprintable(character) => return Err(BadUri::Unprintable),
            _ => continue,
        };
        found = found.or(Some(fault));
    }
    match found {
        Some(fault) => Err(fault),
        None if text.trim() != text => Err(BadUri::Space),
        None => Ok(()),
    }
}

fn check_bucket(bucket: &str) -> Result<(), BadUri> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = bucket.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins && bucket.bytes().all(is_valid) && !bucket.contains("..") {
        true => Ok(()),
        false => Err(BadUri::Bucket),
    }
}

/// Checks the parts of `path`, which is empty or begins with `/`.
fn check_path(path: &str) -> Result<(), BadUri> {
    let Some(parts) = path.strip_prefix('/') else { return Err(BadUri::Root) };
    if parts.is_empty() {
        return Err(BadUri::Root);
    }
    for part in parts.split('/') {
        match part {
            "" => return Err(BadUri::Slashes),
            "." | ".." => return Err(BadUri::Dots),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "uri_tests.rs"]
mod tests;

//! How tables are named.

/// Text that names no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoUri(String);

/// One spelling for each table, because extents on NVMe are named after it: folders as absolute
/// paths without `file://`, and nothing ends in a slash.
///
/// # Errors
/// What is wrong with it.
pub fn normal_uri(uri: &str) -> Result<String, NoUri> {
    let bad = |why: &str| NoUri(why.to_owned());
    if uri.trim().is_empty() {
        return Err(bad("it is empty"));
    }
    let local = match uri.split_once("://") {
        None => uri,
        Some(("file", path)) => path,
        Some(_) => return Ok(uri.trim_end_matches('/').to_owned()),
    };
    let absolute = std::path::absolute(local).map_err(|error| NoUri(error.to_string()))?;
    let text = absolute.to_str().ok_or_else(|| bad("its path isn't UTF-8"))?;
    match text.trim_end_matches('/') {
        "" => Err(bad("the root folder can't be a table")),
        path => Ok(path.to_owned()),
    }
}

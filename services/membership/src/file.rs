//! Reads members from a file of `[[io_nodes]]` at a fixed interval.
//!
//! Replace the file by renaming a new one over it, as Kubernetes does for a ConfigMap. A file that is written in
//! place may be read while it is incomplete.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::config::IoNodeConfig;
use crate::error::{MembershipError, Result};
use crate::list::MemberList;
use crate::source::ListSender;

/// The size of the largest file that is read, in bytes. It leaves 4 KiB for each member of the longest list.
const BYTES_MAX: u64 = 4 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MembersFile {
    #[serde(default)]
    io_nodes: Vec<IoNodeConfig>,
}

/// Parses the text of the file at `path`.
pub(crate) fn parse(path: &Path, text: &str) -> Result<MemberList> {
    let file: MembersFile = toml::from_str(text).map_err(|error| MembershipError::Syntax {
        path: path.display().to_string(),
        line: error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
        problem: error.message().to_owned(),
    })?;
    MemberList::written(&file.io_nodes)
}

/// Reads the file once.
pub(crate) async fn list(path: &Path) -> Result<MemberList> {
    to_list(path, &read(path).await)
}

/// The file's text, or the kind and text of the I/O error. Unlike [`io::Error`], it can be compared.
type ReadResult = std::result::Result<String, (io::ErrorKind, String)>;

fn to_list(path: &Path, read: &ReadResult) -> Result<MemberList> {
    match read {
        Ok(text) => parse(path, text),
        Err((kind, problem)) => Err(MembershipError::FileUnreadable {
            path: path.display().to_string(),
            kind: *kind,
            problem: problem.clone(),
        }),
    }
}

/// Sends the file's list now and after each change, until the receiver is dropped.
pub(crate) async fn follow(path: &Path, interval: Duration, lists: ListSender) {
    let mut last = None;
    loop {
        let result = read(path).await;
        if last.as_ref() != Some(&result) {
            if lists.send(to_list(path, &result)).await.is_err() {
                return;
            }
            last = Some(result);
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = lists.closed() => return,
        }
    }
}

async fn read(path: &Path) -> ReadResult {
    let comparable = |error: io::Error| (error.kind(), error.to_string());
    let length = tokio::fs::metadata(path).await.map_err(comparable)?.len();
    if length > BYTES_MAX {
        let problem = format!("it has {length} bytes, and the limit is {BYTES_MAX}");
        return Err((io::ErrorKind::InvalidData, problem));
    }
    tokio::fs::read_to_string(path).await.map_err(comparable)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::list::Presence;

    #[test]
    fn every_field_of_a_file_is_read() {
        let text = "[[io_nodes]]\nname = \"b\"\nendpoint = \"h:2\"\nweight = 2.5\n\
                    draining = true\n[[io_nodes]]\nendpoint = \"http://h:1\"\n";
        let list = parse(Path::new("x"), text).unwrap();
        let [b, by_endpoint] = list.entries() else { panic!("{list:?}") };
        assert_eq!((b.name.as_str(), b.endpoint.to_string().as_str()), ("b", "http://h:2"));
        assert_eq!((b.weight, b.presence), (2.5, Presence::Draining));
        assert_eq!((by_endpoint.name.as_str(), by_endpoint.weight), ("http://h:1", 1.0));
    }

    #[test]
    fn parse_errors_name_file_and_line() {
        let message = |text| parse(Path::new("io.toml"), text).unwrap_err().to_string();
        assert!(message("[[io_nodes]]\nendpiont = 1\n").starts_with("io.toml:2: unknown field"));
        assert!(message("io_node = []").starts_with("io.toml:1: unknown field"));
        assert_eq!(message(""), "there is no I/O node; name at least one");
    }

    #[tokio::test]
    async fn each_replacement_of_the_file_is_sent_once() {
        let folder = tempfile::tempdir().unwrap();
        let (path, next) = (folder.path().join("io.toml"), folder.path().join("next"));
        let replace = |text: &str| {
            std::fs::write(&next, text).unwrap();
            std::fs::rename(&next, &path).unwrap();
        };
        let (sender, mut lists) = mpsc::channel(1);
        let following = tokio::spawn({
            let path = path.clone();
            async move { follow(&path, Duration::from_millis(1), sender).await }
        });
        let missing = lists.recv().await.unwrap().unwrap_err();
        assert!(!missing.is_refusal() && missing.to_string().contains("io.toml"), "{missing}");
        assert_eq!(missing.file_error_kind(), Some(io::ErrorKind::NotFound));
        replace("[[io_nodes]]\nendpoint = \"h:1\"\n");
        assert_eq!(lists.recv().await.unwrap().unwrap().entries().len(), 1);
        replace("[[io_nodes]]\nendpoint = \"h\"\n");
        assert!(lists.recv().await.unwrap().unwrap_err().is_refusal());
        replace("[[io_nodes]]\nendpoint = \"h:1\"\n[[io_nodes]]\nendpoint = \"h:2\"\n");
        assert_eq!(lists.recv().await.unwrap().unwrap().entries().len(), 2);
        drop(lists);
        following.await.unwrap();
    }
}

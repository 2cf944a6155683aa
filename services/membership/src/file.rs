//! Members from a file of `[[io_nodes]]`, which is looked at again and again.
//!
//! Replace the file by renaming another over it (as Kubernetes does with a ConfigMap): what is written in
//! place may be read half-written.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::config::IoNodeConfig;
use crate::error::{MembershipError, Result};
use crate::follow::Heard;
use crate::list::MemberList;

/// The most of a file that is read, in bytes.
const BYTES_MAX: u64 = 4 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    io_nodes: Vec<IoNodeConfig>,
}

/// The list in the text of a file called `path`.
pub(crate) fn parse(path: &Path, text: &str) -> Result<MemberList> {
    let form: Form = toml::from_str(text).map_err(|error| MembershipError::Syntax {
        path: path.display().to_string(),
        line: error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
        problem: error.message().to_owned(),
    })?;
    MemberList::written(&form.io_nodes)
}

/// The list that is in the file now.
pub(crate) async fn list(path: &Path) -> Result<MemberList> {
    listed(path, &read(path).await)
}

/// What is in the file, or what kind of fault keeps it from being read, and which.
type Text = std::result::Result<String, (io::ErrorKind, String)>;

fn listed(path: &Path, text: &Text) -> Result<MemberList> {
    match text {
        Ok(text) => parse(path, text),
        Err((kind, problem)) => Err(MembershipError::Unread {
            path: path.display().to_string(),
            kind: *kind,
            problem: problem.clone(),
        }),
    }
}

/// Tells of the file now and whenever it has changed, until nobody listens.
pub(crate) async fn follow(path: &Path, interval: Duration, heard: Heard) {
    let mut last = None;
    loop {
        let text = read(path).await;
        if last.as_ref() != Some(&text) {
            if heard.send(listed(path, &text)).await.is_err() {
                return;
            }
            last = Some(text);
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = heard.closed() => return,
        }
    }
}

async fn read(path: &Path) -> Text {
    let fault = |error: io::Error| (error.kind(), error.to_string());
    let length = tokio::fs::metadata(path).await.map_err(fault)?.len();
    if length > BYTES_MAX {
        let problem = format!("it has {length} bytes, and {BYTES_MAX} are the most");
        return Err((io::ErrorKind::InvalidData, problem));
    }
    tokio::fs::read_to_string(path).await.map_err(fault)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::list::Presence;

    #[test]
    fn a_file_says_all_there_is_to_say() {
        let text = "[[io_nodes]]\nname = \"b\"\nendpoint = \"h:2\"\nweight = 2.5\nzone = \"eu-1a\"\n\
                    draining = true\n[[io_nodes]]\nendpoint = \"http://h:1\"\n";
        let list = parse(Path::new("x"), text).unwrap();
        let [b, by_endpoint] = list.entries() else { panic!("{list:?}") };
        assert_eq!((b.name.as_str(), b.endpoint.to_string().as_str()), ("b", "http://h:2"));
        assert_eq!((b.weight, b.zone.as_deref()), (2.5, Some("eu-1a")));
        assert_eq!(b.presence, Presence::Draining);
        assert_eq!((by_endpoint.name.as_str(), by_endpoint.weight), ("http://h:1", 1.0));
    }

    #[test]
    fn faults_name_file_and_line() {
        let said = |text| parse(Path::new("io.toml"), text).unwrap_err().to_string();
        assert!(said("[[io_nodes]]\nendpiont = 1\n").starts_with("io.toml:2: unknown field"));
        assert!(said("io_node = []").starts_with("io.toml:1: unknown field"));
        assert_eq!(said(""), "there is no I/O node; name at least one");
    }

    #[tokio::test]
    async fn a_file_that_is_replaced_is_told_once_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let (path, next) = (folder.path().join("io.toml"), folder.path().join("next"));
        let replace = |text: &str| {
            std::fs::write(&next, text).unwrap();
            std::fs::rename(&next, &path).unwrap();
        };
        let (heard, mut lists) = mpsc::channel(1);
        let following = tokio::spawn({
            let path = path.clone();
            async move { follow(&path, Duration::from_millis(1), heard).await }
        });
        let missing = lists.recv().await.unwrap().unwrap_err();
        assert!(!missing.is_refusal() && missing.to_string().contains("io.toml"), "{missing}");
        assert_eq!(missing.unread(), Some(io::ErrorKind::NotFound));
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

//! The policy file of a query node, and the policies that were in force at any time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use access_model::Policy;
use client::fetch::Instant;
use query_node::QueryNode;

/// A policy, the time at which it was written, and a time by which the node had certainly read a later policy, if there
/// is one.
type PastPolicy = (Arc<Policy>, Instant, Option<Instant>);

/// The policy file, and all policies that it has contained.
pub struct PolicyFile {
    path: PathBuf,
    jwks: PathBuf,
    digests: [String; 2],
    history: Mutex<Vec<PastPolicy>>,
}

impl PolicyFile {
    /// Writes the first policy.
    pub fn new(folder: &Path, digests: [String; 2], jwks: PathBuf, first: Policy) -> Self {
        let path = folder.join("access.toml");
        let file = Self { path, jwks, digests, history: Mutex::default() };
        file.write(first);
        file
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a policy, which the node may read from now on.
    pub fn write(&self, policy: Policy) {
        let text = policy.text(&self.digests, &self.jwks);
        self.history.lock().unwrap().push((Arc::new(policy), Instant::now(), None));
        self.write_text(&text);
    }

    /// Writes text that is not a valid policy. The node must keep the policy that it has.
    pub fn write_nonsense(&self) {
        self.write_text("nonsense");
    }

    fn write_text(&self, text: &str) {
        let next = self.path.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &self.path).unwrap();
    }

    /// Makes the node read the file, which must contain the policy that was written last.
    pub async fn read_by(&self, node: &QueryNode) {
        node.reload_policy().await;
        let mut history = self.history.lock().unwrap();
        if let Some((_, before)) = history.split_last_mut() {
            let now = Instant::now();
            before.iter_mut().for_each(|(_, _, until)| *until = until.or(Some(now)));
        }
    }

    /// Returns the policies that may have been in force between two times.
    pub fn in_force(&self, began: Instant, ended: Instant) -> Vec<Arc<Policy>> {
        let history = self.history.lock().unwrap();
        let overlaps = |&&(_, from, until): &&(Arc<Policy>, Instant, Option<Instant>)| {
            from <= ended && until.is_none_or(|until| until >= began)
        };
        history.iter().filter(overlaps).map(|(policy, ..)| Arc::clone(policy)).collect()
    }
}

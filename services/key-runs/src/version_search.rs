//! A search of a table's versions for the data files of runs, which takes as many writes as it needs.

use std::collections::HashSet;

use key_index::DataFile;

/// The progress of a search for runs that no version of the main branch needs. It goes on with each call of
/// [`write_runs_beside`](crate::write_runs_beside). Versions never change, so each is searched once. Files that turn up
/// meanwhile are left to the next search.
#[derive(Debug, Default)]
pub struct VersionSearch {
    /// The names of the runs' files that no searched version needs.
    unneeded: HashSet<String>,
    /// The versions that were searched for all of these files.
    searched: HashSet<u64>,
}

impl VersionSearch {
    /// Removes from `doubtful`, which are names of runs' files and the data files of each, those that this search does not
    /// look for. If it looks for none of them, it begins anew with all. Returns those of `versions`, which are all
    /// versions by ascending number, that are to be searched, newest first.
    pub(crate) fn go_on(
        &mut self,
        doubtful: &mut Vec<(String, Vec<DataFile>)>,
        versions: &[u64],
    ) -> Vec<u64> {
        if doubtful.iter().any(|(name, _)| self.unneeded.contains(name)) {
            doubtful.retain(|(name, _)| self.unneeded.contains(name));
            self.searched.retain(|version| versions.binary_search(version).is_ok());
        } else {
            self.searched.clear();
        }
        let newest_first = versions.iter().rev().copied();
        newest_first.filter(|version| !self.searched.contains(version)).collect()
    }

    /// Notes that a version was searched.
    pub(crate) fn has_searched(&mut self, version: u64) {
        self.searched.insert(version);
    }

    /// Notes the files that no searched version needs.
    pub(crate) fn pause(&mut self, doubtful: &[(String, Vec<DataFile>)]) {
        self.unneeded = doubtful.iter().map(|(name, _)| name.clone()).collect();
    }
}

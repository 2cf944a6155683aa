//! The folders whose tables a node serves: what was found in each, and which tables have which names. Pure.
//!
//! A name stands for one table, whatever fails: a table that is configured by name comes before those of folders, and
//! the folders come in the order of the configuration. So a folder serves nothing until each folder ahead of it has
//! been listed once: a name might otherwise stand for the table of a later folder until the earlier one can be listed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lake::{FolderListing, NamespaceProperties, Namespaces, TableFolder, TableUri};
use spelling::counted;

use crate::config::TableConfig;

/// The maximum number of names in a message.
const NAMES_SHOWN: usize = 20;

/// A folder, with the results of its last listing.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The folder, as configured.
    pub folder: TableFolder,
    /// The last listing that succeeded; `None` before the first.
    listing: Option<Arc<FolderListing>>,
    /// The reason why the folder's last listing failed.
    fault: Option<String>,
    /// A folder ahead of this one that was not listed yet.
    waits_for: Option<TableFolder>,
    /// The number of the folder's tables that are served.
    pub served: usize,
    /// The names of its tables that stand for other tables.
    pub hidden: Vec<String>,
}

impl Folder {
    /// Creates a folder that was not listed yet.
    pub fn new(folder: TableFolder) -> Self {
        let (listing, fault, waits_for, served, hidden) = Default::default();
        Self { folder, listing, fault, waits_for, served, hidden }
    }

    /// Takes the result of a listing. If it failed, what was found before stays.
    pub fn listed(&mut self, listed: lake::Result<FolderListing>) {
        match listed {
            Ok(listing) => {
                self.listing = Some(Arc::new(listing));
                self.fault = None;
            }
            Err(error) => self.fault = Some(error.to_string()),
        }
    }

    /// Returns why the folder could not be listed, or serves nothing yet.
    pub fn error(&self) -> Option<String> {
        let waits = |ahead: &TableFolder| {
            format!("its tables are served once {ahead} was listed, which is ahead of it")
        };
        self.fault.clone().or_else(|| self.waits_for.as_ref().map(waits))
    }

    /// Returns names in the folder that are not allowed as names of tables.
    pub fn refused(&self) -> &[String] {
        self.listing.as_deref().map_or(&[], |listing| &listing.refused)
    }

    /// Returns whether the folder has more tables than are served from one folder, or so many other entries that not
    /// all were looked at.
    pub fn is_cut(&self) -> bool {
        self.listing.as_deref().is_some_and(|listing| listing.is_cut)
    }

    /// Returns the problems of the folder that it did not have before.
    pub fn problems_since(&self, before: &Self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(error) = self.error().filter(|error| before.error().as_ref() != Some(error)) {
            problems.push(error);
        }
        if let Some(names) = new_names(&self.hidden, &before.hidden) {
            problems.push(format!("{names} not served: another table has the name"));
        }
        if let Some(names) = new_names(self.refused(), before.refused()) {
            problems.push(format!(
                "{names} not served: a name may have letters, digits, `.`, `_` and `-`, up to 128, after a \
                 namespace's parts of up to 64, at most ten, each with `$` behind it"
            ));
        }
        if self.is_cut() && !before.is_cut() {
            let all = counted(self.tables(), "table");
            problems.push(format!("the folder has more entries than are read: {all} found"));
        }
        problems
    }

    /// Returns the folder's manifest of namespaces, if it has one.
    pub fn manifest(&self) -> Option<&Arc<Namespaces>> {
        self.listing.as_deref()?.namespaces.as_ref()
    }

    /// Returns the ids of the namespaces of the folder's manifest that begin with `start`, in their order, and their
    /// properties. Returns none before the folder's tables are served.
    pub fn namespaces<'a>(
        &'a self,
        start: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a NamespaceProperties)> {
        let manifest = self.manifest().filter(|_| self.waits_for.is_none()).into_iter();
        let bounds = (Bound::Included(start), Bound::Unbounded);
        let from = manifest.flat_map(move |it| it.properties.range::<str, _>(bounds));
        from.map(|(id, properties)| (id.as_str(), properties))
            .take_while(move |(id, _)| id.starts_with(start))
    }

    fn tables(&self) -> usize {
        self.listing.as_deref().map_or(0, |listing| listing.tables.len())
    }
}

/// Returns the names that are in `now` and were not in `before`, as the beginning of a sentence; `None` if there are
/// none. `before` must be sorted.
fn new_names(now: &[String], before: &[String]) -> Option<String> {
    let mut new = now.iter().filter(|name| before.binary_search(name).is_err());
    let shown: Vec<_> = new.by_ref().take(NAMES_SHOWN).map(|name| format!("{name:?}")).collect();
    let more = new.count();
    let names = shown.join(", ");
    match (shown.len(), more) {
        (0, _) => None,
        (1, 0) => Some(format!("{names} is")),
        (_, 0) => Some(format!("{names} are")),
        (_, more) => Some(format!("{names} and {more} more are")),
    }
}

/// Assigns names to the tables that were found in the folders. `named` are the tables that are configured by name.
/// Returns the tables that got a name, without those that are in `named` too.
pub fn assign(
    folders: &mut [Folder],
    named: &BTreeMap<String, TableConfig>,
) -> BTreeMap<String, TableUri> {
    let mut assigned = BTreeMap::new();
    let mut ahead = None;
    for folder in folders {
        folder.waits_for.clone_from(&ahead);
        folder.served = 0;
        folder.hidden.clear();
        let Some(listing) = folder.listing.clone() else {
            ahead.get_or_insert(folder.folder.clone());
            continue;
        };
        if ahead.is_some() {
            continue;
        }
        for (name, uri) in &listing.tables {
            let is_of = |other: &TableUri| other == uri;
            let other = match named.get(name) {
                // The operator may configure a table of the folder by name, to give it its own settings.
                Some(config) => Some(TableUri::of_config(&config.uri).is_ok_and(|it| is_of(&it))),
                None => assigned.get(name).map(is_of),
            };
            match other {
                None => drop(assigned.insert(name.clone(), uri.clone())),
                Some(true) => {}
                Some(false) => {
                    folder.hidden.push(name.clone());
                    continue;
                }
            }
            folder.served += 1;
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use lake::LakeError;

    use super::*;

    fn folder(uri: &str) -> Folder {
        Folder::new(TableFolder::of_config(uri).unwrap())
    }

    fn find(folder: &mut Folder, tables: &[&str], refused: &[&str]) {
        let uri = |name: &str| folder.folder.below(&format!("{name}.lance")).unwrap();
        folder.listed(Ok(FolderListing {
            folder: folder.folder.clone(),
            tables: tables.iter().map(|&name| (name.to_owned(), uri(name))).collect(),
            namespaces: None,
            refused: refused.iter().map(|&name| name.to_owned()).collect(),
            is_cut: false,
        }));
    }

    fn fail(folder: &mut Folder) {
        let uri = folder.folder.to_string();
        folder.listed(Err(LakeError::FolderNotFound { uri }));
    }

    fn named(tables: &[(&str, &str)]) -> BTreeMap<String, TableConfig> {
        let table = |&(name, uri): &(&str, &str)| {
            (name.to_owned(), TableConfig { uri: uri.into(), ..Default::default() })
        };
        tables.iter().map(table).collect()
    }

    /// Returns the URIs by their names, as `name=uri`.
    fn assigned(folders: &mut [Folder], named: &BTreeMap<String, TableConfig>) -> Vec<String> {
        assign(folders, named).iter().map(|(name, uri)| format!("{name}={uri}")).collect()
    }

    #[test]
    fn a_named_table_comes_before_folders_and_folders_come_in_their_order() {
        let mut folders = [folder("s3://b/one"), folder("/two")];
        find(&mut folders[0], &["a", "b", "own"], &[]);
        find(&mut folders[1], &["b", "c", "d"], &[]);
        let named = named(&[("d", "s3://b/d"), ("own", "s3://b/one/own.lance")]);
        assert_eq!(
            assigned(&mut folders, &named),
            ["a=s3://b/one/a.lance", "b=s3://b/one/b.lance", "c=/two/c.lance"]
        );
        assert_eq!((folders[0].served, folders[0].hidden.len()), (3, 0));
        assert_eq!(
            (folders[1].served, folders[1].hidden.as_slice()),
            (1, &["b", "d"].map(Into::into)[..])
        );
        // The first folder no longer has `b`, so the `b` of the second folder is served.
        find(&mut folders[0], &["a"], &[]);
        assert_eq!(
            assigned(&mut folders, &named),
            ["a=s3://b/one/a.lance", "b=/two/b.lance", "c=/two/c.lance"]
        );
    }

    #[test]
    fn a_failed_listing_keeps_what_was_found_and_a_folder_waits_for_those_ahead() {
        let mut folders = [folder("/one"), folder("/two")];
        fail(&mut folders[0]);
        find(&mut folders[1], &["t"], &[]);
        let none = BTreeMap::new();
        assert!(assigned(&mut folders, &none).is_empty());
        let waits = "its tables are served once /one/ was listed, which is ahead of it";
        assert_eq!(folders[1].error().as_deref(), Some(waits));
        find(&mut folders[0], &["t"], &[]);
        assert_eq!(assigned(&mut folders, &none), ["t=/one/t.lance"]);
        assert_eq!(folders[1].error(), None);
        fail(&mut folders[0]);
        assert_eq!(assigned(&mut folders, &none), ["t=/one/t.lance"]);
        assert!(folders[0].error().unwrap().starts_with("no folder or bucket at /one/"));
    }

    #[test]
    fn a_problem_is_reported_once() {
        let mut folders = [folder("/one"), folder("/two")];
        find(&mut folders[0], &["a", "b"], &["x y"]);
        find(&mut folders[1], &["a", "b"], &[]);
        let before = folders.clone();
        assign(&mut folders, &BTreeMap::new());
        let problems = |at: usize, before: &Folder| folders[at].problems_since(before);
        let two = "\"a\", \"b\" are not served: another table has the name";
        assert_eq!(problems(1, &before[1]), [two]);
        assert_eq!(problems(1, &folders[1].clone()), [""; 0]);
        let one = problems(0, &folder("/one"));
        let rule =
            "\"x y\" is not served: a name may have letters, digits, `.`, `_` and `-`, up to 128, ";
        assert!(one.len() == 1 && one[0].starts_with(rule), "{one:?}");
        let many: Vec<String> = (0..25).map(|it| format!("{it:02}")).collect();
        let said = new_names(&many, &many[..1]).unwrap();
        assert!(said.starts_with("\"01\", ") && said.ends_with("\"20\" and 4 more are"), "{said}");
        let mut failed = folders[0].clone();
        fail(&mut failed);
        assert_eq!(failed.problems_since(&folders[0]).len(), 1);
        assert_eq!(failed.problems_since(&failed.clone()), [""; 0]);
    }
}

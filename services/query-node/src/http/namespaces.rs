//! Calls that list or describe namespaces, and that list the tables in one.
//!
//! A table in a namespace has an id, which is its name for grants and everywhere else in this crate: the namespace's
//! parts and the table's name, joined by `$`. A caller sees a namespace if it sees a table in it, however deep. A
//! caller whose grants cover every id in a namespace (`eu$*`) also sees it while it is empty, and its properties.

use std::collections::{BTreeMap, BTreeSet};

use access::Caller;
use lake::{ID_DELIMITER, NamespaceProperties, is_namespace_id, is_table_name};
use serde_json::json;

use super::answer::{Answer, json as answer};
use super::page::Page;
use crate::error::{QueryError, Result};
use crate::state::ShardState;

/// Maximum number of names in one page of a list. Names of tables have up to 128 bytes, so a page has at most some 130
/// KB.
const PAGE_MAX: usize = 1000;

/// A namespace as one caller sees it.
pub struct Namespace<'a> {
    state: &'a ShardState,
    caller: &'a Caller,
    /// The text with which the ids of all that is in the namespace begin; empty for the root.
    prefix: String,
    properties: NamespaceProperties,
}

impl<'a> Namespace<'a> {
    /// Finds the namespace with these parts; none for the root.
    ///
    /// # Errors
    /// [`QueryError::NamespaceUnknown`] if there is none that the caller sees.
    pub fn find(state: &'a ShardState, caller: &'a Caller, parts: &[String]) -> Result<Self> {
        let prefix: String = parts.iter().flat_map(|part| [part, ID_DELIMITER]).collect();
        let mut found = Self { state, caller, prefix, properties: BTreeMap::new() };
        let Some(id) = found.prefix.strip_suffix(ID_DELIMITER).map(str::to_owned) else {
            return Ok(found);
        };
        let folders = state.shared.catalog.folders();
        let recorded = || folders.iter().flat_map(|folder| folder.namespaces(&id));
        let is_below = |other: &str| other == id || other.starts_with(&found.prefix);
        let is_recorded = recorded().any(|(other, _)| is_below(other) && found.covers(other));
        if !is_recorded && found.names("", 1).is_empty() {
            return Err(QueryError::NamespaceUnknown { namespace: id.clone() });
        }
        let own = recorded().find(|(other, _)| *other == id && found.covers(other));
        found.properties = own.map(|(_, properties)| properties.clone()).unwrap_or_default();
        Ok(found)
    }

    /// Returns whether the caller's grants cover every id in a namespace.
    fn covers(&self, id: &str) -> bool {
        self.caller.sees(&format!("{id}{ID_DELIMITER}"))
    }

    /// Describes the namespace.
    pub fn describe(&self) -> Result<Answer> {
        answer(json!({ "properties": self.properties }))
    }

    /// Lists the tables directly in the namespace, by their names, from the one after the query's `page_token` on.
    pub fn tables(&self, query: &str) -> Result<Answer> {
        let page = Page::default().or_by(query)?;
        let limit = page.limit().unwrap_or(PAGE_MAX).min(PAGE_MAX);
        // Clients refuse a whole list if it contains a name that is not valid for them.
        let is_shown = |name: &str| is_table_name(name);
        let mut names = self.names_if(is_shown, page.after(), limit + 1);
        let has_more = names.len() > limit;
        names.truncate(limit);
        let next = names.last().filter(|_| has_more);
        answer(json!({ "tables": names, "page_token": next }))
    }

    /// Lists all tables in the namespace, however deep, from the one after the query's `page_token` on. The parts of
    /// their ids are joined by `delimiter`.
    pub fn all_tables(&self, query: &str, delimiter: &str) -> Result<Answer> {
        let page = Page::default().or_by(query)?;
        let limit = page.limit().unwrap_or(PAGE_MAX).min(PAGE_MAX);
        // The names that [`tables`](Self::tables) would have in each namespace.
        let is_shown = |id: &str| match id.rsplit_once(ID_DELIMITER) {
            None => is_table_name(id),
            Some((namespace, name)) => is_namespace_id(namespace) && is_table_name(name),
        };
        let mut ids = self.names_if(is_shown, page.after(), limit + 1);
        let has_more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().filter(|_| has_more).cloned();
        let ids: Vec<_> = ids.iter().map(|id| id.replace(ID_DELIMITER, delimiter)).collect();
        answer(json!({ "tables": ids, "page_token": next }))
    }

    /// Lists the namespaces directly in the namespace, by the last parts of their ids, from the one after the query's
    /// `page_token` on.
    pub fn children(&self, query: &str) -> Result<Answer> {
        let mut page = Page::default().or_by(query)?;
        let limit = page.limit().unwrap_or(PAGE_MAX).min(PAGE_MAX);
        page.limit = Some(limit);
        let mut children = BTreeSet::new();
        let mut after = match page.after() {
            "" => String::new(),
            token => behind(token),
        };
        while children.len() <= limit {
            // The first table behind all those of the last child.
            let next = self.names_if(|name| name.contains(ID_DELIMITER), &after, 1);
            let Some(child) = next.first().and_then(|name| first_part(name)) else { break };
            after = behind(child);
            // As in lists of tables: clients refuse the whole list.
            if is_namespace_id(child) {
                children.insert(child.to_owned());
            }
        }
        for folder in self.state.shared.catalog.folders().iter() {
            for (id, _) in folder.namespaces(&self.prefix) {
                let below = &id[self.prefix.len()..];
                let child = first_part(below).unwrap_or(below);
                if is_namespace_id(child) && !children.contains(child) && self.covers(id) {
                    children.insert(child.to_owned());
                }
            }
        }
        let (namespaces, next) = page.of(children.into_iter().collect(), String::clone)?;
        answer(json!({ "namespaces": namespaces, "page_token": next }))
    }

    /// Returns the names of tables in the namespace, however deep, without the namespace's own parts: at most `count`
    /// of those after `after`.
    fn names(&self, after: &str, count: usize) -> Vec<String> {
        self.names_if(|_| true, after, count)
    }

    fn names_if(&self, is_wanted: impl Fn(&str) -> bool, after: &str, count: usize) -> Vec<String> {
        let prefix = &*self.prefix;
        let is_shown =
            |id: &str| id.strip_prefix(prefix).is_some_and(&is_wanted) && self.caller.sees(id);
        let catalog = &self.state.shared.catalog;
        let ids = catalog.names(is_shown, &format!("{prefix}{after}"), count);
        ids.into_iter().map(|mut id| id.split_off(prefix.len())).collect()
    }
}

/// Returns the part of an id before the first delimiter, if it has one.
fn first_part(id: &str) -> Option<&str> {
    id.split_once(ID_DELIMITER).map(|(first, _)| first)
}

/// Returns a text that is behind each id that begins with the part `part`, and before all others that are behind those.
fn behind(part: &str) -> String {
    // The character after the delimiter.
    format!("{part}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_separates_the_ids_of_a_part_from_those_behind_them() {
        assert_eq!(u32::from('%'), u32::from('$') + 1);
        for before in ["a", "a$", "a$t", "a$z$t"] {
            assert!(before < behind("a").as_str(), "{before}");
        }
        for after in ["a-b$t", "a.b$t", "a0", "ab$t", "b"] {
            assert!(after > behind("a").as_str(), "{after}");
        }
        assert_eq!((first_part("a$b$t"), first_part("t")), (Some("a"), None));
    }
}

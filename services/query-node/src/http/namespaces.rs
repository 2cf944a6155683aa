//! Calls that list or describe namespaces, and that list the tables in one.
//!
//! A table in a namespace has an id, which is its name for grants and everywhere else in this crate: the namespace's
//! parts and the table's name, joined by `$`. A caller sees a namespace if it sees a table in it, however deep. A caller
//! that would see any table in it also sees it while it is empty, and its properties.

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
        let id = parts.join("$");
        let mut found = Self { state, caller, prefix: String::new(), properties: BTreeMap::new() };
        if parts.is_empty() {
            return Ok(found);
        }
        found.prefix = format!("{id}{ID_DELIMITER}");
        let folders = state.shared.catalog.folders();
        let mut recorded = folders.iter().flat_map(|folder| folder.namespaces());
        let recorded = recorded.find(|(other, _)| **other == id);
        let is_shown = recorded.is_some() && caller.sees(&found.prefix);
        if !is_shown && found.names("", 1).is_empty() {
            return Err(QueryError::NamespaceUnknown { namespace: id });
        }
        if let Some((_, properties)) = recorded.filter(|_| is_shown) {
            found.properties.clone_from(properties);
        }
        Ok(found)
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

    /// Lists the namespaces directly in the namespace, by the last parts of their ids.
    pub fn children(&self, query: &str) -> Result<Answer> {
        let mut page = Page::default().or_by(query)?;
        page.limit = Some(page.limit().unwrap_or(PAGE_MAX).min(PAGE_MAX));
        let mut children = BTreeSet::new();
        for name in self.names("", usize::MAX) {
            if let Some((child, _)) = name.split_once(ID_DELIMITER) {
                children.insert(child.to_owned());
            }
        }
        for folder in self.state.shared.catalog.folders().iter() {
            let below = folder.namespaces().filter_map(|(id, _)| id.strip_prefix(&*self.prefix));
            for id in below {
                let child = id.split(ID_DELIMITER).next().unwrap_or(id);
                if self.caller.sees(&format!("{}{child}{ID_DELIMITER}", self.prefix)) {
                    children.insert(child.to_owned());
                }
            }
        }
        // As in lists of tables: clients refuse the whole list.
        let children = children.into_iter().filter(|child| is_namespace_id(child)).collect();
        let (namespaces, next) = page.of(children, String::clone)?;
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

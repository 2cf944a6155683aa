//! Converts descriptions of tables and nodes to tuples and dictionaries, from which the package makes its objects.

use client::query::{StatusResponse, TableDescription, TableSummary};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use wire::query::{IoNode, MemberState, Tag, VersionSummary};

use crate::rows::python_schema;

/// Makes a dictionary of fields of a message, under their names.
macro_rules! dictionary {
    ($py:expr, $message:expr, [$($field:ident),* $(,)?]) => {{
        let dictionary = PyDict::new($py);
        $(dictionary.set_item(stringify!($field), $message.$field.clone())?;)*
        dictionary
    }};
}

/// Converts a list of tables.
pub fn listed(py: Python<'_>, tables: Vec<TableSummary>) -> PyResult<Py<PyAny>> {
    Ok(summaries(py, &tables)?.into_any().unbind())
}

fn summaries<'py>(py: Python<'py>, tables: &[TableSummary]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for table in tables {
        list.append(dictionary!(py, table, [name, version, rows, error]))?;
    }
    Ok(list)
}

/// Converts the description of a table.
pub fn described(py: Python<'_>, description: TableDescription) -> PyResult<Py<PyAny>> {
    let TableDescription { response, schema } = description;
    let table = dictionary!(py, response, [name, version, rows, fragments, key_column, error]);
    table.set_item("schema", python_schema(py, &schema)?)?;
    let deleted = response.fragment_sizes.iter().map(|it| u64::from(it.deleted_rows)).sum::<u64>();
    table.set_item("deleted_rows", deleted)?;
    let shown = response.columns.iter().filter(|it| it.by_default).map(|it| it.name.clone());
    table.set_item("default_columns", shown.collect::<Vec<_>>())?;
    let indexes = PyList::empty(py);
    for index in &response.indexes {
        indexes.append(dictionary!(py, index, [name, columns, kind, metric, unindexed_rows]))?;
    }
    table.set_item("indexes", indexes)?;
    Ok(table.into_any().unbind())
}

/// Converts a list of versions.
pub fn version_tuples(py: Python<'_>, versions: Vec<VersionSummary>) -> PyResult<Py<PyAny>> {
    let tuple = |it: VersionSummary| (it.version, it.created_at_ms, it.metadata);
    Ok(PyList::new(py, versions.into_iter().map(tuple))?.into_any().unbind())
}

/// Converts a list of tags.
pub fn tag_tuples(py: Python<'_>, tags: Vec<Tag>) -> PyResult<Py<PyAny>> {
    let tuple = |it: Tag| (it.name, it.version, it.branch);
    Ok(PyList::new(py, tags.into_iter().map(tuple))?.into_any().unbind())
}

/// Converts the state of the nodes.
pub fn status(py: Python<'_>, status: StatusResponse) -> PyResult<Py<PyAny>> {
    let node = dictionary!(
        py,
        status,
        [
            node,
            version,
            cpu_us,
            resident_bytes,
            search_queue,
            requests,
            errors,
            fallback_rows,
            open_access,
        ]
    );
    node.set_item("tables", summaries(py, &status.tables)?)?;
    let io_nodes = PyList::empty(py);
    for io_node in &status.io_nodes {
        io_nodes.append(io_node_dictionary(py, io_node)?)?;
    }
    node.set_item("io_nodes", io_nodes)?;
    Ok(node.into_any().unbind())
}

fn io_node_dictionary<'py>(py: Python<'py>, node: &IoNode) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = dictionary!(
        py,
        node,
        [
            name,
            endpoint,
            zone,
            weight,
            share,
            reachable,
            ready,
            error,
            engine,
            capacity_bytes,
            used_bytes,
            extents,
            rows,
            drive_reads,
            drive_read_bytes,
            ram_hits,
            table_rows,
            cpu_us,
            resident_bytes,
            read_only_drives,
            retired_drives,
        ]
    );
    dictionary.set_item("state", state_name(node.state()))?;
    Ok(dictionary)
}

/// Returns the name of an I/O node's state.
fn state_name(state: MemberState) -> &'static str {
    match state {
        MemberState::Unspecified => "unknown",
        MemberState::Ready => "ready",
        MemberState::Joining => "joining",
        MemberState::Draining => "draining",
        MemberState::Away => "away",
        MemberState::Ejected => "ejected",
    }
}

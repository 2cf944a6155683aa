//! Builds a run from the key column of some data files.

use key_index::{DataFile, KeyHasher, KeyHashes, KeyType, Run};
use lake::Table;

use super::error::BuildError;
use super::hashes::each_hash;

/// The number of rows of a file's first read. The size of its keys determines the next one.
const ROWS_FIRST: u32 = 1024;

/// The maximum number of rows of one read.
const ROWS_MAX: u32 = 65_536;

/// The size of the keys of one read, in bytes, if they are about as long as those of the read before.
const READ_BYTES: usize = 8 << 20;

/// A key column, with the type and the seed of its hashes.
#[derive(Clone, Debug)]
pub struct KeyColumn {
    /// The column's name.
    pub name: String,
    /// The class of its type.
    pub key_type: KeyType,
    /// The seed of all hashes of the column. It is secret.
    pub seed: u64,
}

impl KeyColumn {
    /// Returns the hasher of the column's keys.
    pub fn hasher(&self) -> KeyHasher {
        KeyHasher::new(self.seed, self.key_type)
    }
}

/// Builds the run of `files`, each of a version of the table that has it. Reads the key column, and hashes it on this
/// thread; the run is made on a thread for blocking work.
///
/// # Errors
/// Errors of the store, or of a defect.
pub async fn build_run(
    column: &KeyColumn,
    files: Vec<(Table, DataFile)>,
) -> Result<Run, BuildError> {
    let rows: u64 = files.iter().map(|(_, file)| u64::from(file.rows)).sum();
    let mut hashes = KeyHashes::with_capacity(rows as usize);
    for (table, file) in &files {
        hash_file(column, table, file, &mut hashes).await?;
    }
    let files = files.into_iter().map(|(_, file)| file).collect();
    let KeyColumn { key_type, seed, .. } = *column;
    let build = move || Run::build(seed, key_type, files, &hashes);
    Ok(tokio::task::spawn_blocking(build).await??)
}

/// Adds the hashes of the keys of one file.
async fn hash_file(
    column: &KeyColumn,
    table: &Table,
    file: &DataFile,
    hashes: &mut KeyHashes,
) -> Result<(), BuildError> {
    let hasher = column.hasher();
    let columns = [column.name.clone()];
    let (mut from, mut rows_next) = (0, ROWS_FIRST);
    while from < file.rows {
        let to = file.rows.min(from.saturating_add(rows_next));
        let keys = table.read_chunk(file.fragment, from..to, &columns).await?;
        each_hash(&hasher, keys.column(0), |hash| hashes.push(hash))?;
        let key_bytes = keys.get_array_memory_size() / keys.num_rows().max(1);
        let rows = u32::try_from(READ_BYTES / key_bytes.max(1)).unwrap_or(ROWS_MAX);
        rows_next = rows.clamp(1, ROWS_MAX);
        from = to;
    }
    Ok(())
}

//! Builds a run from the key column of some data files.

use key_index::{DataFile, KeyHasher, KeyHashes, KeyIndexError, Run};
use lake::{LakeError, Table};
use thiserror::Error;

use crate::hashes::each_hash;
use crate::key_column::KeyColumn;

/// Data files get a run together if they have at most this many rows in total. Otherwise they get several runs, so that
/// look-ups can use the first one while the others are built.
pub const ROWS_TOGETHER: u64 = 1 << 20;

/// The number of rows of a file's first read. The size of the keys in each read determines the number for the next
/// read.
const ROWS_FIRST: u32 = 1024;

/// The maximum number of rows of one read. Keys of up to 128 bytes reach it before [`READ_BYTES`].
const ROWS_MAX: u32 = 65_536;

/// The approximate size of the keys of one read, in bytes. The size is exact if the keys are as long as those of the
/// read before.
const READ_BYTES: usize = 8 << 20;

/// The reason why a run can't be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The key column can't be read.
    #[error("the key column can't be read: {0}")]
    Table(#[from] LakeError),
    /// No run can be made of these data files and keys: a defect.
    #[error("the key index: {0}")]
    Index(#[from] KeyIndexError),
    /// The computation panicked: a defect.
    #[error("the key index can't be built: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}

/// Sorts `missing`, newer files first, and returns the files of each run to build: up to [`ROWS_TOGETHER`] rows together,
/// or one file that has more.
pub fn split_into_runs(missing: &mut [DataFile]) -> impl Iterator<Item = &[DataFile]> {
    missing.sort_unstable_by_key(|file| std::cmp::Reverse(file.fragment));
    let mut rest: &[DataFile] = missing;
    std::iter::from_fn(move || {
        let mut sum = 0;
        let fits_together = |file: &&DataFile| {
            sum += u64::from(file.rows);
            sum <= ROWS_TOGETHER
        };
        let together = rest.iter().take_while(fits_together).count();
        let (files, others) = rest.split_at_checked(together.max(1))?;
        rest = others;
        Some(files)
    })
}

/// Removes from `missing`, and returns, the files of the first run to build ([`split_into_runs`]).
pub fn first_together(missing: &mut Vec<DataFile>) -> Vec<DataFile> {
    let together = split_into_runs(missing).next().map_or(0, <[DataFile]>::len);
    missing.drain(..together).collect()
}

/// Builds the run of `files`. Each file comes with a version of the table that has it. Reads the key column and hashes
/// it on this thread; the run is built on a thread for blocking work. `progress` gets the number of rows read so far.
///
/// # Errors
/// Errors of the store, or of a defect.
pub async fn build_run(
    column: &KeyColumn,
    seed: u64,
    files: Vec<(Table, DataFile)>,
    mut progress: impl FnMut(u64),
) -> Result<Run, BuildError> {
    let rows: u64 = files.iter().map(|(_, file)| u64::from(file.rows)).sum();
    let mut hashes = KeyHashes::with_capacity(rows as usize);
    let hasher = column.hasher(seed);
    for (table, file) in &files {
        hash_file(&column.name, &hasher, table, file, &mut hashes, &mut progress).await?;
    }
    let files = files.into_iter().map(|(_, file)| file).collect();
    let key_type = column.key_type;
    let build = move || Run::build(seed, key_type, files, &hashes);
    Ok(tokio::task::spawn_blocking(build).await??)
}

/// Adds the hashes of the keys of one file.
async fn hash_file(
    column: &str,
    hasher: &KeyHasher,
    table: &Table,
    file: &DataFile,
    hashes: &mut KeyHashes,
    progress: &mut impl FnMut(u64),
) -> Result<(), BuildError> {
    let columns = [column.to_owned()];
    let (mut from, mut rows_next) = (0, ROWS_FIRST);
    while from < file.rows {
        let to = file.rows.min(from.saturating_add(rows_next));
        let keys = table.read_chunk(file.fragment, from..to, &columns).await?;
        each_hash(hasher, keys.column(0), |hash| hashes.push(hash))?;
        let key_bytes = keys.get_array_memory_size() / keys.num_rows().max(1);
        let rows = u32::try_from(READ_BYTES / key_bytes.max(1)).unwrap_or(ROWS_MAX);
        rows_next = rows.clamp(1, ROWS_MAX);
        from = to;
        progress(hashes.rows() as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_get_a_run_together_and_large_ones_alone() {
        let file = |fragment: u32, rows: u32| DataFile {
            path: fragment.to_string(),
            fragment,
            rows: rows << 10,
        };
        let mut missing = vec![file(0, 9), file(1, 2_000), file(2, 1_000), file(3, 24), file(4, 0)];
        let mut fragments = || -> Vec<u32> {
            first_together(&mut missing).iter().map(|file| file.fragment).collect()
        };
        assert_eq!(fragments(), [4, 3, 2]);
        assert_eq!(fragments(), [1]);
        assert_eq!(fragments(), [0]);
        assert_eq!(fragments(), [0; 0]);
    }
}

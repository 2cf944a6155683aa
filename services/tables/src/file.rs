//! A file of a table, as a table whose rows are the file's sectors.
//!
//! ```text
//! file    | sector 0 | sector 1 | … | sector 127 | sector 128 | …  | last sector, filled up with zeros |
//! table   | row 0    | row 1    | … | row 127    | row 128    | …  | last row                          |
//! chunk   | block 0                              | block 1         …                                   |
//! ```
//!
//! So an I/O node caches and serves index and deletion files with the code that caches and serves rows. The table has
//! one fragment, 0, and one column, [`FILE_COLUMN`], of [`SECTOR_BYTES`] bytes a row. In an extent, such a row takes
//! exactly one sector.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use address::{RowAddr, SECTOR_BYTES};
use arrow_array::{ArrayRef, FixedSizeBinaryArray, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use tokio::runtime::Handle;
use wire::{Fault, Reason};

use crate::blocks::{BLOCK_SECTORS, BlockReads, BlockSource, FileSource, TOGETHER_MAX};
use crate::branch::{BRANCHES, BranchName, FOLDERS};
use crate::{DeletedRows, FragmentInfo, Table, TableUri};

/// The column of a file's sectors.
pub const FILE_COLUMN: &str = "bytes";

/// A key in the metadata of the schema that an I/O node returns for an opened file. Its value is the file's size in
/// bytes.
pub const FILE_BYTES_KEY: &str = "file_bytes";

/// The maximum number of blocks of one request that are read at the same time, so that a request for many blocks holds
/// only a few of them in memory. Sixteen blocks take 8 MiB.
const BLOCKS_READING_MAX: usize = 16;

/// The maximum length of a file's path, in bytes: that of a key in S3.
const PATH_BYTES_MAX: usize = 1024;

/// The path of a table's file that I/O nodes may cache, relative to the table's folder, such as
/// `_indices/0a1b…/index.idx`, or `tree/exp/_indices/0a1b…/index.idx` for a file of the branch `exp`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FilePath(Arc<str>);

impl FilePath {
    /// Parses a path. Returns `None` if it is not the path of a file that I/O nodes may cache.
    pub fn parse(path: &str) -> Option<Self> {
        let is_part = |part: &str| {
            !matches!(part, "" | "." | "..")
                && !part.contains(|c: char| c.is_control() || c == '\\')
        };
        let is_file = |rest: &str| rest.split('/').all(is_part);
        let branch_file = path.strip_prefix(BRANCHES).and_then(|rest| rest.strip_prefix('/'));
        let in_branch = branch_file.and_then(|rest| {
            // No part of a branch's name is in `FOLDERS`, so the name ends before the first part that is.
            let starts = rest.match_indices('/').map(|(at, _)| (&rest[..at], &rest[at + 1..]));
            let mut found = starts.filter(|(_, file)| {
                file.split_once('/').is_some_and(|(folder, _)| FOLDERS.contains(&folder))
            });
            let (name, file) = found.next()?;
            BranchName::of_request(name).ok().flatten().map(|_| file)
        });
        let (folder, rest) = in_branch.unwrap_or(path).split_once('/')?;
        let is_cached = FOLDERS.contains(&folder) && path.len() <= PATH_BYTES_MAX && is_file(rest);
        is_cached.then(|| Self(path.into()))
    }

    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A file of a table, as a table.
pub struct FileTable {
    uri: TableUri,
    file: BlockSource,
    blocks: BlockReads,
    damage: OnceLock<Fault>,
    schema: SchemaRef,
    fragments: [FragmentInfo; 1],
}

impl FileTable {
    /// Presents a file of the table at `table` as a table. `bytes` is the file's size. Blocks are read on the current
    /// runtime.
    ///
    /// # Errors
    /// `TOO_LARGE` for a file of more than 16 TiB, whose sectors can't be numbered.
    pub fn new(
        table: &TableUri,
        path: &FilePath,
        bytes: u64,
        source: Arc<dyn FileSource>,
        blocks: BlockReads,
    ) -> Result<Self, Fault> {
        let sectors = bytes.div_ceil(SECTOR_BYTES as u64);
        let Ok(sectors) = u32::try_from(sectors) else {
            let what =
                format!("{} of {table} has {bytes} bytes; at most 16 TiB are read", path.as_str());
            return Err(Fault::new(Reason::TooLarge, what).with("table", table));
        };
        let column = DataType::FixedSizeBinary(SECTOR_BYTES as i32);
        let fragment = FragmentInfo {
            id: 0,
            physical_rows: sectors,
            deleted_rows: 0,
            first_file_bytes: Some(bytes),
            data_bytes: Some(bytes),
        };
        Ok(Self {
            uri: table.files(),
            file: BlockSource {
                name: format!("{table}/{} {bytes}", path.as_str()).into(),
                bytes,
                source,
                runtime: Handle::current(),
            },
            blocks,
            damage: OnceLock::new(),
            schema: Arc::new(Schema::new(vec![Field::new(FILE_COLUMN, column, false)])),
            fragments: [fragment],
        })
    }

    /// Returns the file's size.
    pub fn bytes(&self) -> u64 {
        self.file.bytes
    }

    /// Returns the rows with the numbers `rows`, in the order of `rows`, which need not be sorted. Holds only a few
    /// blocks in memory at a time, however many blocks the rows are in.
    async fn rows(&self, rows: &[u32]) -> Result<RecordBatch, Fault> {
        if let Some(row) = rows.iter().find(|&&row| row >= self.fragments[0].physical_rows) {
            let what = format!("sector {row} is behind the end of {}", self.file.name);
            return Err(Fault::new(Reason::RowNotFound, what));
        }
        if let Some(fault) = self.damage() {
            return Err(fault.clone());
        }
        // The block of each row, and the row's place in the answer.
        let mut places: Vec<(u32, usize)> =
            rows.iter().map(|row| row / BLOCK_SECTORS.get()).zip(0..).collect();
        places.sort_unstable();
        let groups: Vec<&[(u32, usize)]> = places.chunk_by(|a, b| a.0 == b.0).collect();
        let mut values = vec![0; rows.len() * SECTOR_BYTES];
        let read = |at: usize| {
            let number = groups[at][0].0;
            let follow =
                groups[at..].iter().zip(number..).take_while(|(it, next)| it[0].0 == *next);
            let follow = follow.take(TOGETHER_MAX as usize);
            let together = follow.count() as u32;
            async move { (at, self.blocks.read(&self.file, number, together).await) }.boxed()
        };
        let reads: Vec<_> = (0..groups.len()).map(read).collect();
        let mut reads = stream::iter(reads).buffered(BLOCKS_READING_MAX);
        while let Some((at, block)) = reads.next().await {
            let block = block.inspect_err(|fault| self.note(fault))?;
            for &(_, place) in groups[at] {
                let start = (rows[place] % BLOCK_SECTORS.get()) as usize * SECTOR_BYTES;
                let sector = &block[start.min(block.len())..block.len().min(start + SECTOR_BYTES)];
                values[place * SECTOR_BYTES..][..sector.len()].copy_from_slice(sector);
            }
        }
        let column = FixedSizeBinaryArray::try_new(SECTOR_BYTES as i32, Buffer::from(values), None);
        let rows = column.and_then(|column| {
            RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::new(column) as ArrayRef])
        });
        rows.map_err(|error| Fault::new(Reason::Internal, error.to_string()))
    }

    /// Keeps the bytes of the first block, which was read to learn the file's size.
    pub fn keep_first(&self, bytes: Bytes) {
        self.blocks.keep(&self.file, bytes);
    }

    /// Remembers the fault if it says that the file is not the one that was opened.
    fn note(&self, fault: &Fault) {
        if fault.reason == Reason::TableDamaged {
            let _ = self.damage.set(fault.clone());
        }
    }

    /// Returns why the file is not the one that was opened, if a read has found that out.
    pub fn damage(&self) -> Option<&Fault> {
        self.damage.get()
    }

    fn check_fragment(&self, fragment: u32) -> Result<(), Fault> {
        match fragment {
            0 => Ok(()),
            other => {
                let what = format!("a file has fragment 0 only, not {other}");
                Err(Fault::new(Reason::RowNotFound, what))
            }
        }
    }
}

impl Table for FileTable {
    fn uri(&self) -> &TableUri {
        &self.uri
    }

    fn identity(&self) -> String {
        self.file.name.to_string()
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn column(&self, name: &str) -> Result<usize, Fault> {
        match name {
            FILE_COLUMN => Ok(0),
            other => {
                let what = format!("a file has no column `{other}`; its column is `{FILE_COLUMN}`");
                Err(Fault::new(Reason::ColumnNotFound, what))
            }
        }
    }

    fn is_blob(&self, column: &str) -> Result<bool, Fault> {
        self.column(column).map(|_| false)
    }

    fn fragments(&self) -> &[FragmentInfo] {
        &self.fragments
    }

    fn file_identity(&self, fragment: u32, column: &str) -> Result<String, Fault> {
        self.check_fragment(fragment)?;
        self.column(column).map(|_| self.identity())
    }

    fn deleted(&self, fragment: u32) -> BoxFuture<'_, Result<Arc<DeletedRows>, Fault>> {
        std::future::ready(self.check_fragment(fragment).map(|()| Arc::default())).boxed()
    }

    fn read_chunk<'a>(
        &'a self,
        fragment: u32,
        rows: Range<u32>,
        _: &'a [String],
        _bytes_max: u64,
    ) -> BoxFuture<'a, Result<Vec<RecordBatch>, Fault>> {
        async move {
            self.check_fragment(fragment)?;
            Ok(vec![self.rows(&rows.collect::<Vec<_>>()).await?])
        }
        .boxed()
    }

    fn take<'a>(
        &'a self,
        addresses: &'a [RowAddr],
        _: &'a [String],
    ) -> BoxFuture<'a, Result<RecordBatch, Fault>> {
        async move {
            addresses.iter().try_for_each(|addr| self.check_fragment(addr.fragment()))?;
            let rows: Vec<u32> = addresses.iter().map(|addr| addr.offset()).collect();
            self.rows(&rows).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A file whose byte `n` is `n % 251`, and the number of reads so far.
    struct Numbers(Arc<AtomicU64>);

    impl FileSource for Numbers {
        fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Fault>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let bytes: Vec<u8> = range.map(|at| (at % 251) as u8).collect();
            std::future::ready(Ok(bytes.into())).boxed()
        }
    }

    fn table(bytes: u64) -> (FileTable, Arc<AtomicU64>) {
        let (uri, reads) = (TableUri::parse("s3://b/t").unwrap(), Arc::default());
        let path = FilePath::parse("_indices/u/index.idx").unwrap();
        let source = Arc::new(Numbers(Arc::clone(&reads)));
        let table = FileTable::new(&uri, &path, bytes, source, BlockReads::new(1 << 20));
        (table.unwrap(), reads)
    }

    fn values(rows: &RecordBatch) -> Vec<u8> {
        let column = rows.column(0).as_any().downcast_ref::<FixedSizeBinaryArray>().unwrap();
        column.iter().flatten().flatten().copied().collect()
    }

    #[tokio::test]
    async fn rows_are_sectors_and_the_last_one_is_filled_up() {
        let bytes = (130 << 12) + 5;
        let (file, reads) = table(bytes);
        assert_eq!(file.fragments()[0].physical_rows, 131);
        let rows = [130, 0, 127, 128, 0];
        let addrs = rows.map(|row| RowAddr::new(0, row));
        let taken = file.take(&addrs, &[]).await.unwrap();
        let expected = rows.iter().flat_map(|&row| {
            let start = u64::from(row) << 12;
            (start..start + 4096).map(move |at| if at < bytes { (at % 251) as u8 } else { 0 })
        });
        assert!(values(&taken).into_iter().eq(expected));
        assert_eq!(reads.load(Ordering::Relaxed), 1, "one read for neighbouring blocks");
        let chunk = file.read_chunk(0, 0..128, &[], u64::MAX).await.unwrap();
        assert_eq!(chunk[0].num_rows(), 128);
        assert_eq!(reads.load(Ordering::Relaxed), 1, "the block was read just now");
        let behind = file.take(&[RowAddr::new(0, 131)], &[]).await.unwrap_err();
        assert_eq!(behind.reason, Reason::RowNotFound);
        let fragment = file.take(&[RowAddr::new(1, 0)], &[]).await.unwrap_err();
        assert_eq!(fragment.reason, Reason::RowNotFound);
        assert_eq!(table(0).0.fragments()[0].physical_rows, 0);
    }

    #[test]
    fn only_files_that_never_change_have_a_path() {
        for good in [
            "_indices/u/index.idx",
            "_deletions/0-1-2.arrow",
            "_bireme/keys/a",
            "_indices/a",
            "tree/exp/_indices/u/index.idx",
            "tree/team/exp/_deletions/0-1-2.arrow",
        ] {
            assert_eq!(FilePath::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "_indices",
            "_indices/",
            "_indices//a",
            "_indices/../_versions/1.manifest",
            "_indices/./a",
            "/_indices/a",
            "../t/_indices/a",
            "_versions/1.manifest",
            "_transactions/1.txn",
            "data/a.lance",
            "tree/_indices/u/index.idx",
            "tree/exp/data/a.lance",
            "tree/exp/_indices",
            "tree/exp/_versions/1.manifest",
            "tree/../_indices/a",
            "tree//_indices/a",
            "tree/main/_indices/a",
            "_indices/a\n",
            "_indices\\a/b",
            &format!("_indices/{}", "a".repeat(1024)),
        ] {
            assert_eq!(FilePath::parse(bad), None, "{bad:?}");
        }
    }
}

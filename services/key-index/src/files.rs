//! The data files that a run covers, and the rows that its ranks stand for.

use address::RowAddr;

use crate::KeyIndexError;

/// A data file with the key column of one fragment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataFile {
    /// The file's path within the table.
    pub path: String,
    /// The fragment's id.
    pub fragment: u32,
    /// The fragment's physical rows, deleted ones included.
    pub rows: u32,
}

impl DataFile {
    /// Returns the memory that the file takes in a run's list of files.
    pub fn ram_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<u32>() + self.path.len()
    }
}

/// The data files of a run. A rank is a row's number among the rows of all files, in the order of the files.
#[derive(Clone, Debug)]
pub struct Files {
    list: Box<[DataFile]>,
    /// The rank of each file's first row.
    starts: Box<[u32]>,
    rows: u32,
}

impl Files {
    /// Numbers the rows of `list`.
    ///
    /// # Errors
    /// [`KeyIndexError::TooManyRows`] or [`KeyIndexError::PathTooLong`].
    pub fn new(list: Vec<DataFile>) -> Result<Self, KeyIndexError> {
        let total: u64 = list.iter().map(|file| u64::from(file.rows)).sum();
        let rows = u32::try_from(total).map_err(|_| KeyIndexError::TooManyRows { rows: total })?;
        if let Some(file) = list.iter().find(|file| file.path.len() > usize::from(u16::MAX)) {
            return Err(KeyIndexError::PathTooLong { bytes: file.path.len() });
        }
        let mut next = 0;
        let starts = list.iter().map(|file| {
            let start = next;
            next += file.rows;
            start
        });
        Ok(Self { starts: starts.collect(), list: list.into(), rows })
    }

    /// Returns the files.
    pub fn list(&self) -> &[DataFile] {
        &self.list
    }

    /// Returns the number of rows of all files.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the rank of a file's first row.
    pub fn start_of(&self, file: usize) -> u32 {
        self.starts[file]
    }

    /// Returns the index of the file that contains a rank's row. The rank must be below [`Files::rows`].
    #[inline]
    pub fn file_of(&self, rank: u32) -> usize {
        debug_assert!(rank < self.rows);
        self.starts.partition_point(|&start| start <= rank) - 1
    }

    /// Returns the address of a rank's row in a file.
    #[inline]
    pub fn row(&self, file: usize, rank: u32) -> RowAddr {
        RowAddr::new(self.list[file].fragment, rank - self.starts[file])
    }

    /// Returns the memory that the list takes.
    pub fn ram_bytes(&self) -> usize {
        self.list.iter().map(DataFile::ram_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(fragment: u32, rows: u32) -> DataFile {
        DataFile { path: format!("data/{fragment}.lance"), fragment, rows }
    }

    #[test]
    fn ranks_lead_to_rows() {
        let files = Files::new(vec![file(7, 10), file(3, 0), file(9, 5)]).unwrap();
        assert_eq!((files.rows(), files.start_of(2)), (15, 10));
        assert_eq!([0, 9, 10, 14].map(|rank| files.file_of(rank)), [0, 0, 2, 2]);
        assert_eq!(files.row(2, 14), RowAddr::new(9, 4));
    }

    #[test]
    fn limits_are_kept() {
        let too_many = Files::new(vec![file(0, u32::MAX), file(1, 1)]).unwrap_err();
        assert_eq!(too_many, KeyIndexError::TooManyRows { rows: 1 << 32 });
        let path = "x".repeat(65_536);
        let too_long = Files::new(vec![DataFile { path, fragment: 0, rows: 0 }]).unwrap_err();
        assert_eq!(too_long, KeyIndexError::PathTooLong { bytes: 65_536 });
    }
}

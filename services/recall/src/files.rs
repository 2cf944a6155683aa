//! The files of a table's curves: `TABLE/_bireme/recall/<32 random hexadecimal digits>.curve`.
//!
//! A file is one curve, written once under a name that is used once.

use lake::{LakeError, SideFiles, Table};
use thiserror::Error;

use crate::curve::Curve;
use crate::file::{CURVE_BYTES_MAX, CurveError, decode};

/// The folder of curves in the folder of Bireme's own files.
const KIND: &str = "recall";

/// The end of the name of a curve's file.
const EXTENSION: &str = ".curve";

/// The maximum number of files that are listed. A column has at most [`CURVES_KEPT`], so this is enough for 25 columns.
/// The bound protects against a folder that somebody has filled with files.
const FILES_MAX: usize = 100;

/// The number of curves of a column that are kept: the newest, and those of earlier builds of the column's index, which
/// nodes that serve earlier versions use.
const CURVES_KEPT: usize = 4;

/// The files of a table's curves.
pub struct CurveFiles {
    files: SideFiles,
}

/// The reason why a file is not used.
#[derive(Debug, Error)]
pub enum CurveFileError {
    /// The store does not answer, or refuses.
    #[error(transparent)]
    Table(#[from] LakeError),
    /// The file is damaged, or is not a curve of a known format.
    #[error(transparent)]
    Refused(#[from] CurveError),
}

impl CurveFiles {
    /// Returns the files of a table.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn of(table: &Table) -> Result<Self, LakeError> {
        Ok(Self { files: table.side_files(KIND, EXTENSION).await? })
    }

    /// Returns the path of a file, as messages name it.
    pub fn path_of(&self, name: &str) -> String {
        self.files.path_of(name)
    }

    /// Lists the names of the files.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn list(&self) -> Result<Vec<String>, LakeError> {
        let mut names: Vec<_> =
            self.files.list(FILES_MAX).await?.into_iter().map(|file| file.name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Reads a curve. `None` if the file does not exist any more.
    ///
    /// # Errors
    /// Errors of the store, and [`CurveFileError::Refused`].
    pub async fn read(&self, name: &str) -> Result<Option<Curve>, CurveFileError> {
        let Some(mut reader) = self.files.read(name).await? else { return Ok(None) };
        let size = usize::try_from(reader.bytes).unwrap_or(usize::MAX);
        if size > CURVE_BYTES_MAX {
            return Err(CurveError::Size { bytes: size }.into());
        }
        let mut bytes = Vec::with_capacity(size);
        while let Some(piece) = reader.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(decode(&bytes)?))
    }

    /// Writes a curve, and returns the name of its file. Then deletes the curves that the new one replaces: those of
    /// the same build of the index, and all but the newest four of the column. A file that can't be read as a curve is
    /// kept.
    ///
    /// # Errors
    /// Errors of the store, and [`CurveFileError::Refused`] if `bytes` are not a curve.
    pub async fn write(&self, bytes: &[u8]) -> Result<String, CurveFileError> {
        let new = decode(bytes)?;
        let name = self.files.create(std::iter::once(bytes.to_vec())).await?;
        let mut others = Vec::new();
        for other in self.list().await?.into_iter().filter(|other| *other != name) {
            match self.read(&other).await {
                Ok(Some(curve)) if curve.column == new.column => others.push((other, curve)),
                Ok(_) | Err(CurveFileError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        others.sort_by_key(|(_, curve)| std::cmp::Reverse((curve.measured_at, curve.version)));
        let mut kept = 1;
        for (other, curve) in others {
            if curve.index == new.index || kept >= CURVES_KEPT {
                self.files.delete(&other).await?;
            } else {
                kept += 1;
            }
        }
        Ok(name)
    }
}

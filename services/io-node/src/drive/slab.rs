//! Checks that a drive is empty or holds a slab that Bireme wrote, and claims it for this node.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use address::SECTOR_BYTES;
use ring::{AlignedBuf, SlabFile};
use uuid::Uuid;

use super::recover::{FoundJournal, recover_all};
use super::superblock::Superblock;
use crate::error::{NodeError, NotOurs};
use crate::extent::HEAD_SECTORS;

/// The errno of a sector that can't be read.
const EIO: i32 = 5;

/// Returns the superblock of a drive that holds a slab. Returns `None` if the drive is empty or does not exist, or if
/// the path is no drive or can't be opened (opening it as a slab then reports the reason). With `overwrite`, also
/// returns `None` if the drive holds anything else. Call it before the drive is opened as a slab, because opening gives
/// a file its full length.
///
/// # Errors
/// [`NodeError::NotOurs`] if the drive holds anything else, or its beginning can't be read, unless `overwrite` allows
/// that.
pub fn owner(path: &Path, overwrite: bool) -> Result<Option<Superblock>, NodeError> {
    let mut head = match head(path) {
        Ok(head) => head,
        // A drive whose beginning can't be read may hold foreign data. Other errors are reported when the drive is
        // opened.
        Err(error) if error.raw_os_error() == Some(EIO) && !overwrite => {
            return Err(NodeError::NotOurs { path: path.into(), why: NotOurs::Unreadable });
        }
        Err(_) => return Ok(None),
    };
    if head.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    head.resize(head.len().max(SECTOR_BYTES), 0);
    match Superblock::from_sector(&head.as_chunks().0[0]) {
        Ok(found) => Ok(Some(found)),
        Err(_) if overwrite => Ok(None),
        Err(why) => Err(NodeError::NotOurs { path: path.into(), why }),
    }
}

/// Reads the first [`HEAD_SECTORS`] of a file or block device, or as many bytes as it has.
#[expect(clippy::disallowed_methods, reason = "drives are read before the node serves")]
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    let mut head = Vec::new();
    // Files of other types can't be drives, and reading one may never end.
    if kind.is_file() || kind.is_block_device() {
        File::open(path)?.take(HEAD_SECTORS * SECTOR_BYTES as u64).read_to_end(&mut head)?;
    }
    Ok(head)
}

/// A slab that this node is going to use. The slab itself is still unchanged.
pub struct Claim {
    /// The superblock that the slab will have.
    pub superblock: Superblock,
    /// The valid superblock that the slab has now, if any.
    found: Option<Superblock>,
}

impl Claim {
    /// Claims a slab. If it was divided into segments of this length already, it keeps its uuid and contents; otherwise
    /// it begins empty.
    pub fn new(slab: &SlabFile, found: Option<Superblock>, segment_sectors: u64) -> Self {
        let sectors = slab.len() / SECTOR_BYTES as u64;
        let kept = found.filter(|found| found.segment_sectors == segment_sectors);
        let uuid = kept.map_or_else(Uuid::new_v4, |found| found.uuid);
        Self { superblock: Superblock { uuid, segment_sectors, sectors }, found }
    }

    /// Writes the superblock to the slab, unless the slab has it already.
    fn mark(&self, slab: &SlabFile) -> Result<(), NodeError> {
        let Superblock { uuid, segment_sectors, .. } = self.superblock;
        let path = slab.path().display();
        if let Some(found) = self.found.filter(|found| found.segment_sectors != segment_sectors) {
            let [was, is] =
                [found.segment_sectors, segment_sectors].map(|it| it * SECTOR_BYTES as u64);
            tracing::warn!(%path, was, is, "the slab is divided anew, and begins empty");
        }
        if self.found != Some(self.superblock) {
            let mut head = AlignedBuf::for_sectors(HEAD_SECTORS as usize);
            head[..SECTOR_BYTES].copy_from_slice(&self.superblock.to_sector());
            slab.write_head(&head)?;
        }
        tracing::info!(%path, %uuid, "the slab belongs to this node");
        Ok(())
    }
}

/// Writes the slabs' superblocks, and reads the slabs' journals. Call it only after every setting is checked and every
/// port is bound: a slab that is divided anew loses its contents, even if the node then fails to start.
///
/// # Errors
/// [`NodeError::Slab`] if a slab can't be written.
pub fn claim_and_recover(
    slabs: &[SlabFile],
    claims: &[Claim],
) -> Result<Vec<Vec<FoundJournal>>, NodeError> {
    slabs.iter().zip(claims).try_for_each(|(slab, claim)| claim.mark(slab))?;
    let superblocks: Vec<_> = claims.iter().map(|claim| claim.superblock).collect();
    Ok(recover_all(slabs, &superblocks))
}

#[cfg(test)]
mod tests {
    use ring::{Direct, OpenOptions};

    use super::*;

    /// Claims and recovers a slab, as a node does.
    fn claim_slab(path: &Path, segment: u64, overwrite: bool) -> Result<Superblock, NodeError> {
        let found = owner(path, overwrite)?;
        let options =
            OpenOptions { size: Some(4 << 20), direct: Direct::Prefer, ..Default::default() };
        let slab = SlabFile::open(path, options)?;
        let claim = Claim::new(&slab, found, segment);
        assert_eq!(owner(path, overwrite)?, found, "a claim alone changes nothing");
        claim_and_recover(&[slab], std::slice::from_ref(&claim))?;
        Ok(claim.superblock)
    }

    #[test]
    fn an_empty_slab_is_taken_and_recognised_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slab");
        let first = claim_slab(&path, 64, false).unwrap();
        assert_eq!((first.segment_sectors, first.sectors), (64, 1024));
        assert_eq!(claim_slab(&path, 64, false).unwrap(), first);
        // With another segment length the slab begins empty and gets a new uuid, so that old journals do not count.
        let other = claim_slab(&path, 128, false).unwrap();
        assert_eq!(other.segment_sectors, 128);
        assert_ne!(other.uuid, first.uuid);
        std::fs::write(&path, []).unwrap();
        assert_ne!(claim_slab(&path, 64, false).unwrap().uuid, first.uuid);
    }

    #[test]
    fn foreign_bytes_are_kept_unless_overwriting_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        // A short text; the places of ext4's, LVM's and btrfs's signatures; the last byte that is checked.
        for (len, at) in
            [(20, 0), (4 << 20, 1080), (4 << 20, 536), (2 << 20, 65_600), (1 << 20, (1 << 20) - 1)]
        {
            let path = folder.path().join(format!("{at}"));
            let mut theirs = vec![0; len];
            theirs[at] = 0x53;
            std::fs::write(&path, &theirs).unwrap();
            let error = claim_slab(&path, 64, false).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            assert!(error.contains("did not write") && error.contains("--overwrite"), "{error}");
            assert!(std::fs::read(&path).unwrap() == theirs, "{at}");
            claim_slab(&path, 64, true).unwrap();
            claim_slab(&path, 64, false).unwrap();
        }
    }

    #[test]
    fn a_damaged_superblock_is_not_overwritten_either() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slab");
        claim_slab(&path, 64, false).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[40] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = claim_slab(&path, 64, false).unwrap_err().to_string();
        assert!(error.contains("superblock is damaged"), "{error}");
        assert!(std::fs::read(&path).unwrap() == bytes);
    }

    #[test]
    fn other_files_are_refused_when_they_are_opened() {
        assert_eq!(owner(Path::new("/dev/zero"), false).unwrap(), None);
        assert_eq!(owner(Path::new("/nowhere/slab"), false).unwrap(), None);
    }
}

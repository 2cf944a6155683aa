//! The rows of a version that an index covers, and by which of its segments.

use std::ops::RangeInclusive;

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_core::Result;
use lance_index::frag_reuse::FRAG_REUSE_INDEX_NAME;
use lance_table::format::{Fragment, IndexMetadata};

use super::plan_reason::PlanReason;

/// The rows of a version that an index covers.
pub(crate) struct Coverage {
    /// The index's segments that cover fragments of the version; each fragment belongs to at most one of them. A
    /// segment may also hold rows that the version does not have.
    pub segments: Vec<IndexMetadata>,
    /// The ids of the version's fragments that no segment covers.
    pub uncovered: Vec<u32>,
}

impl Coverage {
    /// Loads the coverage of the index `name`. Returns a reason instead if an address or a stable row id in a segment
    /// may stand for another row of the version or for other values, or if the segments' coverage is not known.
    pub async fn load(
        dataset: &Dataset,
        name: &str,
    ) -> Result<std::result::Result<Self, PlanReason>> {
        if let Err(reason) = check_fragments(dataset).await? {
            return Ok(Err(reason));
        }
        let all = dataset.load_indices().await?;
        let segments = all.iter().filter(|index| index.name == name).cloned().collect();
        Ok(Self::of(segments, dataset.fragments()))
    }

    fn of(
        mut segments: Vec<IndexMetadata>,
        fragments: &[Fragment],
    ) -> std::result::Result<Self, PlanReason> {
        if segments.iter().any(|segment| segment.fragment_bitmap.is_none()) {
            return Err(PlanReason::CoverageUnknown);
        }
        segments.retain(|segment| fragments.iter().any(|fragment| covers(segment, fragment)));
        let mut uncovered = Vec::new();
        for fragment in fragments {
            match segments.iter().filter(|segment| covers(segment, fragment)).count() {
                0 => uncovered.push(fragment.id as u32),
                1 => {}
                _ => return Err(PlanReason::CoverageUnknown),
            }
        }
        Ok(Self { segments, uncovered })
    }
}

/// Returns the reason if one of `segments` has a format version outside of `known`, and logs a warning. `table` and
/// `version` are named in the warning.
pub(crate) fn check_formats(
    segments: &[IndexMetadata],
    known: &RangeInclusive<i32>,
    table: &str,
    version: u64,
) -> std::result::Result<(), PlanReason> {
    let Some(segment) = unknown(segments, known) else { return Ok(()) };
    let reason = PlanReason::FormatUnknown(segment.index_version);
    tracing::warn!(table, version, index = segment.name, "searches are planned: {reason}");
    Err(reason)
}

fn unknown<'a>(
    segments: &'a [IndexMetadata],
    known: &RangeInclusive<i32>,
) -> Option<&'a IndexMetadata> {
    segments.iter().find(|segment| !known.contains(&segment.index_version))
}

/// Returns a reason if an address in an index may stand for other values than the indexed ones: fragments are overlaid
/// with newer values, or were compacted before their indexes were updated.
pub(crate) async fn check_fragments(
    dataset: &Dataset,
) -> Result<std::result::Result<(), PlanReason>> {
    if dataset.fragments().iter().any(|fragment| !fragment.overlays.is_empty()) {
        return Ok(Err(PlanReason::Overlaid));
    }
    let indexes = dataset.load_indices().await?;
    let is_remapped = indexes.iter().any(|index| index.name == FRAG_REUSE_INDEX_NAME);
    Ok(if is_remapped { Err(PlanReason::Remapped) } else { Ok(()) })
}

// A table's fragment ids fit 32 bits, which is checked when it is opened.
fn covers(segment: &IndexMetadata, fragment: &Fragment) -> bool {
    segment.fragment_bitmap.as_ref().is_some_and(|it| it.contains(fragment.id as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(format: i32, fragments: Option<&[u32]>) -> IndexMetadata {
        IndexMetadata {
            uuid: uuid::Uuid::from_u128(7),
            fields: vec![3],
            covering_fields: vec![],
            name: "vectors".into(),
            dataset_version: 1,
            fragment_bitmap: fragments.map(|ids| ids.iter().copied().collect()),
            index_details: None,
            index_version: format,
            created_at: None,
            base_id: None,
            files: None,
        }
    }

    fn fragments(ids: &[u64]) -> Vec<Fragment> {
        ids.iter().copied().map(Fragment::new).collect()
    }

    #[test]
    fn each_fragment_belongs_to_one_segment_or_to_none() {
        let of = |segments: &[Option<&[u32]>]| {
            let segments = segments.iter().map(|fragments| segment(1, *fragments)).collect();
            let coverage = Coverage::of(segments, &fragments(&[1, 2, 5]))?;
            Ok::<_, PlanReason>((coverage.segments.len(), coverage.uncovered))
        };
        assert_eq!(of(&[Some(&[1, 2, 5])]), Ok((1, vec![])));
        assert_eq!(of(&[Some(&[0, 1]), Some(&[2])]), Ok((2, vec![5])));
        assert_eq!(of(&[Some(&[0]), Some(&[3, 5])]), Ok((1, vec![1, 2])));
        assert_eq!(of(&[]), Ok((0, vec![1, 2, 5])));
        assert_eq!(of(&[Some(&[1, 2]), Some(&[2, 5])]), Err(PlanReason::CoverageUnknown));
        assert_eq!(of(&[Some(&[1, 2, 5]), None]), Err(PlanReason::CoverageUnknown));
    }

    #[test]
    fn a_format_that_was_never_read_is_unknown() {
        let segments = [1, 2, 3].map(|format| segment(format, Some(&[1])));
        assert!(unknown(&segments, &(0..=3)).is_none());
        assert_eq!(unknown(&segments, &(0..=2)).unwrap().index_version, 3);
    }
}

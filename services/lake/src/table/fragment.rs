//! The metadata of a fragment.

use lance::dataset::fragment::FileFragment;
use lance_core::datatypes::Field;
use lance_table::format::{DataFile, Fragment};
use tables::FragmentInfo;

use crate::table::base_paths::data_folder;

/// Loads the metadata of a fragment. The counts are in the manifest; only those that an old writer omitted are read
/// from the store.
pub(crate) async fn load(fragment: &FileFragment) -> lance::Result<FragmentInfo> {
    let metadata = fragment.metadata();
    let first_file_bytes = first_file_bytes(fragment).await;
    let mut later_bytes = metadata.files.iter().skip(1).map(|file| file.file_size_bytes.get());
    // A damaged manifest may have any sizes.
    let data_bytes = first_file_bytes.and_then(|first| {
        later_bytes.try_fold(first, |sum, bytes| Some(sum.saturating_add(bytes?.get())))
    });
    let info = FragmentInfo {
        id: u32_of(metadata.id, "fragment id")?,
        physical_rows: u32_of(fragment.physical_rows().await? as u64, "row count")?,
        deleted_rows: u32_of(fragment.count_deletions().await? as u64, "deletion count")?,
        first_file_bytes,
        data_bytes,
    };
    // The number of live rows is the difference, which must not wrap.
    if info.deleted_rows > info.physical_rows {
        let FragmentInfo { id, physical_rows, deleted_rows, .. } = info;
        let why = format!("fragment {id} has {physical_rows} rows, and {deleted_rows} are deleted");
        let manifest = fragment.dataset().manifest_location().path.clone();
        return Err(lance::Error::corrupt_file(manifest, why));
    }
    Ok(info)
}

fn u32_of(number: u64, what: &str) -> lance::Result<u32> {
    u32::try_from(number)
        .map_err(|_| lance::Error::not_supported(format!("{what} {number} is over 2^32")))
}

/// Returns the size of the first data file. The result must not change while the table is open, but Lance fills in
/// unknown sizes of a cached manifest as it reads the files. So an unknown size is requested from the store here, once,
/// when the table is opened.
async fn first_file_bytes(fragment: &FileFragment) -> Option<u64> {
    let file = fragment.metadata().files.first()?;
    if let Some(bytes) = file.file_size_bytes.get() {
        return Some(bytes.get());
    }
    let dataset = fragment.dataset();
    let store = dataset.object_store(file.base_id).await.ok()?;
    let folder = data_folder(dataset, file.base_id)?;
    store.size(&folder.join(file.path.as_str())).await.ok()
}

/// Names the files of `column` (a top-level field with all that is nested in it) in `fragment`: for each of the
/// column's fields `id:type:PLACE`, with the place of the field's data file, then each overlay that replaces some of
/// the column's values. If the fragment has no data for a field, `PLACE` is `absent from` and the place of the
/// fragment's first data file, or its number of rows if it has no data file. Equal identities mean equal data, because
/// data files never change and their names are never reused. `place_of` names the place of a file.
pub(crate) fn file_identity(
    fragment: &Fragment,
    column: &Field,
    place_of: impl Fn(&DataFile) -> String,
) -> String {
    let mut fields = Vec::new();
    collect_fields(column, &mut fields);
    let mut parts = Vec::with_capacity(fields.len());
    for field in &fields {
        let file = fragment.files.iter().find(|file| file.fields.contains(&field.id));
        let place = file.map_or_else(|| absent_from(fragment, &place_of), &place_of);
        parts.push(format!("{}:{}:{place}", field.id, field.logical_type));
    }
    for overlay in &fragment.overlays {
        if fields.iter().any(|field| overlay.data_file.fields.contains(&field.id)) {
            parts.push(format!(
                "overlay:{}:{}",
                overlay.committed_version,
                place_of(&overlay.data_file)
            ));
        }
    }
    parts.join(",")
}

/// Names the place of a column without data. Fragments of two branches may have the same id and different numbers of
/// rows, and so of nulls. The first data file tells them apart.
fn absent_from(fragment: &Fragment, place_of: impl Fn(&DataFile) -> String) -> String {
    match fragment.files.first() {
        Some(first) => format!("absent from {}", place_of(first)),
        None => format!("absent from {} rows", fragment.physical_rows.unwrap_or_default()),
    }
}

/// Adds what identifies the rows of `fragment` and their values to `hash`: its number, and its data, overlay and deletion
/// files. Lance draws random names for these files, so two branches that make a fragment of the same number differ.
pub(crate) fn hash_contents(hash: &mut blake3::Hasher, fragment: &Fragment) {
    hash_part(hash, &fragment.id.to_le_bytes());
    fragment.files.iter().for_each(|file| hash_part(hash, file.path.as_bytes()));
    fragment.overlays.iter().for_each(|file| hash_part(hash, file.data_file.path.as_bytes()));
    if let Some(deletions) = &fragment.deletion_file {
        hash_part(hash, &deletions.read_version.to_le_bytes());
        hash_part(hash, &deletions.id.to_le_bytes());
    }
}

/// Adds `bytes` to `hash`, and their number, so that different lists of parts are never the same bytes.
pub(crate) fn hash_part(hash: &mut blake3::Hasher, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

fn collect_fields<'a>(field: &'a Field, into: &mut Vec<&'a Field>) {
    into.push(field);
    for child in &field.children {
        collect_fields(child, into);
    }
}

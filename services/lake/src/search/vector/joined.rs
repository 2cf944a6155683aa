//! Small segments of a vector index that are searched as one.
//!
//! Each update of an index for appended rows makes a further segment. Lance prepares the search of each partition for 5
//! to 7 µs, the time in which it compares 200 rows. So a search of one large segment and nine small ones, whose
//! partitions had ten rows, cost 2.3 times as much as one of the large segment alone. Small segments that have the same
//! centroids, and codes of the same form, are therefore joined: the codes of a partition's rows in all of them become
//! one list. A list is made when a search needs it, and then kept in the cache of indexes.
//!
//! Of IVF_RQ's codes, Lance compares blocks of 32 by distances of 8 bits, and the other rows of a partition exactly. In
//! a partition with fewer rows than a block, all are compared exactly. A joined list fills blocks, and these are compared
//! by distances of 16 bits (Lance's accurate mode). They differ from those of the exact comparison by less than a
//! ten-thousandth.

use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, RecordBatch, UInt32Array,
};
use arrow::compute::kernels::numeric::sub;
use arrow::compute::{concat_batches, filter_record_batch, take};
use arrow::datatypes::{FieldRef, Fields, Schema, UInt8Type};
use futures::TryStreamExt;
use futures::future::try_join_all;
use lance::index::vector::ivf::v2::IVFIndex;
use lance_arrow::{FixedSizeListArrayExt, RecordBatchExt};
use lance_core::cache::{CacheKey, LanceCache};
use lance_core::deepsize::{Context, DeepSizeOf};
use lance_core::{Error, Result};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::prefilter::{NoFilter, PreFilter};
use lance_index::vector::bq::builder::RabitQuantizer;
use lance_index::vector::bq::storage::{
    RABIT_CODE_COLUMN, RabitQuantizationMetadata, RabitQuantizationStorage, RabitQueryEstimator,
    unpack_codes,
};
use lance_index::vector::flat::index::{FlatIndex, FlatQueryParams};
use lance_index::vector::graph::OrderedNode;
use lance_index::vector::pq::ProductQuantizer;
use lance_index::vector::pq::storage::{ProductQuantizationStorage, transpose};
use lance_index::vector::quantizer::{Quantization, Quantizer, QuantizerStorage};
use lance_index::vector::storage::{
    QueryResidual, QueryScratch, RabitRawQueryContext, VectorStore,
};
use lance_index::vector::v3::subindex::IvfSubIndex;
use lance_index::vector::{ApproxMode, PQ_CODE_COLUMN, Query, VectorIndex};
use tokio::task::yield_now;

use super::segment::{Neighbor, Ranking, Segment};
use crate::search::hit::row_ids;
use crate::search::selection::{Selected, Selection};

/// The maximum number of rows that the partitions of a small segment have on average. Larger ones would be copied into
/// lists, and again after each deletion, for a smaller share of their search's cost.
const ROWS_MAX: u64 = 100;

/// The number of partitions whose lists a search holds at a time. Between them, other requests get their turn.
const LISTS_AT_ONCE: usize = 32;

/// Small segments of an index that are searched as one.
pub(crate) struct Joined {
    segments: Vec<Segment>,
    codes: Codes,
    cache: LanceCache,
    /// The key of the lists in the cache, without the number of the partition. Versions of the table that have the same
    /// live rows in these segments share the lists.
    key: String,
}

/// The form of an index's codes.
enum Codes {
    Product { codebook: FixedSizeListArray, bits: u32, sub_vectors: usize, dimension: usize },
    Rabit(RabitQuantizer),
}

/// The rows that the segments have in one partition.
enum List {
    Product {
        storage: Box<ProductQuantizationStorage>,
        /// The partition's centroid, if codes are of the differences from it.
        centroid: Option<ArrayRef>,
    },
    Rabit {
        storage: Box<RabitQuantizationStorage>,
        /// The partition's centroid, rotated as vectors are before they are encoded.
        centroid: Vec<f32>,
    },
}

impl DeepSizeOf for List {
    // The codebook and the matrix of a rotation are the index's.
    fn deep_size_of_children(&self, _: &mut Context) -> usize {
        match self {
            Self::Product { storage, .. } => {
                size_of_val(storage.as_ref()) + storage.batch().get_array_memory_size()
            }
            Self::Rabit { storage, centroid } => {
                let batches = storage.to_batches().into_iter().flatten();
                let codes: usize = batches.map(|batch| batch.get_array_memory_size()).sum();
                let signs = storage.metadata().fast_rotation_signs.as_ref().map_or(0, Vec::len);
                size_of_val(storage.as_ref()) + codes + signs + size_of_val(centroid.as_slice())
            }
        }
    }
}

/// The key of a [`List`] in the cache of indexes: the identity of the joined segments, and the partition.
struct Key(String);

impl CacheKey for Key {
    type ValueType = List;

    fn key(&self) -> Cow<'_, str> {
        (&self.0).into()
    }

    fn type_name() -> &'static str {
        "BiremeJoinedPartition"
    }
}

/// Joins those of `segments` that are small and alike; their lists are kept in `cache`. Returns the other segments too.
pub(crate) fn join_small(
    segments: Vec<Segment>,
    cache: &LanceCache,
) -> (Vec<Segment>, Vec<Joined>) {
    let (mut others, mut alike): (Vec<Segment>, Vec<(Codes, Vec<Segment>)>) = Default::default();
    for segment in segments {
        let codes = if is_small(&segment) { Codes::of(&segment) } else { None };
        let Some(codes) = codes else {
            others.push(segment);
            continue;
        };
        let group = alike
            .iter_mut()
            .find(|(other, group)| other.is_like(&codes) && group[0].ranks_like(&segment));
        match group {
            Some((_, group)) => group.push(segment),
            None => alike.push((codes, vec![segment])),
        }
    }
    let mut joined = Vec::new();
    for (codes, segments) in alike {
        match segments.len() {
            1 => others.extend(segments),
            _ => joined.push(Joined::new(segments, codes, cache.clone())),
        }
    }
    (others, joined)
}

fn is_small(segment: &Segment) -> bool {
    segment.index.num_rows() <= ROWS_MAX * segment.index.total_partitions() as u64
}

impl Joined {
    fn new(segments: Vec<Segment>, codes: Codes, cache: LanceCache) -> Self {
        let mut identity = blake3::Hasher::new();
        segments.iter().for_each(|segment| _ = identity.update(segment.identity.as_bytes()));
        Self { segments, codes, cache, key: identity.finalize().to_string() }
    }

    /// The segments; at least two.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the nearest selected rows in the ranked partitions at the positions `ranks`: at most `query.k` rows, in
    /// no particular order.
    pub async fn search(
        &self,
        mut query: Query,
        ranking: Ranking,
        ranks: Range<usize>,
        selection: &Selection,
    ) -> Result<Vec<Neighbor>> {
        let has_rows = |id| self.segments.iter().any(|segment| segment.partition_rows(id) > 0);
        let ranking = ranking.with_rows(&ranks, has_rows);
        let filter: Arc<dyn PreFilter> = match &selection.mask {
            Some(mask) => Arc::new(Selected(Arc::clone(mask))),
            None => Arc::new(NoFilter),
        };
        let rotated = self.codes.rotate(&query)?;
        let (mut nearest, mut scratch) = (BinaryHeap::new(), QueryScratch::new());
        query.approx_mode = ApproxMode::Accurate;
        for (at, (ids, distances)) in ranking.chunks(LISTS_AT_ONCE).enumerate() {
            if at > 0 {
                yield_now().await;
            }
            let lists = self.lists(&query, ids).await?;
            for (list, distance) in lists.iter().zip(distances) {
                query.dist_q_c = *distance;
                let (filter, nearest, scratch) = (Arc::clone(&filter), &mut nearest, &mut scratch);
                match list.as_ref() {
                    List::Product { storage, centroid } => {
                        let vector = match centroid {
                            Some(centroid) => sub(&query.key, centroid)?,
                            None => Arc::clone(&query.key),
                        };
                        let rows = storage.as_ref();
                        compare(&query, vector, None, rows, filter, nearest, scratch)?;
                    }
                    List::Rabit { storage, centroid } => {
                        let residual = QueryResidual::RabitRawQuery {
                            rotated_centroid: Some(centroid),
                            query: rotated.as_ref(),
                        };
                        let (rows, vector) = (storage.as_ref(), Arc::clone(&query.key));
                        compare(&query, vector, Some(residual), rows, filter, nearest, scratch)?;
                    }
                }
            }
        }
        let nearest = nearest.into_iter();
        Ok(nearest.map(|it| Neighbor { distance: it.dist.0, id: it.id }).collect())
    }

    /// Returns the lists of `partitions`. Those that the cache lacks are made.
    async fn lists(&self, query: &Query, partitions: &[u32]) -> Result<Vec<Arc<List>>> {
        let key = |id: u32| Key(format!("{}/{id}", self.key));
        let (mut lists, mut missing) = (Vec::with_capacity(partitions.len()), Vec::new());
        for (at, &id) in partitions.iter().enumerate() {
            let list = self.cache.get_with_key(&key(id)).await;
            if list.is_none() {
                missing.push((at, id));
            }
            lists.push(list);
        }
        if !missing.is_empty() {
            // So that the next lists, after a deletion, are made from Lance's cache.
            let ids: Vec<u32> = missing.iter().map(|(_, id)| *id).collect();
            try_join_all(self.segments.iter().map(|segment| segment.read_ahead(query, &ids)))
                .await?;
            for (at, id) in missing {
                // To make a list takes longer than to search one.
                yield_now().await;
                let list = self.cache.get_or_insert_with_key(key(id), || self.list(id)).await?;
                lists[at] = Some(list);
            }
        }
        Ok(lists.into_iter().flatten().collect())
    }

    /// Makes the list of the live rows in the partition `id`.
    async fn list(&self, id: u32) -> Result<List> {
        let segments = self.segments.iter().filter(|segment| segment.partition_rows(id) > 0);
        let batches = try_join_all(segments.map(|segment| self.codes.read(segment, id))).await?;
        let batches = in_common(&batches.concat())?;
        let schema = batches.first().map(RecordBatch::schema);
        let schema =
            schema.ok_or_else(|| Error::internal(format!("partition {id} has no rows")))?;
        self.codes.list(self.segments[0].index.as_ref(), id, concat_batches(&schema, &batches)?)
    }
}

impl Codes {
    /// Returns the form of a segment's codes; `None` if its lists can't be joined with others.
    fn of(segment: &Segment) -> Option<Self> {
        let index = segment.index.as_any();
        // Not an index with a transformation of its own, nor one of graphs.
        let is_plain = index.is::<IVFIndex<FlatIndex, ProductQuantizer>>()
            || index.is::<IVFIndex<FlatIndex, RabitQuantizer>>();
        match is_plain.then(|| segment.index.quantizer())? {
            Quantizer::Product(codes) => Some(Self::Product {
                codebook: codes.codebook,
                bits: codes.num_bits,
                sub_vectors: codes.num_sub_vectors,
                dimension: codes.dimension,
            }),
            Quantizer::Rabit(codes) => {
                let estimator = codes.metadata_ref().query_estimator;
                (estimator == RabitQueryEstimator::RawQuery).then_some(Self::Rabit(codes))
            }
            _ => None,
        }
    }

    /// Returns whether equal codes of this form and of `other` mean equal vectors.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Product { codebook, bits, sub_vectors, dimension },
                Self::Product { codebook: other, bits: b, sub_vectors: s, dimension: d },
            ) => (bits, sub_vectors, dimension) == (b, s, d) && codebook == other,
            (Self::Rabit(a), Self::Rabit(b)) => {
                let (a, b) = (a.metadata_ref(), b.metadata_ref());
                (a.num_bits, a.rotated_dim(), a.rotation_type)
                    == (b.num_bits, b.rotated_dim(), b.rotation_type)
                    && a.fast_rotation_signs == b.fast_rotation_signs
                    && a.rotate_mat == b.rotate_mat
            }
            _ => false,
        }
    }

    /// Returns what the comparisons of all partitions have in common, if the codes have it.
    fn rotate(&self, query: &Query) -> Result<Option<RabitRawQueryContext>> {
        match self {
            Self::Product { .. } => Ok(None),
            Self::Rabit(codes) => {
                codes.metadata_ref().prepare_raw_query_context(query.key.as_ref()).map(Some)
            }
        }
    }

    /// Reads a segment's live rows in the partition `id`, with the code of each row in one piece.
    async fn read(&self, segment: &Segment, id: u32) -> Result<Vec<RecordBatch>> {
        let reader =
            segment.index.partition_reader(id as usize, true, &NoOpMetricsCollector).await?;
        let mut batches: Vec<RecordBatch> = reader.try_collect().await?;
        for batch in &mut batches {
            let column = match self {
                Self::Product { .. } => PQ_CODE_COLUMN,
                Self::Rabit(_) => RABIT_CODE_COLUMN,
            };
            let codes = batch[column].as_fixed_size_list();
            let codes = match self {
                Self::Product { .. } => {
                    let (values, bytes) =
                        (codes.values().as_primitive::<UInt8Type>(), codes.value_length());
                    let values = transpose(values, bytes as usize, codes.len());
                    FixedSizeListArray::try_new_from_values(values, bytes)?
                }
                Self::Rabit(_) => unpack_codes(codes),
            };
            *batch = batch.replace_column_by_name(column, Arc::new(codes))?;
            if let Some(live) = &segment.live.mask {
                let is_live = row_ids(batch)?.iter().map(|id| Some(live.selected(*id)));
                *batch = filter_record_batch(batch, &BooleanArray::from_iter(is_live))?;
            }
        }
        Ok(batches)
    }

    /// Makes the list of the rows `batch` of the partition `id` of `index`.
    fn list(&self, index: &dyn VectorIndex, id: u32, batch: RecordBatch) -> Result<List> {
        let metric = index.metric_type();
        let centroids = index.ivf_model().centroids_array();
        let centroids = centroids.ok_or_else(|| Error::internal("an index has no centroids"))?;
        match self {
            Self::Product { codebook, bits, sub_vectors, dimension } => {
                let (codebook, bits, sub_vectors) = (codebook.clone(), *bits, *sub_vectors);
                let storage = ProductQuantizationStorage::new(
                    codebook,
                    batch,
                    bits,
                    sub_vectors,
                    *dimension,
                    metric,
                    false,
                    None,
                )?;
                // A copy: a slice would keep the centroids of all partitions in memory.
                let centroid = || {
                    let one = take(centroids, &UInt32Array::from(vec![id]), None)?;
                    Ok::<_, Error>(one.as_fixed_size_list().value(0))
                };
                let centroid = ProductQuantizer::use_residual(metric).then(centroid).transpose()?;
                Ok(List::Product { storage: Box::new(storage), centroid })
            }
            Self::Rabit(codes) => {
                let metadata =
                    RabitQuantizationMetadata { packed: false, ..codes.metadata_ref().clone() };
                let storage =
                    RabitQuantizationStorage::try_from_batch(batch, &metadata, metric, None)?;
                let centroid = codes.rotate_fsl_to_f32(&centroids.slice(id as usize, 1))?;
                Ok(List::Rabit { storage: Box::new(storage), centroid })
            }
        }
    }
}

/// Compares `vector` with the rows of one list, and keeps the `query.k` nearest rows of all lists in `nearest`.
fn compare(
    query: &Query,
    vector: ArrayRef,
    residual: Option<QueryResidual<'_>>,
    rows: &impl VectorStore,
    filter: Arc<dyn PreFilter>,
    nearest: &mut BinaryHeap<OrderedNode<u64>>,
    scratch: &mut QueryScratch,
) -> Result<()> {
    if rows.is_empty() {
        // All rows of the partition were deleted.
        return Ok(());
    }
    let (k, params, metrics) = (query.k, FlatQueryParams::from(query), &NoOpMetricsCollector);
    FlatIndex::default().accumulate_topk_with_scratch(
        vector, k, params, rows, filter, nearest, residual, scratch, metrics,
    )
}

/// Returns `batches` with the columns that all of them have: early indexes lack the bounds of errors, without which
/// Lance compares too. Their schemas are without metadata, which is the index's and may be larger than the codes.
fn in_common(batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let is_common = |field: &&FieldRef| {
        batches.iter().all(|batch| batch.column_by_name(field.name()).is_some())
    };
    let fields: Fields = first.schema().fields().iter().filter(is_common).cloned().collect();
    let schema = Arc::new(Schema::new(fields));
    let project = |batch: &RecordBatch| {
        let columns = schema.fields().iter().map(|field| Arc::clone(&batch[field.name().as_str()]));
        Ok(RecordBatch::try_new(Arc::clone(&schema), columns.collect())?)
    };
    batches.iter().map(project).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, RecordBatchIterator};
    use lance::Dataset;
    use lance::index::DatasetIndexExt;
    use lance_index::optimize::OptimizeOptions;
    use lance_select::RowAddrTreeMap;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use crate::search::filter::{AllowList, AllowedBy};
    use crate::{IndexRequest, Lake, LakeOptions, VectorIndex, VectorIndexKind, build_index};

    use super::*;

    fn vectors(
        rows: usize,
    ) -> RecordBatchIterator<[std::result::Result<RecordBatch, arrow::error::ArrowError>; 1]> {
        let mut random = StdRng::seed_from_u64(rows as u64);
        let values = (0..rows * 16).map(|_| random.random_range(-1.0_f32..1.0));
        let values = Float32Array::from_iter_values(values);
        let vectors = FixedSizeListArray::try_new_from_values(values, 16).unwrap();
        let batch =
            RecordBatch::try_from_iter([("vector", Arc::new(vectors) as ArrayRef)]).unwrap();
        let schema = batch.schema();
        RecordBatchIterator::new([Ok(batch)], schema)
    }

    /// Returns the numbers of all segments, and of those that are searched one by one, of an index with `partitions`
    /// for 400 rows, after two further segments were made for 20 rows each.
    async fn segments(kind: VectorIndexKind, partitions: usize) -> (usize, usize) {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("table").to_str().unwrap().to_owned();
        let mut dataset = Dataset::write(vectors(400), &uri, None).await.unwrap();
        let index = VectorIndex {
            column: "vector".into(),
            kind,
            partitions: Some(partitions),
            ..Default::default()
        };
        let lake = Lake::new(LakeOptions::default());
        build_index(&lake, &uri, &IndexRequest::Vector(index), |_| ()).await.unwrap();
        for _ in 0..2 {
            dataset.checkout_latest().await.unwrap();
            dataset.append(vectors(20), None).await.unwrap();
            dataset.optimize_indices(&OptimizeOptions::append()).await.unwrap();
        }
        let table = lake.open(&uri).await.unwrap();
        let open = table.open_partitions("vector").await.unwrap().as_ref().unwrap();
        let list = AllowList::new(RowAddrTreeMap::from_iter(0..400_u64), AllowedBy::Scan, 1);
        (open.segments(), open.select(&list).unwrap().groups.len())
    }

    #[tokio::test]
    async fn small_segments_with_codes_of_one_form_are_searched_as_one() {
        use VectorIndexKind::{IvfHnswSq, IvfPq, IvfRq};
        for (kind, partitions, expected) in [
            (IvfRq, 4, (3, 1)),
            // The first segment has 200 or 400 rows in each partition.
            (IvfRq, 2, (3, 2)),
            (IvfPq, 1, (3, 2)),
            (IvfHnswSq, 4, (3, 3)),
        ] {
            assert_eq!(segments(kind, partitions).await, expected, "{kind}, {partitions}");
        }
    }
}

//! Small segments of a vector index that are searched as one.
//!
//! Each update of an index for appended rows makes a further segment. Lance prepares the search of each partition for 5
//! to 7 µs, in which 200 rows are compared, so a search of ten segments whose partitions have ten rows cost 2.3 times as
//! much as one of a single segment. Segments of few rows that have the same centroids and codes of the same form are
//! therefore joined: the codes of a partition's rows in all of them become one list. A list is made when a search needs
//! it, and then kept in the cache of indexes.
//!
//! Of IVF_RQ's codes, Lance compares 32 at a time by distances of 8 bits, and exactly the rest of a partition that fills
//! no such block. In small segments nearly all rows are such a rest. In a joined list they fill blocks, so these are
//! compared by distances of 16 bits, which are as good as exact.

use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, RecordBatch};
use arrow::compute::kernels::numeric::sub;
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::UInt8Type;
use futures::TryStreamExt;
use futures::future::try_join_all;
use lance::dataset::scanner::RowAddrMask;
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

use super::segment::{Neighbor, Ranking, Segment, Source};
use crate::search::hit::row_ids;
use crate::search::selection::{Selected, Selection};

/// The maximum number of rows that the partitions of a small segment have on average. The search of larger ones costs
/// so much that their preparation hardly counts.
const ROWS_MAX: u64 = 100;

/// Small segments of an index that are searched as one.
pub(crate) struct Joined {
    segments: Vec<Segment>,
    codes: Codes,
    cache: LanceCache,
    /// The key of the lists in the cache, without the number of the partition.
    key: String,
}

/// The form of an index's codes.
enum Codes {
    Product(ProductQuantizer),
    Rabit(RabitQuantizer),
}

/// The rows that the segments have in one partition.
enum List {
    Product {
        storage: Box<ProductQuantizationStorage>,
        /// What is subtracted from a query vector before it is compared.
        centroid: Option<ArrayRef>,
    },
    Rabit {
        storage: Box<RabitQuantizationStorage>,
        /// The partition's centroid, rotated as vectors are before they are encoded.
        centroid: Vec<f32>,
    },
}

impl DeepSizeOf for List {
    // The codebook or rotation is shared with the index.
    fn deep_size_of_children(&self, _: &mut Context) -> usize {
        match self {
            Self::Product { storage, .. } => storage.batch().get_array_memory_size(),
            Self::Rabit { storage, centroid } => {
                let batches = storage.to_batches().into_iter().flatten();
                let codes: usize = batches.map(|batch| batch.get_array_memory_size()).sum();
                codes + size_of_val(centroid.as_slice())
            }
        }
    }
}

/// The key of a [`List`] in the cache of indexes: the table's version, the group of segments, and the partition.
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

/// Joins those of `segments` that are small and alike. `key` names the version of the table and the index; by it the
/// lists are kept in `cache`.
pub(crate) fn join_small(segments: Vec<Segment>, cache: &LanceCache, key: &str) -> Vec<Segment> {
    let mut groups: Vec<(Option<Codes>, Vec<Segment>)> = Vec::new();
    for segment in segments {
        let codes = Codes::of(&segment).filter(|_| is_small(&segment));
        let group = groups.iter_mut().find(|(of_group, group)| {
            let is_like = |(a, b): (&Codes, &Codes)| a.is_like(b) && group[0].ranks_like(&segment);
            of_group.as_ref().zip(codes.as_ref()).is_some_and(is_like)
        });
        match group {
            Some((_, group)) => group.push(segment),
            None => groups.push((codes, vec![segment])),
        }
    }
    let mut joined = Vec::with_capacity(groups.len());
    for (at, (codes, segments)) in groups.into_iter().enumerate() {
        match codes {
            Some(codes) if segments.len() > 1 => {
                let index = Arc::clone(&segments[0].index);
                let (cache, key) = (cache.clone(), format!("{key}/{at}"));
                // The lists have live rows only.
                let live = Selection { mask: None, share: 1.0 };
                let source = Source::Joined(Joined { segments, codes, cache, key });
                joined.push(Segment { index, live, is_flat: true, source });
            }
            _ => joined.extend(segments),
        }
    }
    joined
}

fn is_small(segment: &Segment) -> bool {
    segment.index.num_rows() <= ROWS_MAX * segment.index.total_partitions() as u64
}

impl Joined {
    /// The number of segments.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// The number of rows that the segments hold.
    pub fn rows(&self) -> u64 {
        self.segments.iter().map(Segment::rows).sum()
    }

    /// Returns the number of rows that the segments hold in the partition `id`.
    pub fn partition_rows(&self, id: u32) -> u64 {
        self.segments.iter().map(|segment| segment.partition_rows(id)).sum()
    }

    /// Returns the nearest rows in the ranked partitions, of those that `mask` selects: at most `query.k`, in no
    /// particular order.
    pub async fn search(
        &self,
        mut query: Query,
        ranking: &Ranking,
        mask: Option<&Arc<RowAddrMask>>,
    ) -> Result<Vec<Neighbor>> {
        let lists = self.lists(&query, ranking).await?;
        let filter: Arc<dyn PreFilter> = match mask {
            Some(mask) => Arc::new(Selected(Arc::clone(mask))),
            None => Arc::new(NoFilter),
        };
        let rotated = self.codes.rotate(&query)?;
        let (mut nearest, mut scratch) = (BinaryHeap::new(), QueryScratch::new());
        query.approx_mode = ApproxMode::Accurate;
        for ((_, distance), list) in ranking.iter().zip(&lists) {
            query.dist_q_c = distance;
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
                    let (rotated_centroid, rotated) = (Some(centroid.as_slice()), rotated.as_ref());
                    let residual =
                        QueryResidual::RabitRawQuery { rotated_centroid, query: rotated };
                    let vector = Arc::clone(&query.key);
                    let (rows, residual) = (storage.as_ref(), Some(residual));
                    compare(&query, vector, residual, rows, filter, nearest, scratch)?;
                }
            }
        }
        let nearest = nearest.into_iter();
        Ok(nearest.map(|it| Neighbor { distance: it.dist.0, id: it.id }).collect())
    }

    /// Returns the list of each ranked partition. Those that the cache lacks are made.
    async fn lists(&self, query: &Query, ranking: &Ranking) -> Result<Vec<Arc<List>>> {
        let key = |id: u32| Key(format!("{}/{id}", self.key));
        let mut lists = Vec::with_capacity(ranking.len());
        for (id, _) in ranking.iter() {
            lists.push((id, self.cache.get_with_key(&key(id)).await));
        }
        let missing: Vec<u32> =
            lists.iter().filter(|(_, list)| list.is_none()).map(|(id, _)| *id).collect();
        if !missing.is_empty() {
            let reads = self.segments.iter().map(|segment| segment.read_ahead(query, &missing));
            try_join_all(reads).await?;
        }
        let mut all = Vec::with_capacity(lists.len());
        for (id, list) in lists {
            all.push(match list {
                Some(list) => list,
                None => {
                    let list = Arc::new(self.list(id).await?);
                    self.cache.insert_with_key(&key(id), Arc::clone(&list)).await;
                    list
                }
            });
        }
        Ok(all)
    }

    /// Makes the list of the live rows in the partition `id`.
    async fn list(&self, id: u32) -> Result<List> {
        let segments = self.segments.iter().filter(|segment| segment.partition_rows(id) > 0);
        let batches = try_join_all(segments.map(|segment| self.codes.read(segment, id))).await?;
        let batches = in_common(batches.concat())?;
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
            Quantizer::Product(codes) => Some(Self::Product(codes)),
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
            (Self::Product(a), Self::Product(b)) => {
                let sizes = |it: &ProductQuantizer| (it.num_bits, it.num_sub_vectors, it.dimension);
                sizes(a) == sizes(b) && a.codebook == b.codebook
            }
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
            Self::Product(_) => Ok(None),
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
                Self::Product(_) => PQ_CODE_COLUMN,
                Self::Rabit(_) => RABIT_CODE_COLUMN,
            };
            let codes = batch[column].as_fixed_size_list();
            let codes = match self {
                Self::Product(_) => {
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
            Self::Product(codes) => {
                let (bits, of_row, dimension) =
                    (codes.num_bits, codes.num_sub_vectors, codes.dimension);
                let storage = ProductQuantizationStorage::new(
                    codes.codebook.clone(),
                    batch,
                    bits,
                    of_row,
                    dimension,
                    metric,
                    false,
                    None,
                )?;
                let centroid =
                    ProductQuantizer::use_residual(metric).then(|| centroids.value(id as usize));
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
    let (k, params, metrics) = (query.k, FlatQueryParams::from(query), &NoOpMetricsCollector);
    FlatIndex::default().accumulate_topk_with_scratch(
        vector, k, params, rows, filter, nearest, residual, scratch, metrics,
    )
}

/// Returns `batches` with the columns that all of them have. Lance computes with or without the bounds of errors, which
/// early indexes lack.
fn in_common(batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let Some(first) = batches.first() else { return Ok(batches) };
    let is_common = |name: &&String| batches.iter().all(|it| it.column_by_name(name).is_some());
    let schema = first.schema();
    let names: Vec<_> =
        schema.fields().iter().map(|field| field.name()).filter(is_common).collect();
    let project = |batch: &RecordBatch| {
        let columns = names.iter().map(|name| batch.schema().index_of(name));
        Ok(batch.project(&columns.collect::<std::result::Result<Vec<_>, _>>()?)?)
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
        (open.segments(), open.select(&list).unwrap().segments.len())
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

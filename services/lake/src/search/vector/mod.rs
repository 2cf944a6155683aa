//! Vector search, which returns addresses and distances. Distances from an index are approximate, because no vector is
//! read; rows that no index covers are compared exactly.

mod candidates;
mod group;
mod joined;
mod ladder;
mod open_partitions;
mod partitions;
mod query;
mod read_ahead;
mod segment;
mod widening;

use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Int8Array, RecordBatch, UInt8Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Float16Type};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use lance_core::Error;
use lance_core::datatypes::format_field_path;
use tokio::sync::OnceCell;

use self::open_partitions::open_partitions;
use self::partitions::Probes;
use super::filter::{AllowList, Allowed};
use super::hit::{DISTANCE, DistanceHit, addresses, f32_column, only_addresses};
use super::plan_reason::PlanReason;
use super::selection::SelectedByIndex;
use crate::error::{LakeError, Result};
use crate::table::Table;
use crate::table::index_info::IndexInfo;
use crate::table::metric::Metric;
use crate::threads::deep_stack::polled_on_deep_stack;

pub use candidates::{CandidateSearch, Candidates};
pub use ladder::MeasurableIndex;
pub(crate) use partitions::Partitions;
pub use partitions::{COMPARED_PER_SCORED, Rung};
pub use query::VectorQuery;
pub use widening::Widened;

/// The number of rows whose vectors Lance reads at once to compare them exactly. The list of a late-interaction model
/// has some 50 KB, so these rows take some 13 MB.
const REFINED_ROWS_AT_ONCE: usize = 256;

/// Maximum sum of the squares of a query vector's numbers. Lance leaves out rows whose distance is infinite, or the
/// largest 32-bit float. The square of a Euclidean distance is at most twice the sum of the squares of both vectors, so
/// it is finite for all vectors within this bound.
const SQUARES_MAX: f64 = f32::MAX as f64 / 4.0;

/// The way in which a vector search runs.
pub enum VectorRoute<'a> {
    /// The search reads the index's partitions, without a plan.
    Direct(DirectSearch<'a>),
    /// The search returns candidates ([`Table::candidates`]), which the caller compares with the filter. Only
    /// [`Table::open_route`] chooses this way.
    Candidates(Box<CandidateSearch>),
    /// Lance's scanner plans the search ([`Table::planned_search`]), for this reason.
    Planned(PlanReason),
}

/// A search of an index's partitions, without a plan. The caller ranks the `hits` and the rows `to_score` together, by
/// exact distances.
pub struct DirectSearch<'a> {
    /// The number of rows that pass the filter, if there is one.
    pub allowed: Option<Allowed>,
    /// The number of the index's segments that are searched.
    pub segments: usize,
    /// Whether the search is expected to compare so many rows that it should not run on a thread that serves other
    /// requests.
    pub is_long: bool,
    /// The number of partitions that are searched at first, in all segments together, those without rows included; 0 if
    /// the index is not searched, because it costs less to score all rows that pass the filter.
    pub partitions: usize,
    /// Live rows that pass the filter and are not among the `hits`, ascending: those that the index does not cover, or
    /// all of them if the index is not searched. Empty if the query is `indexed_only`.
    pub to_score: Arc<[RowAddr]>,
    /// Runs the search, and returns the nearest rows of those that the index covers, nearest first.
    pub hits: BoxFuture<'a, Result<Vec<DistanceHit>>>,
}

impl Table {
    /// Returns the nearest rows, nearest first, by Lance's scanner, which plans each search anew. Rows that the
    /// column's index does not cover are compared one by one (unless the query is `indexed_only`), as are all rows if
    /// there is no index (slow, exact).
    ///
    /// Errors: `BadQuery` (k = 0, NaN or infinity in the vector), `ColumnNotFound`,
    /// `ColumnNotNamed`, `NotAVector`, `DimensionMismatch`, `BadFilter`, and those of the store.
    pub async fn planned_search(&self, query: &VectorQuery) -> Result<Vec<DistanceHit>> {
        let (column, vector) = self.check_vector_query(query).await?;
        let mut scanner = self.dataset().scan();
        self.caught(async { only_addresses(self.dataset(), &mut scanner, &[DISTANCE]) }).await?;
        let filter = self.filter_or_condition(query.filter.as_deref());
        self.check_addresses_unnamed(filter)?;
        self.set_filter(&mut scanner, filter)?;
        let search = async {
            scanner.prefilter(true).nearest(&column, &vector, query.k)?;
            match query.nprobes {
                Some(nprobes) if filter.is_some() => {
                    if let Some(most) = query.nprobes_max {
                        scanner.maximum_nprobes(most.max(1));
                    }
                    scanner.minimum_nprobes(nprobes.max(1))
                }
                Some(nprobes) => scanner.nprobes(nprobes.max(1)),
                None => &mut scanner,
            };
            if let Some(ef) = query.ef {
                scanner.ef(ef.max(query.k));
            }
            let (lower, upper) = query.distances;
            scanner.distance_range(lower, upper);
            if query.refine_factor > 0 {
                scanner.refine(query.refine_factor).batch_size(REFINED_ROWS_AT_ONCE);
            }
            if query.indexed_only {
                scanner.fast_search();
            }
            if let Some(metric) = query.exact {
                scanner.use_index(false).distance_metric(metric.to_lance());
            }
            nearest_hits(&scanner.try_into_batch().await?, query.k)
        };
        self.caught_filter(filter, polled_on_deep_stack(search.boxed())).await
    }

    /// Like [`route_if_open`](Self::route_if_open), but opens the index, and makes the allow-list of the filter, if
    /// that has not been done yet.
    ///
    /// Errors: as `planned_search`.
    pub async fn open_route<'a>(&'a self, query: &VectorQuery) -> Result<VectorRoute<'a>> {
        let (column, vector) = self.check_vector_query(query).await?;
        if let Some(reason) = query.needs_plan().or_else(|| self.nested_reason(&column)) {
            return Ok(VectorRoute::Planned(reason));
        }
        let partitions = match self.open_partitions(&column).await? {
            Ok(partitions) => partitions,
            Err(reason) => return Ok(VectorRoute::Planned(*reason)),
        };
        let list = match self.filter_or_condition(query.filter.as_deref()) {
            Some(filter) => {
                let planned = OnceCell::new();
                if query.checks_candidates {
                    let filter = (filter, &planned);
                    let search = self.candidate_search(filter, (&column, partitions), query);
                    if let Some(search) = search.boxed().await? {
                        return Ok(VectorRoute::Candidates(Box::new(search)));
                    }
                }
                let list = self.planned_allow_list(filter, &planned).await?;
                self.select(partitions, &column, &list).await?;
                self.allow_lists().weigh(self.open_id(), filter);
                Some(list)
            }
            None => None,
        };
        let route = self.direct_route(query, &column, vector, partitions, list.as_ref())?;
        route.ok_or_else(|| self.blame(Error::internal("the rows that pass were not selected")))
    }

    /// Returns a search of the index's partitions that needs no plan, or the reason if it needs one. Returns `None` if
    /// [`open_route`](Self::open_route) has not opened the index yet, or has not found the rows that pass the filter.
    ///
    /// Errors: as `planned_search`.
    pub async fn route_if_open<'a>(
        &'a self,
        query: &VectorQuery,
    ) -> Result<Option<VectorRoute<'a>>> {
        let (column, vector) = self.check_vector_query(query).await?;
        if let Some(reason) = query.needs_plan().or_else(|| self.nested_reason(&column)) {
            return Ok(Some(VectorRoute::Planned(reason)));
        }
        let partitions = match self.direct_of(self.column_position(&column)?).partitions.get() {
            Some(Ok(partitions)) => partitions,
            Some(Err(reason)) => return Ok(Some(VectorRoute::Planned(*reason))),
            None => return Ok(None),
        };
        let filter = self.filter_or_condition(query.filter.as_deref());
        let list = filter.map(|filter| self.known_allow_list(filter));
        match list {
            Some(None) => Ok(None),
            list => self.direct_route(query, &column, vector, partitions, list.flatten().as_ref()),
        }
    }

    /// Returns the nearest rows, of which it is not known whether they pass the query's filter.
    ///
    /// Errors: as `planned_search`.
    pub async fn candidates(
        &self,
        query: &VectorQuery,
        search: &CandidateSearch,
    ) -> Result<Candidates> {
        let (column, vector) = self.check_vector_query(query).await?;
        let partitions = self.open_partitions(&column).await?.as_ref().map_err(|reason| {
            self.blame(Error::internal(format!(
                "candidates are searched without an index: {reason}"
            )))
        })?;
        let distances = estimated_distances(query, &search.to_score);
        self.caught(search.search(partitions, vector, distances)).boxed().await
    }

    /// Returns [`PlanReason::Nested`] if `column` is nested, because the index of a nested column is not searched
    /// directly.
    fn nested_reason(&self, column: &str) -> Option<PlanReason> {
        self.column_position(column).is_err().then_some(PlanReason::Nested)
    }

    /// Returns the search of `partitions` for `query`, whose filter has the allow-list `list`; or
    /// `None` if [`select`](Self::select) has not been called for the list.
    fn direct_route<'a>(
        &'a self,
        query: &VectorQuery,
        column: &str,
        vector: ArrayRef,
        partitions: &'a Partitions,
        list: Option<&Arc<AllowList>>,
    ) -> Result<Option<VectorRoute<'a>>> {
        let (k, ef) = (query.k, query.ef.map(|ef| ef.max(query.k)));
        let nprobes = query.nprobes.unwrap_or_default();
        let nprobes_max = query.nprobes_max.unwrap_or(usize::MAX);
        let selected = match list {
            None => None,
            Some(list) => match list.of_columns[self.column_position(column)?].get() {
                Some(selected) => Some(Arc::clone(selected)),
                None => return Ok(None),
            },
        };
        let allowed = list.map(|list| list.summary());
        let all = selected.as_ref().and_then(|selected| selected.all.as_ref());
        let is_cheaper = |all: &&Arc<[RowAddr]>| {
            !query.indexed_only && partitions.is_scoring_cheaper(all.len(), k, nprobes)
        };
        if let Some(all) = all.filter(is_cheaper) {
            let (to_score, hits) = (Arc::clone(all), ready(Ok(Vec::new())).boxed());
            let (segments, partitions, is_long) = (0, 0, false);
            let search = DirectSearch { allowed, segments, is_long, partitions, to_score, hits };
            return Ok(Some(VectorRoute::Direct(search)));
        }
        let to_score = match &selected {
            _ if query.indexed_only => Arc::default(),
            Some(selected) => Arc::clone(&selected.uncovered),
            None => Arc::clone(partitions.uncovered()),
        };
        let distances = estimated_distances(query, &to_score);
        let probes = Probes { nprobes, nprobes_max, ef };
        let is_long = partitions.is_long(allowed.map(|allowed| allowed.rows), k, &probes);
        let hits = async move {
            partitions.search(vector, k, distances, probes, selected.as_deref()).await
        };
        let search = DirectSearch {
            allowed,
            segments: partitions.segments(),
            is_long,
            partitions: partitions.partitions(nprobes),
            to_score,
            hits: self.caught(hits).boxed(),
        };
        Ok(Some(VectorRoute::Direct(search)))
    }

    /// Returns the rows of `list` in the form in which searches of the index on `column` take them. The list keeps this
    /// form for [`direct_route`](Self::direct_route) and later searches.
    pub(super) async fn select(
        &self,
        partitions: &Partitions,
        column: &str,
        list: &AllowList,
    ) -> Result<Arc<SelectedByIndex>> {
        let cell = &list.of_columns[self.column_position(column)?];
        if let Some(selected) = cell.get() {
            return Ok(Arc::clone(selected));
        }
        let selected = self.caught(async { partitions.select(list) }).await?;
        // If a concurrent search was first, its selection is the same.
        Ok(Arc::clone(cell.get_or_init(|| Arc::new(selected))))
    }

    /// Checks `query`. Returns its column, and its vector in the column's element type.
    pub(super) async fn check_vector_query(
        &self,
        query: &VectorQuery,
    ) -> Result<(String, ArrayRef)> {
        if query.k == 0 {
            return Err(LakeError::BadQuery { why: "k is 0; ask for at least 1 row".into() });
        }
        let column = self.vector_column(query.column.as_deref(), Some(query.vector.len())).await?;
        let vector = self.query_vector(&column, &query.vector)?;
        Ok((column, vector))
    }

    /// Opens the index on `column` if a search needs only its partitions and the rows that it does not cover.
    /// Otherwise, returns the reason.
    pub(super) async fn open_partitions(
        &self,
        column: &str,
    ) -> Result<&std::result::Result<Partitions, PlanReason>> {
        let position = self.column_position(column)?;
        let direct = self.direct_of(position);
        // Runs once per version. Boxed, because the state of this future is large and every search would carry it.
        let open = async {
            direct.note_use();
            match self.stored_schema().field(position).data_type() {
                DataType::FixedSizeList(item, _) if item.data_type().is_floating() => {}
                _ => return Ok(Err(PlanReason::NotFloats)),
            }
            match self.vector_index(column).await? {
                Some(index) => open_partitions(self, column, index).await,
                None => Ok(Err(PlanReason::Unindexed)),
            }
        };
        direct.partitions.get_or_try_init(|| self.on_own_runtime(open.boxed())).await
    }

    /// Returns the index on the vectors of `column`, if it has one. Errors: those of the store.
    pub async fn vector_index(&self, column: &str) -> Result<Option<&IndexInfo>> {
        self.indexes().await?;
        let mut loaded = self.loaded_indexes().unwrap_or_default().iter();
        Ok(loaded.find(|index| index.is_vector() && index.columns == [column]))
    }

    /// Returns the metric of a vector column: that of its index, or L2 (Hamming for unsigned bytes) if it has none.
    /// Errors: `ColumnNotFound`, `NotAVector`, and those of the store.
    pub async fn vector_metric(&self, column: &str) -> Result<Metric> {
        let (element, _) = self.vector_type(column)?;
        let index = self.vector_index(column).await?;
        let default = if element == DataType::UInt8 { Metric::Hamming } else { Metric::L2 };
        Ok(index.and_then(|index| index.metric).unwrap_or(default))
    }

    /// Checks that the vectors of `column` can be compared by `metric`. Errors: `ColumnNotFound`, `NotAVector`,
    /// `BadQuery`.
    pub fn check_metric(&self, column: &str, metric: Metric) -> Result<()> {
        let (element, _) = self.vector_type(column)?;
        let is_of_bytes = element == DataType::UInt8;
        if is_of_bytes == (metric == Metric::Hamming) {
            return Ok(());
        }
        let choose = if is_of_bytes { "hamming" } else { "l2, cosine or dot" };
        let why = format!(
            "the vectors of column {column:?} have elements of type {element}, which are not compared by {metric}; \
             choose {choose}"
        );
        Err(LakeError::BadQuery { why })
    }

    /// Returns the column that a vector search uses: `wanted` if it is given. Otherwise, the candidates are the vector
    /// columns whose dimension is `numbers`; if there are none, the lists of vectors that a query vector of `numbers`
    /// numbers fits as several vectors; if there are none either, all vector columns. Of equally good ones, nested
    /// columns are candidates only if no other column is, and never without `numbers`. Returns the only candidate, or
    /// the only one that has an index.
    /// Errors: `ColumnNotFound`, `NotAVector`, `ColumnNotNamed`, and those of the store.
    pub async fn vector_column(
        &self,
        wanted: Option<&str>,
        numbers: Option<usize>,
    ) -> Result<String> {
        if let Some(column) = wanted {
            self.vector_type(column)?;
            if self.column_position(column).is_ok() {
                return Ok(column.to_owned());
            }
            // The name may be in backticks.
            return Ok(match self.shown_fields().resolve(column).as_deref() {
                Some([field]) => field.name.clone(),
                _ => column.to_owned(),
            });
        }
        let misfit = |data_type: &DataType, dimension: usize| match data_type {
            _ if numbers == Some(dimension) => 0,
            DataType::List(_) if numbers.is_some_and(|it| it.is_multiple_of(dimension)) => 1,
            _ => 2,
        };
        // Columns that fit best rank first. Among equals, columns that are not nested do.
        let mut vectors = Vec::new();
        visit_vectors(self.schema().fields(), &[], &mut |path, data_type, dimension| {
            let is_nested = path.len() > 1;
            if numbers.is_some() || !is_nested {
                vectors.push(((misfit(data_type, dimension), is_nested), column_path(path)));
            }
        });
        let best = vectors.iter().map(|(rank, _)| *rank).min();
        let candidates = vectors.into_iter().filter(|(rank, _)| Some(*rank) == best);
        let mut candidates: Vec<String> = candidates.map(|(_, path)| path).collect();
        if candidates.len() > 1 {
            let mut indexed = Vec::new();
            for column in &candidates {
                if self.vector_index(column).await?.is_some() {
                    indexed.push(column);
                }
            }
            if let [column] = indexed.as_slice() {
                return Ok((*column).clone());
            }
        }
        match candidates.len() {
            1 => Ok(candidates.remove(0)),
            _ => Err(LakeError::ColumnNotNamed { purpose: "vector", candidates }),
        }
    }

    /// Returns a vector column's dimension. Errors: `ColumnNotFound`, `NotAVector`.
    pub fn vector_dimension(&self, column: &str) -> Result<usize> {
        self.vector_type(column).map(|(_, dimension)| dimension)
    }

    /// Returns whether a vector column holds lists of vectors. Errors: `ColumnNotFound`.
    pub fn has_vector_lists(&self, column: &str) -> Result<bool> {
        Ok(matches!(self.type_of(column)?, DataType::List(_)))
    }

    fn vector_type(&self, column: &str) -> Result<(DataType, usize)> {
        let data_type = self.type_of(column)?;
        element_type(&data_type).ok_or_else(|| LakeError::NotAVector {
            column: column.to_owned(),
            data_type: data_type.to_string(),
        })
    }

    /// Returns the type of a column, or of a nested one that is named by its path. Errors: `ColumnNotFound`.
    fn type_of(&self, column: &str) -> Result<DataType> {
        match self.column_position(column) {
            Ok(position) => Ok(self.stored_schema().field(position).data_type().clone()),
            Err(unknown) => match self.shown_fields().field(column) {
                Some(field) => Ok(field.data_type()),
                None => Err(unknown),
            },
        }
    }

    fn query_vector(&self, column: &str, vector: &[f32]) -> Result<ArrayRef> {
        let (element, expected) = self.vector_type(column)?;
        let bad = |why: String| LakeError::BadQuery { why };
        let is_list = self.has_vector_lists(column)? && !vector.is_empty();
        if vector.len() != expected && !(is_list && vector.len().is_multiple_of(expected)) {
            let column = column.to_owned();
            return Err(LakeError::DimensionMismatch { column, expected, got: vector.len() });
        }
        if let Some(at) = vector.iter().position(|number| !number.is_finite()) {
            return Err(bad(format!("the vector's number {at} is {}, not finite", vector[at])));
        }
        let check_integers = |low: f32, high: f32| {
            let found = vector.iter().find(|x| x.fract() != 0.0 || **x < low || **x > high);
            found.map_or(Ok(()), |x| {
                Err(bad(format!("column {column:?} holds whole numbers {low}..{high}, not {x}")))
            })
        };
        let numbers: ArrayRef = match element {
            DataType::UInt8 => {
                check_integers(0.0, 255.0)?;
                Arc::new(UInt8Array::from_iter_values(vector.iter().map(|x| *x as u8)))
            }
            DataType::Int8 => {
                check_integers(-128.0, 127.0)?;
                Arc::new(Int8Array::from_iter_values(vector.iter().map(|x| *x as i8)))
            }
            _ => {
                check_length(vector, expected).map_err(bad)?;
                let floats = Float32Array::from(vector.to_vec());
                let numbers = cast(&floats, &element).map_err(|error| bad(error.to_string()))?;
                if let Some(at) = infinite_half(&numbers) {
                    return Err(bad(format!(
                        "column {column:?} holds 16-bit floats, of at most 65504, and the vector's number {at} is {}",
                        vector[at]
                    )));
                }
                numbers
            }
        };
        if numbers.len() == expected {
            return Ok(numbers);
        }
        let item = Arc::new(Field::new("item", element, true));
        let dimension = i32::try_from(expected).map_err(|error| bad(error.to_string()))?;
        let list = FixedSizeListArray::try_new(item, dimension, numbers, None);
        Ok(Arc::new(list.map_err(|error| bad(error.to_string()))?))
    }
}

/// Checks that each of the vectors in `numbers`, which have `dimension` numbers, is so short that distances to it are
/// finite. Otherwise, returns what is wrong.
fn check_length(numbers: &[f32], dimension: usize) -> std::result::Result<(), String> {
    for vector in numbers.chunks(dimension) {
        let squares: f64 = vector.iter().map(|&number| f64::from(number).powi(2)).sum();
        if squares > SQUARES_MAX {
            return Err(format!(
                "the squares of the vector's numbers add up to {squares:.1e}, and at most {SQUARES_MAX:.1e} can be \
                 compared; divide the numbers, and those of the column, by a common factor"
            ));
        }
    }
    Ok(())
}

/// Returns the position of a number that is infinite as a 16-bit float; `None` if `numbers` are not 16-bit floats.
fn infinite_half(numbers: &ArrayRef) -> Option<usize> {
    let halves = numbers.as_primitive_opt::<Float16Type>()?;
    halves.values().iter().position(|number| !number.is_finite())
}

/// Returns the `k` nearest rows in a batch of the scanner, nearest first.
fn nearest_hits(found: &RecordBatch, k: usize) -> lance_core::Result<Vec<DistanceHit>> {
    let distances = f32_column(found, DISTANCE)?.iter();
    let hits = addresses(found)?.zip(distances);
    let mut hits: Vec<_> = hits.map(|(addr, &distance)| DistanceHit { addr, distance }).collect();
    hits.sort_unstable_by(DistanceHit::rank);
    hits.truncate(k);
    Ok(hits)
}

/// Calls `visit` with the path, type and dimension of each vector column in `fields`, and in the structs among them.
/// `above` is the path of the struct that has the `fields`.
fn visit_vectors<'a>(
    fields: &'a Fields,
    above: &[&'a str],
    visit: &mut dyn FnMut(&[&str], &DataType, usize),
) {
    for field in fields {
        let path = || [above, &[field.name().as_str()]].concat();
        match (field.data_type(), element_type(field.data_type())) {
            (data_type, Some((_, dimension))) => visit(&path(), data_type, dimension),
            (DataType::Struct(inner), None) => visit_vectors(inner, &path(), visit),
            _ => {}
        }
    }
}

/// Returns the name of a column, or the path of a nested one as Lance writes it.
fn column_path(path: &[&str]) -> String {
    match path {
        [name] => (*name).to_owned(),
        path => format_field_path(path),
    }
}

/// Returns a vector column's element type and dimension. A column with several vectors per row (a list of vectors) is a
/// vector column too. Returns `None` for other columns.
fn element_type(data_type: &DataType) -> Option<(DataType, usize)> {
    match data_type {
        DataType::FixedSizeList(item, dimension) => {
            let element = item.data_type();
            let numeric =
                element.is_floating() || matches!(element, DataType::UInt8 | DataType::Int8);
            let dimension = usize::try_from(*dimension).ok().filter(|it| *it > 0)?;
            numeric.then(|| (element.clone(), dimension))
        }
        DataType::List(item) if matches!(item.data_type(), DataType::FixedSizeList(_, _)) => {
            element_type(item.data_type())
        }
        _ => None,
    }
}

/// Returns the range of the distances that a search of the index for `query` may return. If rows `to_score` are found
/// besides, the caller scores all candidates, and the index's estimates have no upper bound: they may be larger than
/// the exact distances.
fn estimated_distances(query: &VectorQuery, to_score: &[RowAddr]) -> (Option<f32>, Option<f32>) {
    let (lower, upper) = query.distances;
    (lower, upper.filter(|_| to_score.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_distinguished_from_other_lists() {
        let floats = DataType::new_fixed_size_list(DataType::Float16, 3, true);
        assert_eq!(element_type(&floats), Some((DataType::Float16, 3)));
        let several = DataType::List(Arc::new(Field::new("item", floats, true)));
        assert_eq!(element_type(&several), Some((DataType::Float16, 3)));
        assert_eq!(element_type(&DataType::new_list(DataType::Float32, true)), None);
        assert_eq!(element_type(&DataType::new_fixed_size_list(DataType::Utf8, 3, true)), None);
    }

    #[test]
    fn vectors_in_structs_have_paths() {
        let vector = DataType::new_fixed_size_list(DataType::Float32, 3, true);
        let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
        let inner =
            DataType::Struct(vec![field("a b", vector.clone()), field("n", DataType::Int8)].into());
        let several = DataType::List(field("item", vector.clone()));
        let fields = [field("row-v", vector), field("s", inner), field("l", several)];
        let mut paths = Vec::new();
        visit_vectors(&fields.into_iter().collect(), &[], &mut |path, _, dimension| {
            assert_eq!(dimension, 3);
            paths.push(column_path(path));
        });
        assert_eq!(paths, ["row-v", "s.`a b`", "l"]);
    }
}

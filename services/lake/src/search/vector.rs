//! Vector search by the index alone: addresses and approximate distances, no vector is read.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Int8Array, RecordBatch, UInt8Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::hit::{DistanceHit, addresses, numbers, only_addresses};
use super::partitions::Partitions;
use crate::deep_stack::polled_on_deep_stack;
use crate::error::{LakeError, Result};
use crate::index::metric::Metric;
use crate::table::Table;

/// Lance's name for the column of distances.
const DISTANCE: &str = "_distance";

/// A question to a vector index.
#[derive(Clone, Debug, Default)]
pub struct VectorQuery {
    /// The vector column; `None` if the table has only one, or only one with an index.
    pub column: Option<String>,
    /// As many finite numbers as the column has dimensions.
    pub vector: Vec<f32>,
    /// How many rows; at least 1. To refine, ask for more and rank by exact distances.
    pub k: usize,
    /// How many partitions of the index to search. `None` leaves it to Lance, which searches as
    /// many as seem worth it. With a filter it is the least number: more are searched until `k`
    /// rows have passed the filter.
    pub nprobes: Option<usize>,
    /// For HNSW indexes: how many candidates the graph search keeps; at least `k`.
    pub ef: Option<usize>,
    /// SQL expression that the rows must satisfy; applied before the search.
    pub filter: Option<String>,
}

impl Table {
    /// The nearest rows, nearest first, by the index on the column; rows that the index doesn't
    /// cover are compared one by one, as are all rows if there is no index (slow, exact).
    ///
    /// Errors: `BadQuery` (k = 0, NaN or infinity in the vector), `ColumnNotFound`,
    /// `ColumnNotNamed`, `NotAVector`, `DimensionMismatch`, `BadFilter`, and those of the store.
    pub async fn search_vector(&self, query: &VectorQuery) -> Result<Vec<DistanceHit>> {
        self.open_search(query).await?;
        match self.direct_search(query).await? {
            Some(search) => search.await,
            None => self.planned_search(query).await,
        }
    }

    /// The same through Lance's scanner, whatever the index: it plans each search anew.
    ///
    /// Errors: as `search_vector`.
    pub async fn planned_search(&self, query: &VectorQuery) -> Result<Vec<DistanceHit>> {
        let (column, vector) = self.checked(query).await?;
        let mut scanner = self.dataset().scan();
        self.caught(async { only_addresses(self, &mut scanner, &[DISTANCE]) }).await?;
        self.set_filter(&mut scanner, query.filter.as_deref())?;
        let search = async {
            scanner.prefilter(true).nearest(&column, &vector, query.k)?;
            match query.nprobes {
                Some(nprobes) if query.filter.is_some() => scanner.minimum_nprobes(nprobes.max(1)),
                Some(nprobes) => scanner.nprobes(nprobes.max(1)),
                None => &mut scanner,
            };
            if let Some(ef) = query.ef {
                scanner.ef(ef.max(query.k));
            }
            nearest(&[scanner.try_into_batch().await?], query.k)
        };
        self.caught(polled_on_deep_stack(search.boxed())).await
    }

    /// Opens what `direct_search` goes by, if `query` needs nothing beside and it wasn't opened before.
    ///
    /// Errors: as `search_vector`.
    pub async fn open_search(&self, query: &VectorQuery) -> Result<()> {
        if query.filter.is_none() && query.nprobes.is_some() {
            let column = self.vector_column(query.column.as_deref()).await?;
            self.open_partitions(&column).await?;
        }
        Ok(())
    }

    /// The same straight through the index's partitions, without planning, to be awaited; `None` where
    /// a search needs more than them, or they weren't opened.
    ///
    /// Errors: as `search_vector`.
    pub async fn direct_search<'a>(
        &'a self,
        query: &VectorQuery,
    ) -> Result<Option<BoxFuture<'a, Result<Vec<DistanceHit>>>>> {
        let (column, vector) = self.checked(query).await?;
        let (None, Some(nprobes)) = (&query.filter, query.nprobes) else { return Ok(None) };
        let direct = self.direct_of(self.column_position(&column)?);
        let Some(Some(partitions)) = direct.partitions.get() else { return Ok(None) };
        let (k, ef) = (query.k, query.ef.map(|ef| ef.max(query.k)));
        let search = async move {
            let found = async {
                let found = partitions.search(vector, k, nprobes, ef).await;
                found.and_then(|found| nearest(&found, k))
            };
            self.caught(found).await
        };
        Ok(Some(search.boxed()))
    }

    /// The column and the vector, as the column has them.
    async fn checked(&self, query: &VectorQuery) -> Result<(String, ArrayRef)> {
        if query.k == 0 {
            return Err(LakeError::BadQuery { why: "k is 0; ask for at least 1 row".into() });
        }
        let column = self.vector_column(query.column.as_deref()).await?;
        let vector = self.query_vector(&column, &query.vector)?;
        Ok((column, vector))
    }

    /// Opens the index on `column`, if its partitions are all that a search needs.
    async fn open_partitions(&self, column: &str) -> Result<()> {
        let position = self.column_position(column)?;
        match self.schema().field(position).data_type() {
            DataType::FixedSizeList(item, _) if item.data_type().is_floating() => {}
            _ => return Ok(()),
        }
        // Once a version; boxed, since its state is large and every search would carry it.
        let open = async {
            let indexes = self.indexes().await?;
            match indexes.iter().find(|it| it.is_vector() && it.columns == [column]) {
                Some(index) => self.caught(Partitions::open(self, column, &index.name)).await,
                None => Ok(None),
            }
        };
        let cell = &self.direct_of(position).partitions;
        cell.get_or_try_init(|| self.on_own_runtime(open.boxed())).await.map(|_| ())
    }

    /// How the distances of a vector column are measured: as its index does, or L2 (Hamming for
    /// bytes) if it has none. Errors: `ColumnNotFound`, `NotAVector`, and those of the store.
    pub async fn vector_metric(&self, column: &str) -> Result<Metric> {
        let (element, _) = self.vector_type(column)?;
        let indexes = self.indexes().await?;
        let index = indexes
            .iter()
            .find(|index| index.is_vector() && index.columns.iter().any(|it| it == column));
        let default = if element == DataType::UInt8 { Metric::Hamming } else { Metric::L2 };
        Ok(index.and_then(|index| index.metric).unwrap_or(default))
    }

    /// The column that a vector search without a column means: the only one with a vector index,
    /// or else the only vector column. Errors: `ColumnNotFound`, `NotAVector`, `ColumnNotNamed`.
    pub async fn vector_column(&self, wanted: Option<&str>) -> Result<String> {
        if let Some(column) = wanted {
            self.vector_type(column)?;
            return Ok(column.to_owned());
        }
        let indexes = self.indexes().await?;
        let mut indexed: Vec<_> = indexes
            .iter()
            .filter(|index| index.is_vector())
            .flat_map(|index| index.columns.clone())
            .collect();
        indexed.dedup();
        if let [column] = indexed.as_slice() {
            return Ok(column.clone());
        }
        let fields = self.schema().fields().iter();
        let vectors = fields.filter(|field| element_type(field.data_type()).is_some());
        let mut candidates: Vec<_> = vectors.map(|field| field.name().clone()).collect();
        match candidates.len() {
            1 => Ok(candidates.remove(0)),
            _ => Err(LakeError::ColumnNotNamed { purpose: "vector", candidates }),
        }
    }

    /// A vector column's dimension. Errors: `ColumnNotFound`, `NotAVector`.
    pub fn vector_dimension(&self, column: &str) -> Result<usize> {
        self.vector_type(column).map(|(_, dimension)| dimension)
    }

    fn vector_type(&self, column: &str) -> Result<(DataType, usize)> {
        let field = &self.schema().fields()[self.column_position(column)?];
        element_type(field.data_type()).ok_or_else(|| LakeError::NotAVector {
            column: column.to_owned(),
            data_type: field.data_type().to_string(),
        })
    }

    fn query_vector(&self, column: &str, vector: &[f32]) -> Result<ArrayRef> {
        let (element, expected) = self.vector_type(column)?;
        let bad = |why: String| LakeError::BadQuery { why };
        if vector.len() != expected {
            let column = column.to_owned();
            return Err(LakeError::DimensionMismatch { column, expected, got: vector.len() });
        }
        if let Some(at) = vector.iter().position(|number| !number.is_finite()) {
            return Err(bad(format!("the vector's number {at} is {}, not finite", vector[at])));
        }
        let whole = |low: f32, high: f32| {
            let found = vector.iter().find(|x| x.fract() != 0.0 || **x < low || **x > high);
            found.map_or(Ok(()), |x| {
                Err(bad(format!("column {column:?} holds whole numbers {low}..{high}, not {x}")))
            })
        };
        Ok(match element {
            DataType::UInt8 => {
                whole(0.0, 255.0)?;
                Arc::new(UInt8Array::from_iter_values(vector.iter().map(|x| *x as u8)))
            }
            DataType::Int8 => {
                whole(-128.0, 127.0)?;
                Arc::new(Int8Array::from_iter_values(vector.iter().map(|x| *x as i8)))
            }
            _ => {
                let floats = Float32Array::from(vector.to_vec());
                cast(&floats, &element).map_err(|error| bad(error.to_string()))?
            }
        })
    }
}

/// The `k` nearest of all that was found, nearest first.
fn nearest(found: &[RecordBatch], k: usize) -> lance_core::Result<Vec<DistanceHit>> {
    let mut hits = Vec::with_capacity(found.iter().map(RecordBatch::num_rows).sum());
    for batch in found {
        let distances = numbers(batch, DISTANCE)?.iter();
        let pairs = addresses(batch)?.zip(distances);
        hits.extend(pairs.map(|(addr, &distance)| DistanceHit { addr, distance }));
    }
    hits.sort_unstable_by(|a, b| a.distance.total_cmp(&b.distance).then(a.addr.cmp(&b.addr)));
    hits.truncate(k);
    Ok(hits)
}

/// What a vector column's numbers are, and how many a vector has; also of several vectors a row
/// (a list of vectors). `None` for other columns.
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

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn vectors_are_told_from_other_lists() {
        let floats = DataType::new_fixed_size_list(DataType::Float16, 3, true);
        assert_eq!(element_type(&floats), Some((DataType::Float16, 3)));
        let several = DataType::List(Arc::new(Field::new("item", floats, true)));
        assert_eq!(element_type(&several), Some((DataType::Float16, 3)));
        assert_eq!(element_type(&DataType::new_list(DataType::Float32, true)), None);
        assert_eq!(element_type(&DataType::new_fixed_size_list(DataType::Utf8, 3, true)), None);
    }
}

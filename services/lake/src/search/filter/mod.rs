//! Searches by a filter, and sets the filters of other searches.

#[cfg(test)]
mod tests;

mod allow_list;
mod allow_lists;
mod cast_types;
mod checked;
mod example;
mod functions;
mod group;
mod limits;
mod literal;
mod narrowing;
mod no_value;
mod predicate;
mod resolve;
mod row_columns;
mod tokens;
mod wide;

use std::collections::HashMap;
use std::sync::Arc;

use address::RowAddr;
use arrow::array::{ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::{DataType, Field};
use datafusion::logical_expr::Expr;
use futures::FutureExt;
use lance::dataset::rowids::load_row_id_sequence;
use lance::dataset::scanner::{ColumnOrdering, Scanner};
use lance_core::{ROW_ADDR, ROW_ID};
use lance_select::RowSetOps;
use tables::fixed_bytes;

use self::example::EXAMPLE;
pub(super) use self::functions::may_read_clock;
pub(super) use self::predicate::predicate_of;
pub(super) use self::tokens::check as check_tokens;
use super::hit::{addresses, only_addresses};
use super::row_addresses::RowAddresses;
use crate::diagnose::one_line;
use crate::error::hint::{column_hint, has_no_path, text_hint};
use crate::error::words::shortened;
use crate::error::{LakeError, Result};
use crate::table::Table;
use crate::threads::deep_stack::{on_deep_stack, polled_on_deep_stack};

pub(crate) use allow_list::AllowList;
pub use allow_list::{Allowed, AllowedBy};
pub(crate) use allow_lists::AllowLists;
pub use checked::CheckedFilter;
pub(crate) use narrowing::Narrowing;
pub(in crate::search) use resolve::{ByIndexes, FilterPlan};

/// An order of rows, by the values of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// The column; a nested one is written as a path, such as `place.x`.
    pub column: String,
    /// Whether larger values come first.
    pub is_descending: bool,
    /// Whether nulls come before all values.
    pub nulls_first: bool,
}

/// The rows that a search by a filter alone found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterHits {
    /// The first rows that pass, in address order.
    pub rows: Vec<RowAddr>,
    /// The number of all rows that pass, if scalar indexes answered the filter; `None` if Lance's scanner looked for
    /// the first ones.
    pub allowed: Option<Allowed>,
}

/// Maximum number of rows of a list whose addresses are looked up in a table with stable row ids. The first search that
/// uses the list looks all of them up, even if it asks for few rows, and the list keeps them: 8 bytes for each row. With
/// more rows, a scan that ends once it has found enough may be cheaper.
const ADDRESSED_ROWS_MAX: u64 = 100_000;

/// The rows that pass a filter, known in address order from an earlier search.
pub struct KnownRows {
    list: Arc<AllowList>,
}

impl KnownRows {
    /// Returns the first `limit` rows, in address order.
    pub fn first(&self, limit: usize) -> FilterHits {
        let rows = match self.list.addresses.get() {
            Some(addresses) => addresses.iter().take(limit).copied().collect(),
            // Without stable row ids, a row's id is its address.
            None => self.list.ids().take(limit).map(RowAddr::from_u64).collect(),
        };
        FilterHits { rows, allowed: Some(self.list.summary()) }
    }
}

impl Table {
    /// Returns the rows that pass `filter` if [`search_filter`](Self::search_filter) would not have to look for them.
    pub fn known_rows(&self, filter: &str) -> Option<KnownRows> {
        let list = self.known_allow_list(filter)?;
        let is_in_order = !self.has_stable_row_ids() || list.addresses.get().is_some();
        is_in_order.then_some(KnownRows { list })
    }

    /// Returns the rows of `list`, which has those that pass `filter`, in address order. Returns `None` if the table
    /// has stable row ids, which have another order, and the list has more than [`ADDRESSED_ROWS_MAX`] rows.
    ///
    /// Errors: those of the store.
    async fn in_order(&self, filter: &str, list: Arc<AllowList>) -> Result<Option<KnownRows>> {
        if self.has_stable_row_ids() && list.addresses.get().is_none() {
            if list.len() > ADDRESSED_ROWS_MAX {
                return Ok(None);
            }
            let rows = self.looked_up(&list).await?;
            // If a concurrent search was first, its addresses are the same.
            list.addresses.get_or_init(|| rows);
            self.allow_lists().weigh(self.open_id(), filter);
        }
        Ok(Some(KnownRows { list }))
    }

    /// Looks up the addresses of the rows of `list`, ascending.
    ///
    /// Errors: those of the store.
    async fn looked_up(&self, list: &AllowList) -> Result<Arc<[RowAddr]>> {
        let ids: Vec<u64> = list.ids().collect();
        let look_up = async { RowAddresses::load(self.dataset()).await?.ascending(&ids) };
        self.on_own_runtime(self.caught(look_up).boxed()).await
    }

    /// Returns the first `limit` rows, in address order, for which the SQL expression `filter` is true. Uses the scalar
    /// indexes of the filter's columns, and scans the rows that they don't cover.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub async fn search_filter(&self, filter: &str, limit: usize) -> Result<FilterHits> {
        if !may_read_clock(filter)
            && let Some(list) = self.allow_list_by_index(filter).await?
            && let Some(known) = self.in_order(filter, list).await?
        {
            return Ok(known.first(limit));
        }
        Ok(FilterHits { rows: self.scan_filter(filter, limit).await?, allowed: None })
    }

    /// Returns the rows for which the SQL expression `filter` is true, ascending; `None` if there are more than `max`.
    /// Keeps the list of the rows that pass for later searches, except for filters that read the clock. If the table has
    /// stable row ids and more than [`ADDRESSED_ROWS_MAX`] rows pass, their addresses are looked up each time.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub async fn rows_passing(&self, filter: &str, max: usize) -> Result<Option<Vec<RowAddr>>> {
        if may_read_clock(filter) {
            let rows = self.scan_filter(filter, max + 1).await?;
            return Ok((rows.len() <= max).then_some(rows));
        }
        let list = self.allow_list(filter).await?;
        if list.len() > max as u64 {
            return Ok(None);
        }
        Ok(Some(match self.in_order(filter, Arc::clone(&list)).await? {
            Some(known) => known.first(max).rows,
            None => self.looked_up(&list).await?.to_vec(),
        }))
    }

    /// Returns the number of rows for which the SQL expression `filter` is true.
    ///
    /// Errors: `BadFilter`, and those of the store.
    pub async fn count_filter(&self, filter: &str) -> Result<u64> {
        if !may_read_clock(filter) {
            return Ok(self.allow_list(filter).await?.len());
        }
        let expr = self.parsed_filter(filter)?;
        // Lance's own count does not read the column that `with_row_columns` puts in place of an address.
        let count = async {
            Ok(self.allowed_by_scan(&expr, None).await?.len().expect("rows are added one by one"))
        };
        self.caught_filter(Some(filter), polled_on_deep_stack(count.boxed())).await
    }

    /// Returns for each of `rows`, which are live, whether the SQL expression `filter` is true.
    ///
    /// Errors: `BadFilter`, `BadExpression` if a filter that reads the clock has no value for a row, and those of the
    /// store.
    pub async fn passes(&self, filter: &str, rows: &[RowAddr]) -> Result<Vec<bool>> {
        if may_read_clock(filter) {
            return self.passes_now(filter, rows).await;
        }
        let list = self.allow_list(filter).await?;
        if !self.has_stable_row_ids() {
            return Ok(rows.iter().map(|row| list.contains(row.to_u64())).collect());
        }
        let mut fragments: Vec<_> = rows.iter().map(|row| row.fragment()).collect();
        fragments.sort_unstable();
        fragments.dedup();
        let mut ids = HashMap::new();
        for fragment in fragments {
            let metadata = self.file_fragment(fragment)?.metadata();
            let load = load_row_id_sequence(self.dataset(), metadata);
            ids.insert(fragment, self.caught(load).await?);
        }
        let id = |row: &RowAddr| ids[&row.fragment()].get(row.offset() as usize);
        Ok(rows.iter().map(|row| id(row).is_some_and(|id| list.contains(id))).collect())
    }

    /// Evaluates a filter that reads the clock, for `rows` alone.
    async fn passes_now(&self, filter: &str, rows: &[RowAddr]) -> Result<Vec<bool>> {
        // Parsed as a filter first, so that a malformed filter is a `BadFilter` error.
        self.parsed_filter(filter)?;
        let of_rows = [ROW_ADDR, ROW_ID].map(|name| Field::new(name, DataType::UInt64, false));
        let expression = self.expression("passes", filter, &of_rows)?;
        let fields = expression.columns.fields().iter();
        let stored =
            fields.clone().filter(|field| !of_rows.iter().any(|it| it.name() == field.name()));
        let stored: Vec<String> = stored.map(|field| field.name().clone()).collect();
        let read = match stored.is_empty() {
            true => None,
            false => Some(self.take(rows, &stored).await?),
        };
        let addresses = UInt64Array::from_iter_values(rows.iter().map(|row| row.to_u64()));
        let addresses: ArrayRef = Arc::new(addresses);
        let column = |name: &str| {
            let stored = read.as_ref().and_then(|read| read.column_by_name(name));
            Arc::clone(stored.unwrap_or(&addresses))
        };
        let columns = fields.map(|field| column(field.name())).collect();
        let passes = expression.evaluate(columns, rows.len())?;
        let passes = passes.as_boolean_opt().ok_or_else(|| LakeError::BadFilter {
            filter: filter.to_owned(),
            why: "it is neither true nor false".into(),
        })?;
        Ok(passes.iter().map(|passes| passes == Some(true)).collect())
    }

    /// Like [`search_filter`](Self::search_filter), but always through Lance's scanner.
    ///
    /// Errors: as `search_filter`.
    pub async fn scan_filter(&self, filter: &str, limit: usize) -> Result<Vec<RowAddr>> {
        let mut scanner = self.dataset().scan();
        self.caught(async { only_addresses(self.dataset(), &mut scanner, &[]) }).await?;
        self.set_filter(&mut scanner, Some(filter))?;
        scanner.scan_in_order(true);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let scan = async {
            scanner.limit(Some(limit), None)?;
            let batch = scanner.try_into_batch().await?;
            let mut found: Vec<_> = addresses(&batch)?.collect();
            found.sort_unstable();
            Ok(found)
        };
        self.caught_filter(Some(filter), polled_on_deep_stack(scan.boxed())).await
    }

    /// Returns the first `limit` rows, in the order `by`, of the rows that pass `filter`, or of all rows without a
    /// filter. Rows that tie have no particular order.
    ///
    /// Errors: `BadFilter`, `ColumnNotFound`, `BadQuery` for a column of blobs, and those of the store.
    pub async fn scan_ordered(
        &self,
        filter: Option<&str>,
        by: &[OrderBy],
        limit: usize,
    ) -> Result<Vec<RowAddr>> {
        self.order_width(by)?;
        let mut scanner = self.dataset().scan();
        self.caught(async { only_addresses(self.dataset(), &mut scanner, &[]) }).await?;
        self.set_filter(&mut scanner, filter)?;
        if limit == 0 {
            // DataFusion panics if it has to put no rows in order.
            return Ok(Vec::new());
        }
        let ordering = |by: &OrderBy| ColumnOrdering {
            ascending: !by.is_descending,
            nulls_first: by.nulls_first,
            column_name: by.column.clone(),
        };
        let ordering = by.iter().map(ordering).collect();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let scan = async {
            scanner.order_by(Some(ordering))?.limit(Some(limit), None)?;
            let batch = scanner.try_into_batch().await?;
            Ok(addresses(&batch)?.collect())
        };
        self.caught_filter(filter, polled_on_deep_stack(scan.boxed())).await
    }

    /// Returns the number of bytes of a row's values in those columns of an order that have a fixed width, and whether
    /// all of them have one.
    ///
    /// Errors: `ColumnNotFound`, and `BadQuery` for a column of blobs.
    pub fn order_width(&self, by: &[OrderBy]) -> Result<(usize, bool)> {
        let (mut width, mut is_fixed) = (0_usize, true);
        for OrderBy { column, .. } in by {
            let field = match self.shown_fields().field(column) {
                None => return Err(LakeError::column_not_found(column, self.schema())),
                Some(field) if field.is_blob() => {
                    let why = format!("column {column:?} holds blobs, which have no order");
                    return Err(LakeError::BadQuery { why });
                }
                Some(field) => field,
            };
            match fixed_bytes(&field.data_type()) {
                Some(bytes) => width = width.saturating_add(bytes as usize),
                None => is_fixed = false,
            }
        }
        Ok((width, is_fixed))
    }

    /// Sets `filter` on `scanner`, and the condition on rows if this is a part of a table.
    ///
    /// Errors: `BadFilter`.
    pub(crate) fn set_filter(&self, scanner: &mut Scanner, filter: Option<&str>) -> Result<()> {
        if let Some(filter) = self.filter_or_condition(filter) {
            scanner.filter_expr(self.parsed_filter(filter)?);
        }
        Ok(())
    }

    /// Checks the tokens of `filter`, and parses it. The filter is parsed before a search begins so that errors in it
    /// are distinguished from errors of the search. If this is a part of a table, the expression also contains the
    /// condition on rows.
    ///
    /// Errors: `BadFilter`.
    pub(crate) fn parsed_filter(&self, filter: &str) -> Result<Expr> {
        if let Some(condition) = self.condition().filter(|_| self.is_condition_alone(filter)) {
            return Ok(condition.expr.clone());
        }
        self.with_condition(filter, self.parsed_alone(filter)?)
    }

    /// Parses `filter`, without the condition on rows.
    fn parsed_alone(&self, filter: &str) -> Result<Expr> {
        let bad =
            |why: String| LakeError::BadFilter { filter: filter.to_owned(), why: shortened(&why) };
        if filter.trim().is_empty() {
            return Err(bad("it is empty".into()));
        }
        tokens::check(filter).map_err(bad)?;
        let mut scanner = self.dataset().scan();
        let mut parsed = |text: &str| {
            let parsed = match self.shown_part() {
                None => on_deep_stack(|| scanner.filter(text)?.get_expr_filter()),
                Some(part) => self.parsed_in_part(part, text.to_owned()).map(Some),
            };
            parsed.map_err(|error| bad(self.filter_error(filter, &one_line(&error.to_string()))))
        };
        // Lance parses the first complete expression and ignores the text after it. In parentheses, such text is an
        // error.
        let enclosed = parsed(&format!("({filter}\n)"));
        let expr = match enclosed {
            // Errors are worded for the filter as it was written.
            Err(error) => return Err(parsed(filter).err().unwrap_or(error)),
            Ok(expr) => expr,
        };
        let expr = expr.ok_or_else(|| bad("it has no expression".into()))?;
        check_names(&expr).map_err(bad)?;
        self.with_row_columns(filter, expr)
    }

    /// Returns what is wrong with `filter`, without the text that DataFusion wraps around it.
    fn filter_error(&self, filter: &str, text: &str) -> String {
        let between = |begin: &str, end: &str| {
            let (_, after) = text.split_once(begin)?;
            Some(after.split_once(end).map_or(after, |(inside, _)| inside))
        };
        if let Some(column) = between("Schema error: No field named ", ". ") {
            let column = column.trim_end_matches('.').trim_matches(['"', '`']);
            let error = LakeError::column_not_found(column, self.schema());
            let said = error.to_string();
            let is_unlike_all = matches!(
                &error,
                LakeError::ColumnNotFound { column, available }
                    if column_hint(column, available).is_empty()
            );
            let hint = if is_unlike_all { text_hint(filter, column) } else { None };
            return said + &hint.unwrap_or_default();
        }
        if let Some((_, problem)) = text.rsplit_once("(sql parser error: ") {
            let problem = problem.strip_suffix(')').unwrap_or(problem);
            let problem = problem.split(" at Line").next().unwrap_or(problem);
            let problem = problem.replace("Expected: ", "expected ").replace("found: ", "found ");
            let problem = problem.replace("found EOF", "found its end");
            return format!("{problem}; {EXAMPLE}");
        }
        if let Some(function) = between("Invalid function '", "'") {
            return format!("there is no function `{function}`");
        }
        let literal = between("Received literal ", " and could not convert to literal of type ");
        if let (Some(literal), Some(data_type)) = (literal, between("literal of type '", "'")) {
            return literal::mismatch(literal, data_type);
        }
        without_wrapping(filter, text)
    }
}

/// Refuses columns that Lance's scanner plans and then can't read, because it reads their names as paths of fields.
fn check_names(expr: &Expr) -> std::result::Result<(), String> {
    let columns = on_deep_stack(|| expr.column_refs());
    match columns.into_iter().find(|column| has_no_path(&column.name)) {
        None => Ok(()),
        Some(column) => Err(format!(
            "a filter can't use column {:?}, because its name is empty or has a backquote; rename the column",
            column.name
        )),
    }
}

/// Removes from Lance's and DataFusion's message `text` the phrases that introduce it. `text` is one line, even if
/// `filter` has several.
fn without_wrapping(filter: &str, text: &str) -> String {
    let wrapped = [
        "Error parsing function: ",
        "Error during planning: ",
        "Schema error: ",
        &format!("Error resolving filter expression {}: ", one_line(filter)),
    ];
    wrapped.iter().fold(text.to_owned(), |text, wrapping| text.replace(wrapping, ""))
}

//! The questions of a Tune: vectors that the caller gave, or rows of the table.

use std::collections::HashSet;

use address::RowAddr;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wire::query::TuneRequest;

use super::{PART_TIMEOUT, QUESTIONS_MAX, ROWS_DEFAULT, Tune};
use crate::error::{QueryError, Result};
use crate::fetch::{Vectors, fetch_rows, present};
use crate::request_context::RequestContext;
use crate::stages::check_vector;
use crate::state::ShardState;
use crate::tables::OpenTable;

/// The number of rows that are fetched at once.
const FETCHED_ROWS: usize = 256;

/// The number of rows that are drawn for each one that is needed, before the draw gives up: rows may be deleted, drawn
/// twice, or without a vector.
const DRAWS_PER_ROW: usize = 20;

/// A question.
pub struct TuneQuestion {
    pub vector: Vec<f32>,
    /// The row that the vector comes from; `None` if the caller gave the vector.
    pub row: Option<RowAddr>,
}

/// The questions of a Tune request.
pub enum Asked {
    /// The vectors that the caller gave.
    Given(Vec<Vec<f32>>),
    /// `count` rows, drawn at random with `seed`.
    Rows { count: usize, seed: u64 },
}

impl Asked {
    /// Validates the questions of a request.
    ///
    /// # Errors
    /// `BadRequest`, and the errors of [`check_vector`].
    pub fn of(open: &OpenTable, column: &str, request: TuneRequest) -> Result<Self> {
        let bad = |field, problem| Err(QueryError::BadRequest { field, problem });
        let TuneRequest { rows, questions, seed, .. } = request;
        if questions.is_empty() {
            let rows = if rows == 0 { ROWS_DEFAULT } else { rows };
            return match rows as usize {
                count if count > QUESTIONS_MAX => {
                    bad("rows", format!("is {rows}; draw at most {QUESTIONS_MAX}"))
                }
                count => Ok(Self::Rows { count, seed }),
            };
        }
        if rows > 0 {
            return bad("rows", "is set beside `questions`; leave one of them out".into());
        }
        if questions.len() > QUESTIONS_MAX {
            let problem = format!("has {} vectors; give at most {QUESTIONS_MAX}", questions.len());
            return bad("questions", problem);
        }
        questions
            .iter()
            .try_for_each(|vector| check_vector(open, column, &vector.values).map(drop))?;
        Ok(Self::Given(questions.into_iter().map(|vector| vector.values).collect()))
    }

    /// Returns the number of questions.
    pub fn count(&self) -> usize {
        match self {
            Self::Given(vectors) => vectors.len(),
            Self::Rows { count, .. } => *count,
        }
    }
}

/// Returns the questions. Rows are drawn from those that the index covers; fewer than asked for if it covers fewer, or
/// if too many of them are deleted or have no vector.
pub async fn draw(
    state: &ShardState,
    tune: &Tune,
    asked: &Asked,
    context: RequestContext,
) -> Result<Vec<TuneQuestion>> {
    let (count, seed) = match asked {
        Asked::Given(vectors) => {
            let question = |vector: &Vec<f32>| TuneQuestion { vector: vector.clone(), row: None };
            return Ok(vectors.iter().map(question).collect());
        }
        Asked::Rows { count, seed } => (*count, *seed),
    };
    let fragments = tune.covered_fragments();
    let total: u64 = fragments.iter().map(|(_, rows)| u64::from(*rows)).sum();
    let mut random = StdRng::seed_from_u64(seed);
    let (mut drawn, mut questions) = (HashSet::new(), Vec::with_capacity(count));
    let mut draws = 0;
    while questions.len() < count && draws < count * DRAWS_PER_ROW && (drawn.len() as u64) < total {
        let mut addrs = Vec::new();
        let wanted = (count - questions.len()).min(FETCHED_ROWS);
        while addrs.len() < wanted && draws < count * DRAWS_PER_ROW {
            draws += 1;
            let addr = addr_at(&fragments, random.random_range(0..total));
            let is_deleted =
                tune.open.table.deleted(addr.fragment()).await?.contains(addr.offset());
            if !is_deleted && drawn.insert(addr) {
                addrs.push(addr);
            }
        }
        addrs.sort_unstable();
        questions.extend(fetched(state, tune, &addrs, context).await?);
    }
    Ok(questions)
}

/// Fetches the vectors of rows. Rows without a finite vector are left out.
async fn fetched(
    state: &ShardState,
    tune: &Tune,
    addrs: &[RowAddr],
    context: RequestContext,
) -> Result<Vec<TuneQuestion>> {
    let projection = tune.open.project(std::slice::from_ref(&tune.column))?;
    let context = context.with_timeout(PART_TIMEOUT);
    let rows = fetch_rows(state, &tune.open, addrs, &projection, context).await?;
    let vectors = Vectors::of(rows.rows.column(0))?;
    let there = present(addrs.len(), &rows.missing).map(|at| addrs[at]);
    let question = |(row, addr): (usize, RowAddr)| {
        Some(TuneQuestion { vector: vectors.finite(row)?.to_vec(), row: Some(addr) })
    };
    Ok(there.enumerate().filter_map(question).collect())
}

/// Returns the address of the row at the position `at` among all rows of `fragments`, deleted ones too.
fn addr_at(fragments: &[(u32, u32)], mut at: u64) -> RowAddr {
    for (id, rows) in fragments {
        match u32::try_from(at) {
            Ok(offset) if offset < *rows => return RowAddr::new(*id, offset),
            _ => at -= u64::from(*rows),
        }
    }
    unreachable!("the position is below the number of rows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_has_a_row() {
        let fragments = [(3, 2), (7, 0), (9, 1)];
        let all: Vec<_> = (0..3).map(|at| addr_at(&fragments, at)).collect();
        assert_eq!(all, [RowAddr::new(3, 0), RowAddr::new(3, 1), RowAddr::new(9, 0)]);
    }
}

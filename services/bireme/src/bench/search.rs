//! `bench search`: searches on a query node.

use clap::ValueEnum;
use client::query::{By, QueryClient, SearchRequest, Text, Vector};
use rand::rngs::StdRng;
use wire::Fault;

use super::query_vectors::QueryVectors;
use super::query_words::QueryWords;
use super::target::Target;
use super::workload::{Done, Workload, random};
use crate::error::Result;

/// What is searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SearchBy {
    /// Vectors of the table, with some noise.
    #[default]
    Vector,
    /// Two words of a row's text.
    Words,
    /// The first rows that pass --filter.
    Filter,
}

impl SearchBy {
    /// Returns the name in reports.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The settings of a load of searches.
#[derive(Clone, Debug)]
pub struct SearchPlan {
    /// What is searched for.
    pub by: SearchBy,
    /// The vector or text column, if given.
    pub column: Option<String>,
    /// The number of rows in each answer.
    pub k: u32,
    /// The number of index partitions to search; 0 for the node's default.
    pub nprobes: u32,
    /// Candidates to score exactly for each requested row; the node's default if not given.
    pub refine: Option<u32>,
    /// The predicate that rows must match; empty for none.
    pub filter: String,
    /// The columns to return; if empty, all but vectors and blobs.
    pub columns: Vec<String>,
    /// The seed with which queries are drawn.
    pub seed: u64,
}

/// The queries of a load.
enum Queries {
    Vectors(QueryVectors),
    Words(QueryWords, String),
    Filter,
}

impl Queries {
    async fn draw(target: &Target, plan: &SearchPlan) -> Result<Self> {
        let column = plan.column.as_deref();
        Ok(match plan.by {
            SearchBy::Vector => {
                let column = target.vector_column(column)?;
                Self::Vectors(QueryVectors::draw(target, &column, plan.seed).await?)
            }
            SearchBy::Words => {
                let column = target.text_column(column)?;
                Self::Words(QueryWords::draw(target, &column, plan.seed).await?, column)
            }
            SearchBy::Filter => Self::Filter,
        })
    }

    fn next(&self, random: &mut StdRng) -> Option<By> {
        match self {
            Self::Vectors(vectors) => Some(By::Vector(Vector { values: vectors.next(random) })),
            Self::Words(words, column) => {
                Some(By::Text(Text { words: words.next(random), column: column.clone() }))
            }
            Self::Filter => None,
        }
    }
}

/// A benchmark's load of searches.
pub struct SearchLoad {
    clients: Vec<QueryClient>,
    queries: Queries,
    request: SearchRequest,
    seed: u64,
}

impl SearchLoad {
    /// Draws the queries.
    pub async fn prepare(
        target: &Target,
        clients: Vec<QueryClient>,
        plan: SearchPlan,
    ) -> Result<Self> {
        let queries = Queries::draw(target, &plan).await?;
        let vector_column = match plan.by {
            SearchBy::Vector => target.vector_column(plan.column.as_deref())?,
            SearchBy::Words | SearchBy::Filter => String::new(),
        };
        let request = SearchRequest {
            table: target.table.name.clone(),
            version: target.table.version,
            by: None,
            filter: plan.filter,
            k: plan.k,
            columns: plan.columns,
            vector_column,
            nprobes: plan.nprobes,
            refine_factor: plan.refine,
            explain: false,
            key_column: String::new(),
            ..Default::default()
        };
        Ok(Self { clients, queries, request, seed: plan.seed })
    }
}

impl Workload for SearchLoad {
    async fn request(&self, number: u64) -> std::result::Result<Done, Fault> {
        let by = self.queries.next(&mut random(self.seed, number));
        let request = SearchRequest { by, ..self.request.clone() };
        let client = &self.clients[number as usize % self.clients.len()];
        let found = client.search(request).await?;
        Ok(Done { rows: found.rows.num_rows() as u64, missing: 0 })
    }
}

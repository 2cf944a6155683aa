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

/// The kind of search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SearchBy {
    /// Vectors of the table, with some noise.
    #[default]
    Vector,
    /// Two words of a row's text.
    Words,
    /// A vector and two words, of different rows.
    Hybrid,
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
    /// The kind of search.
    pub by: SearchBy,
    /// The vector or text column, if given.
    pub column: Option<String>,
    /// The number of rows in each answer.
    pub k: u32,
    /// The number of index partitions to search; 0 for the node's default.
    pub nprobes: u32,
    /// Candidates to score exactly for each requested row; the node's default if not given.
    pub refine: Option<u32>,
    /// The share of the nearest rows to find, in place of `nprobes` and `refine`.
    pub recall: Option<f32>,
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
    Hybrid(QueryVectors, QueryWords, String),
    Filter,
}

impl Queries {
    /// Draws the queries. `vector_column` is empty if no vectors are searched for.
    async fn draw(target: &Target, plan: &SearchPlan, vector_column: &str) -> Result<Self> {
        let vectors = QueryVectors::draw(target, vector_column, plan.seed);
        let words = async |column: Option<&str>| {
            let column = target.text_column(column)?;
            Result::Ok((QueryWords::draw(target, &column, plan.seed).await?, column))
        };
        let column = plan.column.as_deref();
        Ok(match plan.by {
            SearchBy::Vector => Self::Vectors(vectors.await?),
            SearchBy::Words => {
                let (words, column) = words(column).await?;
                Self::Words(words, column)
            }
            SearchBy::Hybrid => {
                let (vectors, (words, text_column)) = (vectors.await?, words(None).await?);
                Self::Hybrid(vectors, words, text_column)
            }
            SearchBy::Filter => Self::Filter,
        })
    }

    /// Returns a random query, or `None` for searches by a filter alone. For hybrid searches, also returns the words
    /// whose results are fused with the query's.
    fn next(&self, random: &mut StdRng) -> (Option<By>, Option<Text>) {
        let near = |vectors: &QueryVectors, random: &mut StdRng| {
            Some(By::Vector(Vector { values: vectors.next(random) }))
        };
        let text = |words: &QueryWords, column: &String, random: &mut StdRng| Text {
            words: words.next(random),
            column: column.clone(),
            query: None,
        };
        match self {
            Self::Vectors(vectors) => (near(vectors, random), None),
            Self::Words(words, column) => (Some(By::Text(text(words, column, random))), None),
            Self::Hybrid(vectors, words, column) => {
                (near(vectors, random), Some(text(words, column, random)))
            }
            Self::Filter => (None, None),
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
        let vector_column = match plan.by {
            SearchBy::Vector | SearchBy::Hybrid => target.vector_column(plan.column.as_deref())?,
            SearchBy::Words | SearchBy::Filter => String::new(),
        };
        let queries = Queries::draw(target, &plan, &vector_column).await?;
        let request = SearchRequest {
            table: target.table.name.clone(),
            version: target.table.version,
            branch: target.branch.clone(),
            by: None,
            filter: plan.filter,
            k: plan.k,
            columns: plan.columns,
            vector_column,
            nprobes: plan.nprobes,
            refine_factor: plan.refine,
            recall: plan.recall,
            explain: false,
            key_column: String::new(),
            ..Default::default()
        };
        Ok(Self { clients, queries, request, seed: plan.seed })
    }
}

impl Workload for SearchLoad {
    async fn request(&self, number: u64) -> std::result::Result<Done, Fault> {
        let (by, fused_with) = self.queries.next(&mut random(self.seed, number));
        let request = SearchRequest { by, fused_with, ..self.request.clone() };
        let client = &self.clients[number as usize % self.clients.len()];
        let found = client.search(request).await?;
        Ok(Done { rows: found.rows.num_rows() as u64, missing: 0 })
    }
}

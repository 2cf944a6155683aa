//! Searches by words, alone and beside a vector.

use lance_index::scalar::FullTextSearchQuery;
use lance_index::scalar::inverted::query::{
    BooleanQuery, BoostQuery, CombinedFieldsQuery, FtsQuery, MatchQuery, MultiMatchQuery, Occur,
    Operator, PhraseQuery,
};
use lancedb::query::{QueryBase, Select};
use lancedb::{Table, connect};

use crate::found::{Found, Result};
use crate::question::Question;

const COLUMN: &str = "text";

fn matching(terms: &str) -> MatchQuery {
    MatchQuery::new(terms.into()).with_column(Some(COLUMN.into()))
}

fn phrase(terms: &str) -> PhraseQuery {
    PhraseQuery::new(terms.into()).with_column(Some(COLUMN.into()))
}

pub async fn search(items: &Table, question: &Question, found: &mut Found) -> Result<()> {
    let multi_match = MultiMatchQuery::try_new("garden number5".into(), vec![COLUMN.into()])?;
    let oak_without_river = BooleanQuery::new([
        (Occur::Must, matching("oak").into()),
        (Occur::MustNot, matching("river").into()),
    ]);
    let either = BooleanQuery::new([
        (Occur::Should, phrase("oak river").into()),
        (Occur::Should, matching("number13").into()),
    ]);
    let queries: [(&str, FtsQuery); 10] = [
        ("words", matching("oak river").into()),
        ("words_of_any_column", MatchQuery::new("puppy".into()).into()),
        ("all_words", matching("oak river").with_operator(Operator::And).into()),
        ("fuzzy", matching("garde").with_fuzziness(Some(1)).into()),
        ("phrase", phrase("oak river").into()),
        ("sloppy_phrase", phrase("oak river").with_slop(1).into()),
        (
            "demoted",
            BoostQuery::new(matching("oak").into(), matching("river").into(), Some(0.3)).into(),
        ),
        ("oak_without_river", oak_without_river.into()),
        ("either", either.into()),
        ("several_columns", multi_match.into()),
    ];
    for (name, query) in queries {
        let search = items.query().full_text_search(FullTextSearchQuery::new_query(query));
        found.rows(name, search.limit(30).select(Select::columns(&["id", "text"]))).await?;
    }
    let combined = CombinedFieldsQuery::try_new("garden number5".into(), vec![COLUMN.into()])?;
    let local = connect(&question.folder).execute().await?.open_table("items").execute().await?;
    // Python's client lacks this query, so this one has to read locally too.
    for (name, table) in [("combined_columns", items), ("combined_columns_locally", &local)] {
        let search = FullTextSearchQuery::new_query(combined.clone().into());
        let search = table.query().full_text_search(search).limit(30);
        found.rows(name, search.select(Select::columns(&["id"]))).await?;
    }
    let filtered = items.query().full_text_search(FullTextSearchQuery::new("puppy".into()));
    found
        .rows(
            "filtered_words",
            filtered.only_if("id < 300").limit(200).select(Select::columns(&["id"])),
        )
        .await?;

    let hybrid = items.query().full_text_search(FullTextSearchQuery::new("puppy garden".into()));
    let hybrid = hybrid.nearest_to(question.vector.as_slice())?.bypass_vector_index();
    found.rows("hybrid", hybrid.limit(8)).await
}

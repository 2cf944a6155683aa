//! Reads through Bireme with LanceDB's client for Rust, and prints what it finds as JSON: rows as Arrow streams in
//! base64, by the name of their query. It checks nothing; `lancedb_clients/test_rust.py` compares with local reads.
//!
//! usage: lancedb-rust URL QUESTION, where QUESTION is the JSON of a [`question::Question`]

mod errors;
mod found;
mod question;
mod rows;
mod tables;
mod vectors;
mod versions;
mod words;

use std::env;
use std::time::Duration;

use lancedb::{Connection, connect};

use found::{Found, Result};
use question::Question;

/// The client needs a key. A node without an access policy accepts any.
const KEY: &str = "any";
/// The client needs a region too, which it then does not use, because of `host_override`.
const REGION: &str = "any";

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(url), Some(question), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: lancedb-rust URL QUESTION".into());
    };
    let question: Question = serde_json::from_str(&question)?;
    let db = connection(&url).await?;
    let items = db.open_table("items").execute().await?;
    let mut found = Found::default();

    tables::read(&db, &items, &mut found).await?;
    vectors::search(&db, &items, &question, &mut found).await?;
    words::search(&items, &question, &mut found).await?;
    rows::read(&items, &question, &mut found).await?;
    errors::provoke(&db, &items, &question, &mut found).await?;
    // A handle follows a checkout, so the versions get one of their own.
    versions::read(&db, &mut found).await?;

    println!("{}", found.into_json());
    Ok(())
}

/// Connects, so that each read is of the latest version.
async fn connection(url: &str) -> Result<Connection> {
    let it = connect("db://default").api_key(KEY).region(REGION).host_override(url);
    Ok(it.read_consistency_interval(Duration::ZERO).execute().await?)
}

//! `bireme search`: finds rows by vector, similarity to a row, words or a filter.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};
use client::query::{By, Found, SearchRequest, Text, Vector};
use serde_json::json;

use crate::arguments::{
    Connection, PriorityArgs, TableArgs, parse_at_least_1, parse_column, parse_filter, read_vector,
};
use crate::error::{CliError, Result};
use crate::output::{Output, RowLayout, counted, micros, stages_json, stages_text};

const EXAMPLES: &str = "\
Examples:
  bireme search words --text 'strong wind'
  bireme search words --like n02503517 -k 5 --columns synset,gloss
  bireme search words --like 17 --key-column id
  bireme search words --like n02503517 --text elephant --text-weight 0.5
  bireme search words --like n02503517 --recall 0.95 --explain
  bireme search words --vector query.json --filter \"pos = 'noun'\" --explain
  bireme search words --filter \"domain = 13\" --json
  model \"a boat\" | bireme search words --vector -

A vector's file holds a JSON array, numbers with spaces or commas between them,
NumPy (.npy, float32, one dimension) or raw little-endian float32 (.f32). The
best rows come first, with `_distance` (smaller is nearer) or `_score` (larger
is better). --text beside --like or --vector is a hybrid search: the ranks of
both are fused into a `_relevance_score` (larger is better). With --json each
row is a line; --explain adds a last line {\"_explain\": {\"version\",
\"exhaustive\", \"stages\"}}, in which exhaustive says whether rows were
compared one by one, without an index.";

/// The heading in `--help` of flags that only searches with --like or --vector have.
const NEAR: &str = "Nearest rows (with --like or --vector)";

/// Arguments of `bireme search`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("what").required(true).multiple(true)
    .args(["like", "vector", "text", "filter"]))]
#[command(group = ArgGroup::new("near").args(["like", "vector"]))]
pub struct SearchArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The rows nearest to the row with this key; the table needs a vector column
    #[arg(long, value_name = "KEY", value_hint = ValueHint::Other, allow_negative_numbers = true)]
    like: Option<String>,
    /// The column that the key of --like is looked up in [default: the table's key column]
    #[arg(long, value_name = "COLUMN", value_hint = ValueHint::Other, requires = "like", conflicts_with = "vector")]
    key_column: Option<String>,
    /// The rows nearest to the vector in a file; `-` is stdin
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    vector: Option<PathBuf>,
    /// The rows that match words best; with --like or --vector, a hybrid search
    #[arg(long, value_name = "WORDS", value_hint = ValueHint::Other)]
    text: Option<String>,
    /// The weight of --text in a hybrid search, relative to the vector [default: 1]
    #[arg(long, value_name = "WEIGHT", requires = "text", requires = "near")]
    text_weight: Option<f32>,
    /// The text column of a hybrid search, if the table has several
    #[arg(long, value_name = "COLUMN", value_hint = ValueHint::Other, requires = "text", requires = "near")]
    text_column: Option<String>,
    /// A SQL predicate that rows must match; alone, or with --like, --vector or --text
    #[arg(long, value_name = "SQL", value_hint = ValueHint::Other, value_parser = parse_filter)]
    filter: Option<String>,
    /// The number of rows to return
    #[arg(
        short,
        value_name = "ROWS",
        default_value_t = 10,
        value_parser = parse_at_least_1,
        allow_negative_numbers = true
    )]
    k: u32,
    /// The vector or text column to search, if the table has several
    #[arg(long, value_name = "COLUMN", value_hint = ValueHint::Other)]
    column: Option<String>,
    /// Columns to show [default: all but vectors and blobs]
    #[arg(long, value_name = "A,B", value_hint = ValueHint::Other, value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    /// Index partitions to search [default: 20]
    #[arg(long, value_name = "N", value_parser = parse_at_least_1, allow_negative_numbers = true)]
    #[arg(help_heading = NEAR)]
    nprobes: Option<u32>,
    /// Candidates to score exactly for each requested row; 0 takes the index's distances [default: 10]
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    #[arg(help_heading = NEAR)]
    refine: Option<u32>,
    /// The share of the nearest rows to find, such as 0.95, by the curve of `bireme tune`; in place of
    /// --nprobes and --refine
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, conflicts_with_all = ["nprobes", "refine"])]
    #[arg(help_heading = NEAR)]
    recall: Option<f32>,
    /// Show how long each stage took
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    priority: PriorityArgs,
    #[command(flatten)]
    connection: Connection,
}

impl SearchArgs {
    /// Refuses flags of another kind of search, which would otherwise be ignored.
    fn check(&self) -> Result<()> {
        let is_near = self.like.is_some() || self.vector.is_some();
        let has_column = is_near || self.text.is_some();
        for (flag, is_set, fits, searches) in [
            ("--nprobes", self.nprobes.is_some(), is_near, "--like or --vector"),
            ("--refine", self.refine.is_some(), is_near, "--like or --vector"),
            ("--recall", self.recall.is_some(), is_near, "--like or --vector"),
            ("--column", self.column.is_some(), has_column, "--like, --vector or --text"),
        ] {
            if is_set && !fits {
                let problem = format!("{flag} needs a search with {searches}; leave it out");
                return Err(CliError::usage(problem));
            }
        }
        Ok(())
    }

    fn request(self) -> Result<SearchRequest> {
        self.check()?;
        let column = self.column.unwrap_or_default();
        let mut request = SearchRequest {
            table: self.table.table,
            version: self.table.table_version,
            by: None,
            filter: self.filter.unwrap_or_default(),
            k: self.k,
            columns: self.columns,
            vector_column: String::new(),
            nprobes: self.nprobes.unwrap_or(0),
            refine_factor: self.refine,
            explain: self.explain,
            key_column: self.key_column.unwrap_or_default(),
            priority: self.priority.number(),
            fused_with: None,
            text_weight: self.text_weight,
            recall: self.recall,
        };
        request.by = match (self.like, self.vector) {
            (Some(key), _) => Some(By::Like(key)),
            (None, Some(file)) => Some(By::Vector(Vector { values: read_vector(&file)? })),
            (None, None) => {
                request.by = self.text.map(|words| By::Text(Text { words, column }));
                return Ok(request);
            }
        };
        let text_column = self.text_column.unwrap_or_default();
        request.fused_with = self.text.map(|words| Text { words, column: text_column });
        request.vector_column = column;
        Ok(request)
    }
}

/// Searches.
pub async fn run(args: SearchArgs, out: &mut Output) -> Result<()> {
    let connection = args.connection.clone();
    // Make the request before connecting, so that a bad file is reported without a connection.
    let request = args.request()?;
    let explain = request.explain;
    let client = connection.open().await?;
    let began = std::time::Instant::now();
    let found = client.search(request).await?;
    let took = began.elapsed();
    out.rows(&found.rows, RowLayout::Table)?;
    match (out.json(), explain) {
        (true, true) => {
            let Found { version, exhaustive, stages, .. } = &found;
            let stages = stages_json(stages);
            let explain = json!({"version": version, "exhaustive": exhaustive, "stages": stages});
            out.document(&json!({"_explain": explain}))
        }
        (true, false) => Ok(()),
        (false, _) => {
            let took = took.as_secs_f64() * 1e6;
            let rows = counted(found.rows.num_rows() as u64, "row", "rows");
            let (version, took) = (found.version, micros(took));
            let how = match found.exhaustive {
                true => "; without an index, by comparing rows one by one",
                false => "",
            };
            out.line(format_args!("({rows} of version {version} in {took}{how})"))?;
            if explain { waterfall(&found, out) } else { Ok(()) }
        }
    }
}

fn waterfall(found: &Found, out: &mut Output) -> Result<()> {
    let text = stages_text(&found.stages, out.width());
    out.bytes(format!("\n{text}").as_bytes())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn asked(arguments: &[&str]) -> Result<SearchRequest> {
        let arguments = ["bireme", "search", "t"].iter().chain(arguments);
        match Cli::try_parse_from(arguments) {
            Ok(Cli { command: Command::Search(args), .. }) => args.request(),
            other => panic!("{other:?}"),
        }
    }

    fn request(arguments: &[&str]) -> SearchRequest {
        asked(arguments).unwrap()
    }

    #[test]
    fn arguments_become_a_request() {
        let asked = request(&["--text", "a b", "--column", "w", "--filter", "x > 1", "-k", "3"]);
        assert_eq!(asked.by, Some(By::Text(Text { words: "a b".into(), column: "w".into() })));
        assert_eq!(
            (asked.k, asked.filter.as_str(), asked.vector_column.as_str()),
            (3, "x > 1", "")
        );
        let asked =
            request(&["--like", "7", "--column", "v", "--refine", "0", "--columns", "a, b"]);
        assert_eq!(asked.by, Some(By::Like("7".into())));
        assert_eq!(request(&["--like", "-7", "--key-column", "id"]).key_column, "id");
        assert_eq!((asked.vector_column.as_str(), asked.refine_factor), ("v", Some(0)));
        assert_eq!(asked.columns, ["a", "b"]);
        let hybrid = ["--like", "7", "--text", "a b", "--column", "v", "--text-column", "t"];
        let asked = request(&[&hybrid[..], &["--text-weight", "0.5"]].concat());
        assert_eq!((asked.by, asked.vector_column.as_str()), (Some(By::Like("7".into())), "v"));
        assert_eq!(asked.fused_with, Some(Text { words: "a b".into(), column: "t".into() }));
        assert_eq!(asked.text_weight, Some(0.5));
        let asked = request(&["--filter", "true", "--table-version", "4", "--explain"]);
        assert_eq!((asked.by, asked.version, asked.k, asked.explain), (None, 4, 10, true));
    }

    #[test]
    fn exactly_one_kind_of_search_is_accepted() {
        for arguments in [
            &[][..],
            &["--like", "a", "--vector", "b"],
            &["--text", "a", "--text-weight", "2"],
            &["--like", "a", "--text-weight", "2"],
            &["--text", "a", "--text-column", "t"],
            &["--like", "a", "--nprobes", "0"],
            &["--like", "a", "--nprobes", "5", "--recall", "0.9"],
            &["--like", "a", "--refine", "5", "--recall", "0.9"],
            &["--text", "a", "--key-column", "b"],
        ] {
            let arguments = ["bireme", "search", "t"].iter().chain(arguments);
            assert!(Cli::try_parse_from(arguments).is_err());
        }
    }

    #[test]
    fn flags_of_another_kind_of_search_are_refused() {
        for (search, flag) in [
            (["--text", "a"], ["--nprobes", "5"]),
            (["--text", "a"], ["--refine", "0"]),
            (["--filter", "true"], ["--nprobes", "5"]),
            (["--filter", "true"], ["--refine", "1"]),
            (["--text", "a"], ["--recall", "0.9"]),
            (["--filter", "true"], ["--column", "b"]),
        ] {
            let error = asked(&[search, flag].concat()).unwrap_err();
            assert_eq!(error.exit().number(), 2);
            let said = error.message();
            let expected = format!("{} needs a search with --like", flag[0]);
            assert!(said.starts_with(&expected), "{said}");
        }
        let near = ["--like", "a", "--filter", "true", "--nprobes", "5", "--column", "v"];
        assert_eq!(request(&near).nprobes, 5);
        request(&["--text", "a", "--column", "w"]);
        assert_eq!(request(&["--like", "a", "--recall", "0.95"]).recall, Some(0.95));
    }
}

//! `bireme search`: finds rows by vector, similarity to a row, words or a filter.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};
use client::query::{By, Found, NamedExpression, OrderBy, SearchRequest, Vector, Vectors};
use serde_json::json;

use crate::arguments::{
    Connection, Nulls, PriorityArgs, TEXT, TableArgs, TextArgs, parse_at_least_1, parse_column,
    parse_expression, parse_filter, parse_order, read_vector, read_vectors,
};
use crate::error::{CliError, Result};
use crate::output::{Output, RowLayout, counted, micros, stages_json, stages_text};

const EXAMPLES: &str = "\
Examples:
  bireme search words --text 'strong wind'
  bireme search words --text mamal --fuzzy auto
  bireme search words --phrase 'of the sea' --must-not fish
  bireme search words --like n02503517 -k 5 --columns synset,gloss
  bireme search words --like 17 --key-column id
  bireme search words --like n02503517 --text elephant --text-weight 0.5
  bireme search words --like n02503517 --recall 0.95 --explain
  bireme search words --vector query.json --filter \"pos = 'noun'\" --explain
  bireme search words --like n02503517 --expression 'near=1 - _distance'
  bireme search words --filter \"domain = 13\" --order-by synset:desc --json
  bireme search words --vectors queries.parquet -k 3
  model \"a boat\" | bireme search words --vector -

A vector's file holds a JSON array, numbers with spaces or commas between them,
NumPy (.npy, float32, one dimension) or raw little-endian float32 (.f32). The
file of --vectors has up to 100 of them as a column, in a format that `bireme
ingest` reads; the answer has -k rows for the first vector, then for the next.
The best rows come first, with `_distance` (smaller is nearer) or `_score`
(larger is better). --text beside --like or --vector is a hybrid search: the
ranks of both are fused into a `_relevance_score` (larger is better). With
--json each row is a line; --explain adds a last line {\"_explain\": {\"version\",
\"exhaustive\", \"stages\"}}, in which exhaustive says whether rows were compared
one by one, without an index.

Beside --must or --phrase, --text finds no further rows, but rows that match it
are ranked higher. --fuzzy auto allows no edit in words of up to 2 letters, one
in words of up to 5, otherwise two, and reduces a word to its stem first if the
index has stems; --fuzzy 1 compares the word as it is with the index's words.";

/// Maximum number of vectors of a request that a node accepts.
const VECTORS_MAX: usize = 100;

/// The heading in `--help` of flags that apply only to searches by vector.
const NEAR: &str = "Nearest rows (with --like, --vector or --vectors)";

/// Arguments of `bireme search`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("what").required(true).multiple(true)
    .args(["like", "vector", "vectors", "text", "must", "phrase", "filter"]))]
#[command(group = ArgGroup::new("near").args(["like", "vector", "vectors"]))]
#[command(group = ArgGroup::new("words").multiple(true).args(["text", "must", "phrase"]))]
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
    /// The rows nearest to each vector in a file that has a column of vectors; `query_index` says whose they are. In a
    /// column of lists of vectors, all are one query
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "words")]
    vectors: Option<PathBuf>,
    #[command(flatten)]
    text: TextArgs,
    /// The weight of the text in a hybrid search, relative to the vector [default: 1]
    #[arg(long, value_name = "WEIGHT", requires = "words", requires = "near", help_heading = TEXT)]
    text_weight: Option<f32>,
    /// A SQL predicate that rows must match; alone, or with --like, --vector, --vectors or --text
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
    /// A column to compute, shown after those of --columns; without --columns, only computed columns are
    /// shown. May be repeated
    #[arg(long = "expression", value_name = "NAME=SQL", value_hint = ValueHint::Other, value_parser = parse_expression)]
    expressions: Vec<NamedExpression>,
    /// Index partitions to search [default: 20]
    #[arg(long, value_name = "N", value_parser = parse_at_least_1, allow_negative_numbers = true)]
    #[arg(help_heading = NEAR)]
    nprobes: Option<u32>,
    /// Index partitions to search at most with --filter [default: until enough rows pass]
    #[arg(long, value_name = "N", value_parser = parse_at_least_1, allow_negative_numbers = true)]
    #[arg(help_heading = NEAR)]
    nprobes_max: Option<u32>,
    /// Candidates to score exactly for each requested row; 0 takes the index's distances [default: 10]
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    #[arg(help_heading = NEAR)]
    refine: Option<u32>,
    /// The order of the rows found, in place of best first: columns, each with `:desc` for the largest first,
    /// and `:nulls-first` for rows without a value first
    #[arg(long, value_name = "A,B:desc", value_hint = ValueHint::Other, value_delimiter = ',', value_parser = parse_order)]
    order_by: Vec<OrderBy>,
    /// The number of the best rows to leave out
    #[arg(long, value_name = "ROWS", default_value_t = 0, hide_default_value = true)]
    offset: u32,
    /// Apply --filter to the rows that the search finds, instead of before it
    #[arg(long, requires = "filter")]
    filter_after: bool,
    /// Leave out rows that the index does not cover
    #[arg(long)]
    indexed_only: bool,
    #[command(flatten)]
    near: NearArgs,
    /// The share of the nearest rows to find, such as 0.95, by the curve of `bireme tune`; in place of
    /// --nprobes and --refine
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, conflicts_with_all = ["nprobes", "nprobes_max", "refine"])]
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

/// Further flags of searches by vector.
#[derive(Debug, Args)]
#[command(next_help_heading = NEAR)]
struct NearArgs {
    /// The least distance of a row
    #[arg(long, value_name = "DISTANCE", requires = "near", allow_negative_numbers = true)]
    lower_bound: Option<f32>,
    /// The distance from which on rows are left out
    #[arg(long, value_name = "DISTANCE", requires = "near", allow_negative_numbers = true)]
    upper_bound: Option<f32>,
    /// Candidates that an HNSW index keeps while it searches
    #[arg(long, value_name = "N", requires = "near", value_parser = parse_at_least_1)]
    ef: Option<u32>,
    /// l2, cosine, dot or hamming; other than the index's: every row is compared
    #[arg(long, value_name = "METRIC", requires = "near", default_value = "")]
    #[arg(hide_default_value = true)]
    metric: String,
    /// Compare every row, without the index
    #[arg(long, requires = "near")]
    exact: bool,
}

impl SearchArgs {
    /// Refuses flags of another kind of search, which would otherwise be ignored.
    fn check(&self) -> Result<()> {
        let is_near = self.like.is_some() || self.vector.is_some() || self.vectors.is_some();
        let is_ranked = is_near || self.text.is_given();
        for (flag, is_set, fits, searches) in [
            ("--nprobes", self.nprobes.is_some(), is_near, "--like, --vector or --vectors"),
            ("--nprobes-max", self.nprobes_max.is_some(), is_near, "--like, --vector or --vectors"),
            ("--refine", self.refine.is_some(), is_near, "--like, --vector or --vectors"),
            ("--recall", self.recall.is_some(), is_near, "--like, --vector or --vectors"),
            ("--column", self.column.is_some(), is_ranked, "--like, --vector, --vectors or --text"),
            (
                "--indexed-only",
                self.indexed_only,
                is_ranked,
                "--like, --vector, --vectors or --text",
            ),
        ] {
            if is_set && !fits {
                let problem = format!("{flag} needs a search with {searches}; leave it out");
                return Err(CliError::usage(problem));
            }
        }
        self.text.check()?;
        if !is_near && self.column.is_some() && self.text.has_columns() {
            let problem = "--column and --text-column both name text columns; leave --column out";
            return Err(CliError::usage(problem.to_owned()));
        }
        Ok(())
    }

    fn request(self) -> Result<SearchRequest> {
        self.check()?;
        let mut request = SearchRequest {
            table: self.table.table,
            version: self.table.table_version,
            branch: self.table.table_branch,
            by: None,
            filter: self.filter.unwrap_or_default(),
            k: self.k,
            columns: self.columns,
            vector_column: String::new(),
            nprobes: self.nprobes.unwrap_or(0),
            nprobes_max: self.nprobes_max.unwrap_or(0),
            refine_factor: self.refine,
            explain: self.explain,
            key_column: self.key_column.unwrap_or_default(),
            priority: self.priority.number(),
            fused_with: None,
            text_weight: self.text_weight,
            offset: self.offset,
            lower_bound: self.near.lower_bound,
            upper_bound: self.near.upper_bound,
            ef: self.near.ef.unwrap_or(0),
            metric: self.near.metric,
            exact: self.near.exact,
            indexed_only: self.indexed_only,
            filter_after: self.filter_after,
            recall: self.recall,
            order_by: self.order_by,
            expressions: self.expressions,
        };
        request.by = match (self.like, self.vector, self.vectors) {
            (Some(key), ..) => Some(By::Like(key)),
            (_, Some(file), _) => Some(By::Vector(Vector { values: read_vector(&file)? })),
            (_, _, Some(file)) => {
                let column = self.column.as_deref();
                // `query_index` in the answer is then the position of the vector's row in the file.
                let vectors = read_vectors(&file, column, VECTORS_MAX, Nulls::Refuse)?;
                Some(By::Vectors(Vectors { vectors }))
            }
            (None, None, None) => {
                request.by = self.text.query(self.column).map(By::Text);
                return Ok(request);
            }
        };
        request.fused_with = self.text.query(None);
        request.vector_column = self.column.unwrap_or_default();
        Ok(request)
    }
}

/// Searches and prints the rows.
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
    use client::query::{
        Text, TextBoolean, TextKind, TextMatch, TextMultiMatch, TextPhrase, TextQuery,
    };

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
        assert_eq!(asked.by, Some(By::Text(words("a b", "w"))));
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
        assert_eq!(asked.fused_with, Some(words("a b", "t")));
        assert_eq!(asked.text_weight, Some(0.5));
        let hybrid = request(&["--like", "7", "--phrase", "a b", "--text-weight", "2"]);
        assert!(hybrid.fused_with.is_some_and(|text| text.query.is_some()));
        assert_eq!(hybrid.text_weight, Some(2.0));
        let asked = request(&["--filter", "true", "--table-version", "4", "--explain"]);
        assert_eq!((asked.by, asked.version, asked.k, asked.explain), (None, 4, 10, true));
        let ordered = ["--table-branch", "exp", "--order-by", "place.x:desc,id"];
        let asked = request(&[&["--filter", "true"], &ordered[..]].concat());
        assert_eq!(asked.branch, "exp");
        let by: Vec<_> =
            asked.order_by.iter().map(|it| (it.column.as_str(), it.descending)).collect();
        assert_eq!(by, [("place.x", true), ("id", false)]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("v.jsonl");
        std::fs::write(&file, "{\"v\": [1.5, 2.0]}\n{\"v\": [0.0, -1.0]}\n").unwrap();
        let asked = request(&["--vectors", file.to_str().unwrap(), "--nprobes", "3"]);
        let vectors = [[1.5, 2.0], [0.0, -1.0]].map(|it| Vector { values: it.into() }).into();
        assert_eq!((asked.by, asked.nprobes), (Some(By::Vectors(Vectors { vectors })), 3));
        let asked = request(&["--filter", "true", "--expression", "a=b, c", "--expression", "d=e"]);
        let expressions: Vec<_> =
            asked.expressions.iter().map(|it| (it.name.as_str(), it.sql.as_str())).collect();
        assert_eq!(expressions, [("a", "b, c"), ("d", "e")]);
    }

    fn words(words: &str, column: &str) -> Text {
        Text { words: words.into(), column: column.into(), query: None }
    }

    fn text_of(arguments: &[&str]) -> Text {
        match request(arguments).by {
            Some(By::Text(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    fn of(kind: TextKind) -> TextQuery {
        TextQuery { kind: Some(kind) }
    }

    fn query_of(arguments: &[&str]) -> TextQuery {
        let text = text_of(arguments);
        assert_eq!((text.words.as_str(), text.column.as_str()), ("", ""));
        text.query.unwrap()
    }

    #[test]
    fn words_alone_need_no_structured_query() {
        assert_eq!(text_of(&["--text", "a b"]), words("a b", ""));
        for column in ["--column", "--text-column"] {
            assert_eq!(text_of(&["--text", "a b", column, "t"]), words("a b", "t"));
        }
        assert_eq!(text_of(&["--text", "a b", "--fuzzy", "0"]), words("a b", ""));
    }

    #[test]
    fn text_flags_become_a_query() {
        let matching = |words: &str, column: &str| TextMatch {
            words: words.into(),
            column: column.into(),
            ..Default::default()
        };
        let all_of = |words: &str| TextMatch { all_words: true, ..matching(words, "") };
        let fuzzy = TextMatch { fuzziness: 1, ..all_of("a b") };
        assert_eq!(
            query_of(&["--text", "a b", "--all-words", "--fuzzy", "1"]),
            of(TextKind::Match(fuzzy))
        );
        let auto = TextMatch { fuzziness_auto: true, ..matching("a b", "t") };
        assert_eq!(
            query_of(&["--text", "a b", "--fuzzy", "auto", "--column", "t"]),
            of(TextKind::Match(auto))
        );
        let matches = vec![matching("a b", "t"), matching("a b", "u")];
        let columns = ["--text", "a b", "--text-column", "t", "--text-column", "u"];
        assert_eq!(query_of(&columns), of(TextKind::MultiMatch(TextMultiMatch { matches })));
        let phrase = |words: &str, column: &str, slop| {
            let (words, column) = (words.into(), column.into());
            of(TextKind::Phrase(TextPhrase { words, column, slop }))
        };
        assert_eq!(query_of(&["--phrase", "a b", "--slop", "2"]), phrase("a b", "", 2));
        assert_eq!(query_of(&["--must", "a b"]), of(TextKind::Match(all_of("a b"))));
        let all = ["--text", "a", "--must", "b c", "--phrase", "d e", "--must-not", "f"];
        assert_eq!(
            query_of(&[&all[..], &["--must", "g", "--must-not", "h i"]].concat()),
            of(TextKind::Boolean(TextBoolean {
                must: vec![
                    of(TextKind::Match(all_of("b c"))),
                    of(TextKind::Match(all_of("g"))),
                    phrase("d e", "", 0),
                ],
                should: vec![of(TextKind::Match(matching("a", "")))],
                must_not: ["f", "h i"]
                    .map(|words| of(TextKind::Match(matching(words, ""))))
                    .to_vec(),
            }))
        );
        let in_two = ["--phrase", "a b", "--text-column", "t", "--text-column", "u"];
        let should = vec![phrase("a b", "t", 0), phrase("a b", "u", 0)];
        assert_eq!(
            query_of(&in_two),
            of(TextKind::Boolean(TextBoolean { should, ..Default::default() }))
        );
    }

    #[test]
    fn exactly_one_kind_of_search_is_accepted() {
        for arguments in [
            &[][..],
            &["--like", "a", "--vector", "b"],
            &["--text", "a", "--text-weight", "2"],
            &["--like", "a", "--text-weight", "2"],
            &["--must-not", "a"],
            &["--like", "a", "--must-not", "b"],
            &["--phrase", "a b", "--all-words"],
            &["--phrase", "a b", "--fuzzy", "3"],
            &["--text", "a b", "--slop", "1"],
            &["--like", "a", "--text-column", "t"],
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
            (["--text", "a"], ["--nprobes-max", "5"]),
            (["--text", "a"], ["--refine", "0"]),
            (["--filter", "true"], ["--nprobes", "5"]),
            (["--filter", "true"], ["--refine", "1"]),
            (["--text", "a"], ["--recall", "0.9"]),
            (["--filter", "true"], ["--column", "b"]),
            (["--filter", "true"], ["--indexed-only", ""]),
        ] {
            let flags = flag.iter().filter(|it| !it.is_empty()).copied();
            let arguments: Vec<_> = search.into_iter().chain(flags).collect();
            let error = asked(&arguments).unwrap_err();
            assert_eq!(error.exit().number(), 2);
            let said = error.message();
            let expected = format!("{} needs a search with --like", flag[0]);
            assert!(said.starts_with(&expected), "{said}");
        }
        let near = ["--like", "a", "--filter", "true", "--nprobes", "5", "--column", "v"];
        assert_eq!(request(&near).nprobes, 5);
        assert_eq!(request(&[&near[..], &["--nprobes-max", "9"]].concat()).nprobes_max, 9);
        let error = asked(&["--text", "a", "--column", "w", "--text-column", "v"]).unwrap_err();
        let said = error.message();
        assert!(said.starts_with("--column and --text-column both name text columns"), "{said}");
        request(&["--text", "a", "--column", "w"]);
        for search in ["--text", "--phrase", "--must", "--like"] {
            assert!(request(&[search, "a", "--indexed-only"]).indexed_only, "{search}");
        }
        assert_eq!(request(&["--like", "a", "--recall", "0.95"]).recall, Some(0.95));
    }
}

//! Makes the commands that rebuild dropped indexes.

use lake::{IndexInfo, Metric, VectorIndexKind};
use serde_json::Value;

use super::shell_word;

/// Returns the commands that rebuild `indexes` of the table at `uri`, whose columns are `columns` and whose key column
/// is `key`. One command builds vector indexes of only one kind and metric, and stores positions for all of its text
/// columns or for none, so there is a command for each combination. Numbers of partitions get their defaults, which
/// depend on the number of rows. Indexes on columns that no longer exist, and those that no command
/// [can build](can_build), are left out.
pub fn index_commands(
    uri: &str,
    columns: &[String],
    key: Option<&str>,
    indexes: &[IndexInfo],
) -> Vec<String> {
    // The settings of vector indexes, each with the columns whose indexes have these settings.
    let mut vectors: Vec<(String, String)> = Vec::new();
    // Text columns, without and with positions.
    let mut texts = [String::new(), String::new()];
    let (mut scalars, mut keys) = (String::new(), String::new());
    for index in indexes.iter().filter(|index| can_build(index)) {
        let Some(column) = index.columns.first().filter(|it| columns.contains(it)) else {
            continue;
        };
        let word = shell_word(column);
        if index.is_vector() {
            let (settings, column) = (settings_of(index), format!(" --vector {word}"));
            match vectors.iter_mut().find(|(known, _)| *known == settings) {
                Some((_, columns)) => columns.push_str(&column),
                None => vectors.push((settings, column)),
            }
        } else if index.is_text() {
            texts[usize::from(index.positions == Some(true))] += &format!(" --text {word}");
        } else if key == Some(column) {
            keys += &format!(" --key {word}");
        } else {
            scalars += &format!(" --scalar {word}");
        }
    }
    let [plain, mut positioned] = texts;
    if !positioned.is_empty() {
        positioned += " --positions";
    }
    let (texts, apart) = match plain.is_empty() {
        true => (positioned, plain),
        false => (plain, positioned),
    };
    let others = texts + &scalars + &keys;
    let mut commands: Vec<_> =
        vectors.into_iter().map(|(settings, columns)| columns + &settings).collect();
    match commands.first_mut() {
        Some(first) => first.push_str(&others),
        None if others.is_empty() => {}
        None => commands.push(others),
    }
    if !apart.is_empty() {
        commands.push(apart);
    }
    let uri = shell_word(uri);
    commands.iter().map(|options| format!("bireme index --table {uri}{options}")).collect()
}

/// Returns whether `bireme index` can build an index like this one. Lance has further kinds of vector index.
pub fn can_build(index: &IndexInfo) -> bool {
    !index.is_vector() || index.kind.parse::<VectorIndexKind>().is_ok()
}

/// The bits per dimension of an IVF_RQ index if no flag sets them.
const BITS_DEFAULT: u64 = 5;

/// Returns the flags for the kind, the metric and the compression of a vector index, as far as they differ from the
/// defaults. The default number of codes per vector depends on the dimension, so this flag is always returned.
fn settings_of(index: &IndexInfo) -> String {
    let mut settings = String::new();
    if let Ok(kind) = index.kind.parse::<VectorIndexKind>()
        && kind != VectorIndexKind::default()
    {
        settings += &format!(" --kind {kind}");
    }
    if let Some(metric) = index.metric.filter(|metric| *metric != Metric::default()) {
        settings += &format!(" --metric {metric}");
    }
    let parameters: Value = serde_json::from_str(&index.parameters).unwrap_or_default();
    let number = |name: &str| parameters["compression"][name].as_u64();
    match index.kind.as_str() {
        "IVF_RQ" => {
            if let Some(bits) = number("num_bits").filter(|bits| *bits != BITS_DEFAULT) {
                settings += &format!(" --bits {bits}");
            }
        }
        "IVF_PQ" => {
            if let Some(codes) = number("num_sub_vectors") {
                settings += &format!(" --sub-vectors {codes}");
            }
        }
        _ => {}
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(column: &str, kind: &str, metric: Option<Metric>) -> IndexInfo {
        IndexInfo {
            name: format!("{column}_{kind}"),
            columns: vec![column.to_owned()],
            kind: kind.to_owned(),
            metric,
            positions: None,
            rows_covered: 1,
            rows_uncovered: 0,
            bytes: None,
            parameters: String::new(),
            segments: Vec::new(),
            format: None,
            details: None,
            created: None,
        }
    }

    #[test]
    fn commands_build_the_indexes_that_were_there() {
        let columns = ["v", "w", "x", "text", "day", "id"].map(str::to_owned);
        let indexes = [
            index("v", "IVF_RQ", Some(Metric::Cosine)),
            index("w", "IVF_PQ", Some(Metric::L2)),
            index("x", "IVF_RQ", Some(Metric::Cosine)),
            index("text", "Inverted", None),
            index("day", "BTree", None),
            index("id", "BTree", None),
            index("gone", "BTree", None),
        ];
        assert_eq!(
            index_commands("a b", &columns, Some("id"), &indexes),
            [
                "bireme index --table 'a b' --vector v --vector x --metric cosine --text text \
                 --scalar day --key id",
                "bireme index --table 'a b' --vector w --kind ivf-pq",
            ]
        );
        assert_eq!(
            index_commands("t", &columns, None, &indexes[5..]),
            ["bireme index --table t --scalar id"]
        );
        assert_eq!(index_commands("t", &columns, None, &indexes[6..]), [""; 0]);
        let compressed = |kind, parameters: &str| IndexInfo {
            parameters: format!("{{\"compression\":{{{parameters}}}}}"),
            ..index("v", kind, None)
        };
        for (index, options) in [
            (
                compressed("IVF_PQ", r#""num_bits":8,"num_sub_vectors":24"#),
                " --kind ivf-pq --sub-vectors 24",
            ),
            (compressed("IVF_RQ", r#""num_bits":3"#), " --bits 3"),
            (compressed("IVF_RQ", r#""num_bits":5"#), ""),
            (compressed("IVF_HNSW_SQ", r#""num_bits":8"#), " --kind ivf-hnsw-sq"),
        ] {
            let command = format!("bireme index --table t --vector v{options}");
            assert_eq!(index_commands("t", &columns, None, &[index]), [command]);
        }
        let with_positions = IndexInfo { positions: Some(true), ..index("text", "Inverted", None) };
        let two = [with_positions, index("day", "BTree", None)];
        assert_eq!(
            index_commands("t", &columns, None, &two),
            ["bireme index --table t --text text --positions --scalar day"]
        );
        let three = [&two[..], &[index("x", "Inverted", None)]].concat();
        assert_eq!(
            index_commands("t", &columns, None, &three),
            [
                "bireme index --table t --text x --scalar day",
                "bireme index --table t --text text --positions",
            ]
        );
        let flat = index("v", "IVF_FLAT", Some(Metric::Cosine));
        assert!(!can_build(&flat) && indexes.iter().all(can_build));
        assert_eq!(
            index_commands("t", &columns, None, &[flat, index("day", "BTree", None)]),
            ["bireme index --table t --scalar day"]
        );
    }
}

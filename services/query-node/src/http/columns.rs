//! The columns of a query's answer, in any of the forms in which a body names them.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use wire::query::NamedExpression;

use crate::error::Result;
use crate::selection::{BlobForm, ROW_ID, Selection};
use crate::tables::{Measure, OpenTable};

/// The columns to return.
#[derive(Clone, Debug, PartialEq)]
pub enum Columns {
    /// Names of columns, which may be nested.
    Names(Vec<String>),
    /// SQL expressions by the names of the answer's columns.
    Aliases(Vec<NamedExpression>),
}

/// Reads columns in any of their forms: `["a", …]`, `{"alias": "SQL", …}`, or, as Namespace clients write them, an
/// object with `column_names` or `column_aliases`. Some of these clients send both fields, one of them empty. If both
/// are empty, returns `None`, which stands for all columns.
pub fn columns<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<Columns>, D::Error> {
    /// SQL expressions by the names of columns.
    type Aliases = serde_json::Map<String, serde_json::Value>;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NamespaceColumns {
        column_names: Option<Vec<String>>,
        column_aliases: Option<Aliases>,
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Names(Vec<String>),
        Namespace(NamespaceColumns),
        Aliases(Aliases),
    }

    let expressions = |aliases: Aliases| {
        let expression = |(name, sql)| match sql {
            serde_json::Value::String(sql) => Ok(NamedExpression { name, sql }),
            other => {
                let problem = format!("column `{name}` is {other}; give a SQL expression");
                Err(D::Error::custom(problem))
            }
        };
        let all = aliases.into_iter().map(expression);
        all.collect::<std::result::Result<_, _>>().map(Columns::Aliases)
    };
    match Option::deserialize(from)? {
        None => Ok(None),
        Some(Form::Names(names)) => Ok(Some(Columns::Names(names))),
        Some(Form::Aliases(aliases)) => expressions(aliases).map(Some),
        Some(Form::Namespace(NamespaceColumns { column_names, column_aliases })) => {
            let aliases = column_aliases.filter(|aliases| !aliases.is_empty());
            match column_names.filter(|names| !names.is_empty()) {
                Some(names) => Ok(Some(Columns::Names(names))),
                None => aliases.map(expressions).transpose(),
            }
        }
    }
}

/// Returns the columns of an answer. A distance or score is added if the search has one, and the row's id if
/// `with_row_id` is set, unless they are named.
///
/// # Errors
/// The errors of [`Selection::new`] and [`Selection::compute`].
pub fn selection(
    columns: Option<Columns>,
    with_row_id: bool,
    measure: Measure,
    open: &OpenTable,
) -> Result<Selection> {
    let (names, expressions) = match columns {
        None => (None, Vec::new()),
        Some(Columns::Names(names)) => (Some(names), Vec::new()),
        Some(Columns::Aliases(expressions)) => (Some(Vec::new()), expressions),
    };
    let mut selection = Selection::new(names, BlobForm::Described, measure, open)?;
    selection.compute("columns", expressions, open)?;
    for name in measure.name().into_iter().chain(with_row_id.then_some(ROW_ID)) {
        selection.append(name, open)?;
    }
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_many_forms() {
        let parse = |json| columns(&mut serde_json::Deserializer::from_str(json));
        let parsed = |json| parse(json).unwrap();
        let names = |names: &[&str]| {
            let names = names.iter().map(|it| (*it).to_owned());
            Some(Columns::Names(names.collect()))
        };
        assert_eq!(parsed(r#"["a","b"]"#), names(&["a", "b"]));
        for json in [r#"{"column_names":["a"]}"#, r#"{"column_names":["a"],"column_aliases":{}}"#] {
            assert_eq!(parsed(json), names(&["a"]), "{json}");
        }
        let none = r#"{"column_names":[],"column_aliases":null}"#;
        assert_eq!((parsed(none), parsed("null")), (None, None));
        let twice = NamedExpression { name: "twice".into(), sql: "a * 2".into() };
        assert_eq!(parsed(r#"{"twice":"a * 2"}"#), Some(Columns::Aliases(vec![twice])));
        let error = parse(r#"{"twice":2}"#).unwrap_err().to_string();
        assert!(error.contains("column `twice` is 2; give a SQL expression"), "{error}");
    }
}

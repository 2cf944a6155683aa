//! Reads many query vectors from a file with a column of vectors.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::{DataType, Schema};
use client::query::Vector;
use lake::fault_of;

use super::source_file::read_source;
use crate::error::{CliError, Result};

/// How nulls in a column of vectors are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nulls {
    /// They are left out.
    Skip,
    /// A file that has one is refused, so that the positions of vectors are those of the file's rows.
    Refuse,
}

/// Reads vectors from a file in one of the formats that `bireme ingest` reads. The vectors are in `column`, or, if the
/// file has no such column or none is named, in its only column of vectors. A file with more than `vectors_max` vectors
/// is refused.
pub fn read_vectors(
    path: &Path,
    column: Option<&str>,
    vectors_max: usize,
    nulls: Nulls,
) -> Result<Vec<Vector>> {
    let file = read_source(path)?;
    let shown = path.display();
    let at =
        position(&file.schema, column).map_err(|why| CliError::usage(format!("{shown}: {why}")))?;
    let mut vectors = Vec::new();
    for batch in file {
        let batch = batch.map_err(|error| fault_of(&error))?;
        let array = batch.column(at);
        for row in 0..array.len() {
            if array.is_null(row) {
                if nulls == Nulls::Skip {
                    continue;
                }
                let number = vectors.len();
                let problem = format!("{shown}: vector {number} is null; leave its row out");
                return Err(CliError::usage(problem));
            }
            let values = vector(array, row).ok_or_else(|| {
                CliError::usage(format!(
                    "{shown}: vector {} is not a list of numbers",
                    vectors.len()
                ))
            })?;
            vectors.push(Vector { values });
        }
        if vectors.len() > vectors_max {
            let problem = format!("{shown} has more than {vectors_max} vectors; give fewer");
            return Err(CliError::usage(problem));
        }
    }
    match vectors.is_empty() {
        true => Err(CliError::usage(format!("{shown} has no vector"))),
        false => Ok(vectors),
    }
}

fn position(schema: &Schema, column: Option<&str>) -> std::result::Result<usize, String> {
    let lists: Vec<_> =
        schema.fields().iter().enumerate().filter(|(_, it)| is_vector(it.data_type())).collect();
    let named = column.and_then(|name| lists.iter().find(|(_, field)| field.name() == name));
    match (named, lists.as_slice()) {
        (Some((at, _)), _) | (None, [(at, _)]) => Ok(*at),
        (None, []) => Err("it has no column of vectors".into()),
        (None, several) => {
            let names: Vec<_> = several.iter().map(|(_, field)| field.name().as_str()).collect();
            Err(format!(
                "it has several columns of vectors: {}; name one with --column",
                names.join(", ")
            ))
        }
    }
}

fn is_vector(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
            item.data_type().is_numeric()
        }
        _ => false,
    }
}

fn vector(array: &ArrayRef, row: usize) -> Option<Vec<f32>> {
    let values = match array.data_type() {
        DataType::FixedSizeList(..) => array.as_fixed_size_list().value(row),
        DataType::List(_) => array.as_list::<i32>().value(row),
        _ => array.as_list::<i64>().value(row),
    };
    let values = cast(&values, &DataType::Float32).ok()?;
    let values = values.as_primitive_opt::<Float32Type>()?;
    (values.null_count() == 0).then(|| values.values().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, column: Option<&str>) -> Result<Vec<Vec<f32>>> {
        read_with(text, column, Nulls::Skip)
    }

    fn read_with(text: &str, column: Option<&str>, nulls: Nulls) -> Result<Vec<Vec<f32>>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("asked.jsonl");
        std::fs::write(&path, text).unwrap();
        Ok(read_vectors(&path, column, 2, nulls)?.into_iter().map(|it| it.values).collect())
    }

    #[test]
    fn vectors_are_read_from_the_named_or_only_column_of_vectors() {
        let one = "{\"id\": 1, \"v\": [1.5, 2]}\n{\"id\": 2, \"v\": null}\n{\"id\": 3, \"v\": [0.0, -1]}\n";
        let expected = vec![vec![1.5, 2.0], vec![0.0, -1.0]];
        assert_eq!(read(one, None).unwrap(), expected);
        // A column's name in the table may differ from its name in the file.
        assert_eq!(read(one, Some("vector")).unwrap(), expected);
        let said = read_with(one, None, Nulls::Refuse).unwrap_err();
        assert!(said.message().contains("vector 1 is null; leave its row out"), "{said:?}");
        let two = "{\"a\": [1.0], \"v\": [2.0], \"w\": [\"x\"]}\n";
        assert_eq!(read(two, Some("v")).unwrap(), [[2.0]]);
        assert!(
            read(two, None).unwrap_err().message().contains("several columns of vectors: a, v")
        );
    }

    #[test]
    fn a_file_without_vectors_or_with_too_many_is_refused() {
        for (text, why) in [
            ("{\"id\": 1}\n", "no column of vectors"),
            ("{\"v\": [\"a\", \"b\"]}\n", "no column of vectors"),
            ("{\"v\": [1.0, null]}\n", "vector 0 is not a list of numbers"),
            ("{\"v\": [1.0]}\n{\"v\": [2.0]}\n{\"v\": [3.0]}\n", "more than 2 vectors; give fewer"),
        ] {
            let said = read(text, None).unwrap_err();
            assert!(said.message().contains(why), "{said:?}");
        }
    }
}

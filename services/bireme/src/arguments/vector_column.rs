//! `COLUMN:DIMENSION`: a column of lists to store as vectors.

use std::str::FromStr;

/// A column and its dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorColumn {
    /// The column.
    pub column: String,
    /// The number of elements of each vector.
    pub dimension: usize,
}

impl FromStr for VectorColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(':').and_then(|(column, dimension)| {
            Some((column, dimension.parse().ok().filter(|&dimension| dimension > 0)?))
        });
        match parts {
            Some((column, dimension)) if !column.is_empty() => {
                Ok(Self { column: column.to_owned(), dimension })
            }
            _ => Err("write it as COLUMN:DIMENSION, such as embedding:384".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dimension_follows_the_last_colon() {
        let parsed: VectorColumn = "a:b:384".parse().unwrap();
        assert_eq!((parsed.column.as_str(), parsed.dimension), ("a:b", 384));
        for bad in ["a", "a:", ":3", "a:0", "a:x"] {
            assert!(bad.parse::<VectorColumn>().is_err(), "{bad}");
        }
    }
}

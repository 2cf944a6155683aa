//! Tables of text that fit the terminal.

use console::{Alignment, measure_text_width, pad_str, truncate_str};

use crate::escape::one_line;

/// The text between two columns.
const GAP: &str = "  ";

/// The minimum width of a column that has to be cut, in characters.
const WIDTH_MIN: usize = 8;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Rows of cells under headers.
#[derive(Clone, Debug)]
pub struct TextTable {
    headers: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates a table without rows.
    pub fn new<'a>(headers: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let header = |(name, align)| (one_line(name).into_owned(), align);
        let headers = headers.into_iter().map(header).collect();
        Self { headers, rows: Vec::new() }
    }

    /// Adds a row, which has as many cells as there are headers.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headers.len());
        let cells = cells.into_iter().map(|cell| one_line(&cell).into_owned()).collect();
        self.rows.push(cells);
    }

    /// Returns the text with no line wider than `width`; `None` if the columns can't be made that narrow.
    pub fn fitted(&self, width: usize) -> Option<String> {
        let natural: Vec<usize> =
            (0..self.headers.len()).map(|at| self.natural_width(at)).collect();
        let gaps = GAP.len() * natural.len().saturating_sub(1);
        let widths = fit(&natural, width.checked_sub(gaps)?, WIDTH_MIN)?;
        Some(self.lines(&widths))
    }

    /// Returns the text, cut to `width` if the columns can be made that narrow.
    pub fn text(&self, width: usize) -> String {
        self.fitted(width).unwrap_or_else(|| {
            let natural: Vec<usize> =
                (0..self.headers.len()).map(|at| self.natural_width(at)).collect();
            self.lines(&natural)
        })
    }

    fn natural_width(&self, at: usize) -> usize {
        let cells = self.rows.iter().map(|row| measure_text_width(&row[at]));
        cells.chain([measure_text_width(&self.headers[at].0)]).max().unwrap_or(0)
    }

    fn lines(&self, widths: &[usize]) -> String {
        let headers: Vec<String> = self.headers.iter().map(|(name, _)| name.clone()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headers).chain(&self.rows) {
            let cells =
                row.iter().zip(widths).zip(&self.headers).map(|((cell, &width), (_, align))| {
                    let alignment = match align {
                        Align::Left => Alignment::Left,
                        Align::Right => Alignment::Right,
                    };
                    pad_str(&truncate_str(cell, width, "…"), width, alignment, None).into_owned()
                });
            let line = cells.collect::<Vec<_>>().join(GAP);
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Returns widths that add up to at most `room`. The widest columns are cut to the largest common width that fits, and
/// the first of them get one more character each while there is room. Returns `None` if the common width would be
/// below `min`.
fn fit(natural: &[usize], room: usize, min: usize) -> Option<Vec<usize>> {
    let total = |cap: usize| natural.iter().map(|&width| width.min(cap)).sum::<usize>();
    let widest = natural.iter().copied().max().unwrap_or(0);
    if total(widest) <= room {
        return Some(natural.to_vec());
    }
    let cap = (min..widest).rev().find(|&cap| total(cap) <= room)?;
    let mut spare = room - total(cap);
    let widths = natural.iter().map(|&width| {
        let more = usize::from(width > cap && spare > 0);
        spare -= more;
        width.min(cap) + more
    });
    Some(widths.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_columns_are_cut_to_a_common_width() {
        assert_eq!(fit(&[3, 4], 10, 8), Some(vec![3, 4]));
        assert_eq!(fit(&[3, 40, 50], 40, 8), Some(vec![3, 19, 18]));
        assert_eq!(fit(&[3, 10, 50], 40, 8), Some(vec![3, 10, 27]));
        assert_eq!(fit(&[30, 30], 15, 8), None);
        assert_eq!(fit(&[], 0, 8), Some(vec![]));
    }

    #[test]
    fn lines_are_aligned_and_cut() {
        let mut table = TextTable::new([("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a rather long name".into(), "7".into()]);
        table.row(vec!["é".into(), "1,234".into()]);
        let expected = "name            n\na rather …      7\né           1,234\n";
        assert_eq!(table.fitted(17).as_deref(), Some(expected));
        assert_eq!(table.fitted(5), None);
        assert!(table.text(5).contains("a rather long name"));
    }
}

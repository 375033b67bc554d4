//! Aligned columns, as kubectl prints them. Pure.

/// Spaces between two columns.
const GAP: usize = 3;

/// The rows, below the names of the columns if `headed`. The last column is not padded.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>], headed: bool) -> String {
    let widths = widths(heads, rows);
    let head: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    headed
        .then_some(&head)
        .into_iter()
        .chain(rows)
        .map(|row| line(row, &widths))
        .collect()
}

/// The width of each column.
pub(crate) fn widths(heads: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// One row. A line break in the text of a tenant does not start another row.
pub(crate) fn line(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| {
        let pad = width.saturating_sub(cell.chars().count()) + GAP;
        format!("{}{}", cell.replace('\n', "\u{fffd}"), " ".repeat(pad))
    });
    format!("{}\n", cells.collect::<String>().trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_with_a_line_break_is_one_row() {
        let rows = [vec!["a\nb".into(), "c".into()]];
        assert_eq!(table(&["NAME", "X"], &rows, false), "a\u{fffd}b    c\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".into(), "bb".into()], vec!["long one".into(), "c".into()]];
        assert_eq!(
            table(&["NAME", "X"], &rows, true),
            "NAME       X\na          bb\nlong one   c\n"
        );
        assert_eq!(
            table(&["NAME", "X"], &rows, false),
            "a          bb\nlong one   c\n"
        );
    }
}

//! Text in columns: names on the left, figures aligned on the right.

/// Spaces between two columns.
const GAP: usize = 3;

/// Characters of the longest cell, at most as many as a format takes as a width.
pub(crate) fn widest<'c>(cells: impl Iterator<Item = &'c String>) -> usize {
    let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
    longest.min(u16::MAX.into())
}

/// Lines of `rows`, each cell as wide as the widest of its column; the first column left-aligned, the others
/// right-aligned. Rows may differ in length.
pub fn columns(rows: &[Vec<String>]) -> String {
    aligned(rows, 1, GAP).into_iter().map(|line| line + "\n").collect()
}

/// Lines as of [`columns`], with the first `names` columns left-aligned, and `gap` spaces between two columns.
pub(crate) fn aligned(rows: &[Vec<String>], names: usize, gap: usize) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| widest(rows.iter().filter_map(|row| row.get(column)));
    let widths: Vec<usize> = (0..count).map(width).collect();
    let cell = |(column, (cell, width)): (usize, (&String, &usize))| match column < names {
        true => format!("{cell:<width$}"),
        false => format!("{cell:>width$}"),
    };
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
        cells.join(&" ".repeat(gap)).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_under_each_other() {
        let row = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect();
        let rows: Vec<Vec<String>> = vec![
            row(&["", "open", "qod"]),
            row(&["late", "7.5 %"]),
            row(&["x", "-", "12"]),
        ];
        assert_eq!(columns(&rows), "        open   qod\nlate   7.5 %\nx          -    12\n");
        assert_eq!(columns(&[]), "");
        let long = "x".repeat(100_000);
        assert_eq!(columns(&[row(&[&long, "1"])]), format!("{long}   1\n"));
    }
}

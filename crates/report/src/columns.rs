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

/// Breaks sentences between words, so that lines of `text` have at most `width` characters. The rest of a sentence
/// stands under its first word, which is behind the last gap of two spaces. A line with that gap beyond half the width
/// is a row of figures, and stays whole.
pub fn wrapped(text: &str, width: usize) -> String {
    let len = |text: &str| text.chars().count();
    let line = |line: &str| {
        let (head, sentence) = line.split_at(line.rfind("  ").map_or(0, |gap| gap + 2));
        let (mut lines, mut column, indent) = (head.to_owned(), len(head), len(head));
        for word in sentence.split_inclusive(' ') {
            if column > indent && column + len(word.trim_end()) > width && indent <= width / 2 {
                lines = format!("{}\n{:indent$}", lines.trim_end(), "");
                column = indent;
            }
            lines += word;
            column += len(word);
        }
        lines + "\n"
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    #[test]
    fn sentences_are_wrapped_and_rows_of_figures_are_not() {
        let shown = |text: &str| wrapped(text, 20);
        assert_eq!(
            shown("\nGoal missed by \"steer\": 4 jobs.\n"),
            "\nGoal missed by\n\"steer\": 4 jobs.\n"
        );
        assert_eq!(
            shown("  notes  one two three four\n"),
            "  notes  one two\n         three four\n"
        );
        let figures = "steer  1.20 ms  2.61 ms\n";
        assert_eq!(shown(figures), figures);
        let word = format!("{}\n", "x".repeat(40));
        assert_eq!(shown(&format!("a {word}")), format!("a\n{word}"));
    }

    proptest! {
        /// Words and their order are those of the text.
        #[test]
        fn a_line_has_the_width_of_the_terminal(
            text in "(  )?([a-z]{1,8}  )?([a-zé]{1,12} ){0,30}[a-z]{1,12}", width in 40usize..100,
        ) {
            let shown = wrapped(&text, width);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(&shown), words(&text));
            for line in shown.lines() {
                prop_assert!(line.chars().count() <= width && line.trim_end() == line, "{:?}", shown);
            }
            prop_assert_eq!(wrapped(&text, usize::MAX), text + "\n");
        }
    }
}

//! The lab's results as HTML pages, like the report of a run.

mod bars;
mod experiment;
mod movie;
mod referees;
mod tail;

use std::fmt::Write;

use crate::page::{STYLE, escape};

pub use experiment::experiment;
pub use movie::movie;
pub use referees::referees;

/// A page around `body`, of which `head` is the first line; `command` is what was typed to get it.
fn framed(title: &str, head: &str, body: &str, command: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{} · punctual</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{head}</h1>\n{body}<h2>Run it again</h2>\n<div class=\"sheet\"><pre>{}</pre></div>\n<p class=\"note\">punctual {}</p>\n</main>\n</body>\n</html>",
        escape(title),
        escape(command),
        env!("CARGO_PKG_VERSION")
    )
}

/// Rows of text as a table, the first one its head.
fn sheet(page: &mut String, rows: &[Vec<String>]) {
    let cells = |row: &[String], tag: &str| {
        let cell = |(at, cell): (usize, &String)| {
            let tag = if at == 0 { "th" } else { tag };
            format!("<{tag}>{}</{tag}>", escape(cell))
        };
        row.iter().enumerate().map(cell).collect::<String>()
    };
    let [head, rows @ ..] = rows else { return };
    let _ = writeln!(
        page,
        "<div class=\"sheet\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>",
        cells(head, "th")
    );
    for row in rows {
        let _ = writeln!(page, "<tr>{}</tr>", cells(row, "td"));
    }
    *page += "</tbody></table></div>\n";
}

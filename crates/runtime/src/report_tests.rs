//! The guide and the report are the same: its table of `run --json` is printed from the fields and their comments.

use punctual_testing::guide::{holds, item, paragraph};

/// A field: its name in JSON, and the first sentence of its comment.
struct Field {
    name: String,
    meaning: String,
    is_flat: bool,
}

/// Fields of a struct of the report, in order; those that are not written are left out.
fn fields(of: &str) -> Vec<Field> {
    let source = include_str!("report.rs");
    let begin = format!("\npub struct {of} {{\n");
    let from = source.find(&begin).unwrap_or_else(|| panic!("no {of}")) + begin.len();
    let body = &source[from..from + source[from..].find("\n}").expect("its end")];
    let (mut fields, mut comment, mut attributes) = (Vec::new(), String::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            comment += words;
        } else if line.starts_with("#[") {
            attributes += line;
        } else if let Some(name) = line.strip_prefix("pub ").and_then(|line| line.split(':').next()) {
            let renamed = attributes
                .split_once("rename = \"")
                .and_then(|(_, rest)| rest.split('"').next());
            let sentence = comment.split_inclusive(". ").next().unwrap_or_default();
            let links = [("[`", "`"), ("`]", "`"), ("RunHeader::", ""), ("TaskReport::", "")];
            let plain = links
                .iter()
                .fold(sentence.to_string(), |text, (from, to)| text.replace(from, to));
            // What follows a link in brackets is its address.
            let meaning: String = plain
                .split("`(")
                .enumerate()
                .map(|(at, part)| match at {
                    0 => part.to_string(),
                    _ => format!("`{}", part.split_once(')').map_or(part, |(_, rest)| rest)),
                })
                .collect();
            if !attributes.contains("serde(skip)") {
                fields.push(Field {
                    name: renamed.unwrap_or(name).into(),
                    meaning: meaning.trim().trim_end_matches('.').into(),
                    is_flat: attributes.contains("flatten"),
                });
            }
            (comment, attributes) = (String::new(), String::new());
        }
    }
    fields
}

#[test]
fn the_guide_has_every_field_of_a_report() {
    let mut page = String::new();
    let tables = [
        ("The report", &["RunReport", "RunHeader"][..]),
        ("`tasks[]`", &["TaskReport"]),
        ("`tasks[].causes[]`", &["CauseReport"]),
    ];
    for (place, structs) in tables {
        page += &format!("### {place}\n\n");
        let all = structs
            .iter()
            .flat_map(|name| fields(name))
            .filter(|field| !field.is_flat);
        all.for_each(|field| page += &item(&field.name, &field.meaning));
        page += "\n";
    }
    page += "### Smaller parts\n\n";
    let lists = [
        ("summary", "Summary"),
        ("summary", "UpdateTotals"),
        ("summary", "ControllerCosts"),
        ("tasks[].late_jobs[]", "LateJob"),
        ("samples[]", "Sample"),
        ("knobs[]", "KnobReport"),
        ("protection[]", "Protection"),
        ("load", "LoadReport"),
        ("lending[]", "LendingReport"),
        ("settings[]", "SettingReport"),
        ("marks[]", "RunMark"),
        ("stages[]", "StageReport"),
        ("by[]", "Culprit"),
        ("response_us", "ResponseTimes"),
        ("where_us", "WhereTimeWent"),
        ("unfinished", "OpenJob"),
        ("start_up", "StartUp"),
        ("histogram[]", "Bin"),
        ("filled_cores[]", "FilledCore"),
    ];
    for (place, name) in lists {
        let names = fields(name).into_iter().map(|field| format!("`{}`", field.name));
        page += &paragraph(&format!("`{place}`: {}.", names.collect::<Vec<_>>().join(", ")));
        page += "\n";
    }
    holds("reference/figures.md", "fields of a report", &page);
}

//! The grammar of OpenMetrics 1.0.0, and what it asks of names, units and values: for pages that servers make.

use std::collections::{BTreeMap, BTreeSet};

/// Checks a page. Timestamps, exemplars, histograms and the like are refused: no page here has them.
///
/// # Errors
/// The first line that is wrong, and why.
pub fn check(page: &str) -> Result<(), String> {
    let lines = page.strip_suffix("# EOF\n").ok_or("the last line is not # EOF")?;
    let (mut families, mut family) = (BTreeSet::new(), Family::default());
    for line in lines.split_terminator('\n') {
        let wrong = |why: &str| format!("{line}: {why}");
        if let Some(described) = line.strip_prefix("# ") {
            let mut words = described.splitn(3, ' ');
            let (Some(kind), Some(name), Some(text)) = (words.next(), words.next(), words.next()) else {
                return Err(wrong("neither HELP, TYPE nor UNIT of a family"));
            };
            if !is_name(name) {
                return Err(wrong("no name"));
            }
            if name != family.name {
                if !families.insert(name.to_string()) {
                    return Err(wrong("the family has begun before"));
                }
                family = Family {
                    name: name.into(),
                    ..Family::default()
                };
            }
            if !family.samples.is_empty() || family.described.insert(kind.into(), text.into()).is_some() {
                return Err(wrong("said twice, or behind a sample"));
            }
            match kind {
                "HELP" if unescaped(text).is_some() => {}
                "TYPE" if ["counter", "gauge", "summary"].contains(&text) => {}
                "UNIT" if name.ends_with(&format!("_{text}")) => {}
                _ => return Err(wrong("its text does not fit")),
            }
        } else {
            family.take(line).map_err(|why| wrong(&why))?;
        }
    }
    // A counter's samples must not have the name of another family.
    match families.iter().find(|name| {
        name.strip_suffix("_total")
            .is_some_and(|counter| families.contains(counter))
    }) {
        Some(name) => Err(format!("{name} is both a family and a counter's sample")),
        None => Ok(()),
    }
}

#[derive(Default)]
struct Family {
    name: String,
    /// Texts of HELP, TYPE and UNIT.
    described: BTreeMap<String, String>,
    samples: BTreeSet<Vec<(String, String)>>,
}

impl Family {
    /// Takes a sample.
    fn take(&mut self, line: &str) -> Result<(), String> {
        let begin = line.find(['{', ' ']).ok_or("no value")?;
        let (name, rest) = line.split_at(begin);
        let (mut labels, mut rest) = (Vec::new(), rest);
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while let Some((label, text)) = rest.split_once("=\"") {
                let end = end_of(text).ok_or("a label without an end")?;
                let value = unescaped(&text[..end]).ok_or("a label with a wrong escape")?;
                if !is_name(label) || label.contains(':') || labels.iter().any(|(other, _)| other == label) {
                    return Err(format!("the label {label:?}"));
                }
                labels.push((label.to_string(), value));
                rest = &text[end + 1..];
                match rest.strip_prefix(',') {
                    Some(next) if !next.starts_with('}') => rest = next,
                    _ => break,
                }
            }
            rest = rest.strip_prefix('}').ok_or("labels without an end")?;
        }
        let number: f64 = { rest.strip_prefix(' ').and_then(|number| number.parse().ok()) }.ok_or("no number")?;
        let quantile = labels.iter().find(|(label, _)| label == "quantile");
        let quantile = quantile.map(|(_, value)| value.parse().unwrap_or(f64::NAN));
        let kind = self.described.get("TYPE").map_or("", String::as_str);
        let fits = match kind {
            "counter" => name.strip_suffix("_total") == Some(&self.name) && number >= 0.0,
            "gauge" => name == self.name && quantile.is_none(),
            "summary" => name == self.name && quantile.is_some_and(|share: f64| (0.0..=1.0).contains(&share)),
            _ => false,
        };
        labels.sort();
        match fits {
            false => Err(format!("does not fit {:?} of {:?}", kind, self.name)),
            true if !self.samples.insert(labels) => Err("a sample of these labels was there".into()),
            true => Ok(()),
        }
    }
}

fn is_name(text: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphabetic() || "_:".contains(letter);
    text.starts_with(letter) && text.chars().all(|at| letter(at) || at.is_ascii_digit())
}

/// Index of the quote that ends a text.
fn end_of(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.find(|letter| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    })
}

/// A text without its escapes; `None` where a quote, a backslash or a line's end has none.
fn unescaped(text: &str) -> Option<String> {
    let (mut plain, mut letters) = (String::new(), text.chars());
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            '\\' => match letters.next()? {
                'n' => '\n',
                other @ ('\\' | '"') => other,
                _ => return None,
            },
            '"' | '\n' => return None,
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_wrong_are_refused() {
        let good = "# HELP a_seconds Help \\\"x\\\".\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds{k=\"v,\\\"}\"} 1\n\
                    # TYPE b counter\nb_total{k=\"1\",j=\"\"} 2\nb_total 0.5\n# TYPE c summary\nc{quantile=\"0.5\"} NaN\n# EOF\n";
        assert_eq!(check(good), Ok(()));
        assert_eq!(check("# EOF\n"), Ok(()));
        for (part, planted) in [
            ("# EOF\n", ""),
            ("# EOF\n", "# EOF\n\n"),
            ("# EOF\n", "\n# EOF\n"),
            ("# TYPE b counter", "# TYPE b gauge"),
            ("# TYPE b counter", "# TYPE b_total counter"),
            ("# TYPE b counter", "# TYPE b counted"),
            ("# TYPE b counter", "# TYPE a_seconds counter"),
            ("# TYPE b counter", "# b"),
            ("# TYPE b counter\n", ""),
            ("# UNIT a_seconds seconds", "# UNIT a_seconds bytes"),
            ("# UNIT a_seconds seconds", "# UNIT a_seconds"),
            ("\\\"x\\\"", "\"x\""),
            ("b_total 0.5", "b_total -1"),
            ("b_total 0.5", "b_total"),
            ("b_total 0.5", "b_total 1 2"),
            ("b_total 0.5", "b 0.5"),
            ("b_total 0.5", "b_total{j=\"\",k=\"1\"} 3"),
            ("b_total 0.5", "b_total{k=\"1\",} 3"),
            ("b_total 0.5", "b_total{k=\"1} 3"),
            ("b_total 0.5", "b_total{k=\"\\x\"} 3"),
            ("b_total 0.5", "b_total{k=\"\",k=\"\"} 3"),
            ("quantile=\"0.5\"", "quantile=\"2\""),
            ("quantile=\"0.5\"", "q=\"0.5\""),
            ("# TYPE c summary", "# TYPE b_total summary"),
        ] {
            assert!(good.contains(part), "{part}");
            let page = good.replacen(part, planted, 1);
            assert!(check(&page).is_err(), "{page}");
        }
    }
}

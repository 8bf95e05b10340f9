//! Figures, each described once; INFO and the pages for Prometheus are rendered from one list of them.
//!
//! **Names.** INFO shows a figure under its key. On the page its name is that key, with the unit in full
//! (`queue_wait_us` is `queue_wait_seconds`), unless the description names it otherwise; names that end in `_total` are
//! counters, figures with a label `quantile` summaries, all others gauges. Figures of one name form a family, told
//! apart by labels.
//!
//! **Units.** Spans are in seconds on the page. In INFO they are in the unit that is a part of the key: `us` and `ms`,
//! rounded up so that an age is never shown as less than it is, or whole `seconds`.

use std::borrow::Cow;
use std::fmt::Write;

use punctual_units::Nanos;

/// The most objects with an age of their own on the page; the greatest age of all is always shown.
const OBJECTS_SHOWN_MAX: usize = 100;

/// Value of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureValue {
    /// Words, which Prometheus does not know.
    Text(String),
    /// A number, and its text in INFO.
    Number(f64, String),
    /// A span; `None`: there is none.
    Span(Option<Nanos>),
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl From<$number> for FigureValue {
            fn from(number: $number) -> FigureValue {
                FigureValue::Number(number as f64, number.to_string())
            }
        })*
    };
}
numbers!(u32 u64 usize f64);

impl From<String> for FigureValue {
    fn from(text: String) -> FigureValue {
        FigureValue::Text(text)
    }
}

impl From<&str> for FigureValue {
    fn from(text: &str) -> FigureValue {
        FigureValue::Text(text.into())
    }
}

impl From<bool> for FigureValue {
    fn from(is: bool) -> FigureValue {
        u64::from(is).into()
    }
}

impl From<(bool, &str)> for FigureValue {
    fn from((is, text): (bool, &str)) -> FigureValue {
        FigureValue::Number(u8::from(is).into(), text.into())
    }
}

impl From<Nanos> for FigureValue {
    fn from(span: Nanos) -> FigureValue {
        FigureValue::Span(Some(span))
    }
}

impl From<Option<Nanos>> for FigureValue {
    fn from(span: Option<Nanos>) -> FigureValue {
        FigureValue::Span(span)
    }
}

/// A figure: its description and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    section: &'static str,
    /// Line of INFO that figures share, such as `peer2`; empty: a line of its own.
    line: String,
    key: Cow<'static, str>,
    /// Name on the page; empty: from the key.
    name: &'static str,
    labels: Vec<(&'static str, String)>,
    help: &'static str,
    value: FigureValue,
}

/// Describes a figure. Without a help it is not on the page; without a key it is not in INFO.
pub fn figure(key: impl Into<Cow<'static, str>>, value: impl Into<FigureValue>, help: &'static str) -> Figure {
    Figure {
        section: "",
        line: String::new(),
        key: key.into(),
        name: "",
        labels: Vec::new(),
        help,
        value: value.into(),
    }
}

/// Describes a figure of INFO alone.
pub fn word(key: impl Into<Cow<'static, str>>, value: impl Into<FigureValue>) -> Figure {
    figure(key, value, "")
}

/// Text of a value that there may not be.
pub fn or_none(value: Option<impl ToString>) -> String {
    value.map_or("none".into(), |value| value.to_string())
}

/// Ages of the values of objects, for the page alone.
pub fn object_ages<'k>(ages: impl IntoIterator<Item = (&'k [u8], Nanos)>) -> impl Iterator<Item = Figure> {
    let age = |(key, age): (&[u8], Nanos)| {
        // Escaped, because a stand-in for bytes that are no text would give keys that differ the same label.
        let text = str::from_utf8(key).ok().filter(|text| !text.contains('\\'));
        let key = text.map_or_else(|| key.escape_ascii().to_string(), str::to_owned);
        let age = figure("", age, "Upper bounds of the ages of the values of 100 objects");
        age.named("object_age_seconds").of("key", key)
    };
    ages.into_iter().take(OBJECTS_SHOWN_MAX).map(age)
}

/// Puts figures into a section of INFO.
pub fn section(name: &'static str, figures: impl IntoIterator<Item = Figure>) -> impl Iterator<Item = Figure> {
    figures.into_iter().map(move |figure| Figure {
        section: name,
        ..figure
    })
}

/// Puts figures into one line of INFO, in a section.
pub fn row(
    name: &'static str,
    line: String,
    figures: impl IntoIterator<Item = Figure>,
) -> impl Iterator<Item = Figure> {
    section(name, figures).map(move |figure| Figure {
        line: line.clone(),
        ..figure
    })
}

impl Figure {
    /// Names the figure on the page.
    pub fn named(self, name: &'static str) -> Figure {
        Figure { name, ..self }
    }

    /// Adds a label, which the figure has on the page.
    pub fn of(mut self, label: &'static str, value: impl ToString) -> Figure {
        self.labels.push((label, value.to_string()));
        self
    }

    /// The unit that is a part of the key.
    fn unit(&self) -> &str {
        let unit = self.key.split('_').find(|part| ["us", "ms", "seconds"].contains(part));
        unit.unwrap_or("us")
    }

    /// Text of the value in INFO.
    fn text(&self) -> Cow<'_, str> {
        match (&self.value, self.unit()) {
            (FigureValue::Text(text) | FigureValue::Number(_, text), _) => text.into(),
            (FigureValue::Span(None), _) => "none".into(),
            (FigureValue::Span(Some(Nanos::MAX)), _) => "unknown".into(),
            (FigureValue::Span(Some(span)), "ms") => span.0.div_ceil(1_000_000).to_string().into(),
            (FigureValue::Span(Some(span)), "seconds") => (span.0 / 1_000_000_000).to_string().into(),
            (FigureValue::Span(Some(span)), _) => span.0.div_ceil(1_000).to_string().into(),
        }
    }

    /// Value on the page, if it is there.
    fn number(&self) -> Option<f64> {
        match self.value {
            _ if self.help.is_empty() => None,
            FigureValue::Number(number, _) => Some(number),
            FigureValue::Span(Some(span)) if span < Nanos::MAX => Some(span.0 as f64 / 1e9),
            FigureValue::Text(_) | FigureValue::Span(_) => None,
        }
    }

    /// Name of the family on the page.
    fn family(&self) -> String {
        let long = |part| match part {
            "us" | "ms" => "seconds",
            part => part,
        };
        match self.name {
            "" => self.key.split('_').map(long).collect::<Vec<_>>().join("_"),
            name => name.into(),
        }
    }
}

/// Renders the sections of INFO that are in `wanted`; all, if it is empty.
pub fn info(figures: &[Figure], wanted: &[String]) -> String {
    let all = ["all", "everything", "default"];
    let is_wanted = |figure: &&Figure| {
        let is_it = |word: &String| *word == figure.section.to_lowercase() || all.contains(&word.as_str());
        !figure.key.is_empty() && (wanted.is_empty() || wanted.iter().any(is_it))
    };
    let (mut text, mut section, mut line) = (String::new(), "", "");
    for figure in figures.iter().filter(is_wanted) {
        if figure.section != section {
            let apart = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{apart}# {}\r\n", figure.section);
            section = figure.section;
        }
        let (key, value) = (&figure.key, figure.text().replace(['\r', '\n'], "_"));
        match figure.line.as_str() {
            "" => text += &format!("{key}:{value}\r\n"),
            own => {
                let value = value.replace([',', '='], "_");
                match own == line {
                    true => text.truncate(text.len() - "\r\n".len()),
                    false => text += &format!("{own}:"),
                }
                let comma = if own == line { "," } else { "" };
                let _ = write!(text, "{comma}{key}={value}\r\n");
            }
        }
        line = &figure.line;
    }
    text
}

/// Renders the page for Prometheus; names begin with `punctual_` and `prefix`.
pub fn prometheus(prefix: &str, figures: &[Figure]) -> String {
    let mut families: Vec<(String, String)> = Vec::new();
    for figure in figures {
        let Some(number) = figure.number() else { continue };
        let name = format!("punctual_{prefix}{}", figure.family());
        let labels = figure
            .labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
        let labels = match labels.collect::<Vec<_>>().join(",") {
            none if none.is_empty() => none,
            labels => format!("{{{labels}}}"),
        };
        let sample = format!("{name}{labels} {number}\n");
        match families.iter_mut().find(|(family, _)| *family == name) {
            Some((_, samples)) => *samples += &sample,
            None => {
                let is_quantile = figure.labels.iter().any(|(label, _)| *label == "quantile");
                let kind = match name.ends_with("_total") {
                    true => "counter",
                    false if is_quantile => "summary",
                    false => "gauge",
                };
                let head = format!("# HELP {name} {}.\n# TYPE {name} {kind}\n", figure.help);
                families.push((name, head + &sample));
            }
        }
    }
    families.into_iter().map(|(_, samples)| samples).collect()
}

/// Rewrites pages of [`prometheus`] as OpenMetrics 1.0.0: a counter's family is named without `_total`, a unit is
/// declared, and the text has an end.
pub fn open_metrics(pages: &str) -> String {
    let mut text = String::new();
    for line in pages.lines() {
        let mut words = line.splitn(4, ' ');
        match [(); 4].map(|()| words.next()) {
            [Some("#"), Some(kind), Some(name), Some(rest)] => {
                let family = name.strip_suffix("_total").unwrap_or(name);
                let unit = ["seconds", "bytes"]
                    .into_iter()
                    .find(|unit| family.ends_with(&format!("_{unit}")));
                if let (Some(unit), "TYPE") = (unit, kind) {
                    text += &format!("# UNIT {family} {unit}\n");
                }
                text += &format!("# {kind} {family} {rest}\n");
            }
            _ => text += &format!("{line}\n"),
        }
    }
    text + "# EOF\n"
}

/// Escapes a text for use between the quotes of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Vec<Figure> {
        let peer = |peer: &str, lag| {
            let figures = [
                figure("lag_ms", Nanos(lag), "Age of the last message").of("peer", peer),
                figure("live", true, "Whether the peer answers")
                    .named("is_live")
                    .of("peer", peer),
                word("name", "a,b=c\r\n"),
            ];
            row("Peers", format!("peer{peer}"), figures)
        };
        let work = [
            figure("done", 7_u64, "Jobs").named("jobs_total").of("result", "done"),
            figure("late", 2_u64, "Jobs").named("jobs_total").of("result", "late"),
            figure("wait_us", None, "Wait of the last job"),
            figure("wait_p99_us", Nanos(5_000), "Waits of jobs")
                .named("waits_seconds")
                .of("quantile", "0.99"),
            figure("", 0.5, "Share").named("share"),
        ];
        let peers = peer("0", 1_500_000).chain(peer("a\"b\\c\nd", 0));
        peers.chain(section("Work", work)).collect()
    }

    #[test]
    fn info_has_a_line_for_each_row_and_the_sections_that_are_wanted() {
        let peers = "# Peers\r\npeer0:lag_ms=2,live=1,name=a_b_c__\r\npeera\"b\\c\nd:lag_ms=0,";
        let work = "# Work\r\ndone:7\r\nlate:2\r\nwait_us:none\r\nwait_p99_us:5\r\n";
        let all = info(&list(), &[]);
        assert!(all.starts_with(peers), "{all}");
        assert!(all.ends_with(&format!("\r\n\r\n{work}")), "{all}");
        assert_eq!(info(&list(), &["all".into()]), all);
        assert_eq!(info(&list(), &["work".into()]), work);
    }

    #[test]
    fn the_page_has_families_with_help_and_type() {
        let page = prometheus("test_", &list());
        let lag = "# HELP punctual_test_lag_seconds Age of the last message.\n# TYPE punctual_test_lag_seconds gauge\n\
                   punctual_test_lag_seconds{peer=\"0\"} 0.0015\n\
                   punctual_test_lag_seconds{peer=\"a\\\"b\\\\c\\nd\"} 0\n# HELP";
        assert!(page.starts_with(lag), "{page}");
        let jobs = "# TYPE punctual_test_jobs_total counter\npunctual_test_jobs_total{result=\"done\"} 7\n\
                    punctual_test_jobs_total{result=\"late\"} 2\n# HELP";
        assert!(page.contains(jobs), "{page}");
        // A quantile is a summary's: promtool refuses it as a label of any other kind.
        let waits =
            "# TYPE punctual_test_waits_seconds summary\npunctual_test_waits_seconds{quantile=\"0.99\"} 0.000005\n";
        assert!(page.contains(waits), "{page}");
        assert!(
            !page.contains("test_wait_") && page.ends_with("punctual_test_share 0.5\n"),
            "{page}"
        );
    }

    #[test]
    fn a_page_as_open_metrics_names_families_units_and_its_end() {
        let page = open_metrics(&(prometheus("test_", &list()) + &prometheus("other_", &list())));
        assert_eq!(punctual_testing::open_metrics::check(&page), Ok(()), "{page}");
        let jobs = "# HELP punctual_test_jobs Jobs.\n# TYPE punctual_test_jobs counter\n\
                    punctual_test_jobs_total{result=\"done\"} 7\n";
        assert!(page.contains(jobs), "{page}");
        let waits = "# UNIT punctual_test_waits_seconds seconds\n# TYPE punctual_test_waits_seconds summary\n";
        assert!(page.contains(waits), "{page}");
        assert_eq!(open_metrics(""), "# EOF\n");
    }

    #[test]
    fn keys_that_are_no_text_have_labels_of_their_own() {
        let keys: [&[u8]; 3] = [b"\xfe", b"\xff", "k\u{fc}che".as_bytes()];
        let page = prometheus("", &object_ages(keys.map(|key| (key, Nanos(0)))).collect::<Vec<_>>());
        for key in ["\\\\xfe", "\\\\xff", "k\u{fc}che"] {
            assert!(page.contains(&format!("{{key=\"{key}\"}} 0\n")), "no {key} in {page}");
        }
    }
}

//! The page of the referees: their distributions outside and inside of the protection, and the runs.

use std::fmt::Write;

use punctual_evaluation::referees::{Referee, RefereeRun};

use super::tail::{Tail, Tails};
use super::{framed, sheet};
use crate::referees::{THROTTLED, of, protection, side, table, together};
use punctual_report::page::escape;

/// The page of `runs`; `command` is the command line that produced it.
pub fn referees(runs: &[RefereeRun], absent: &[String], setting: &str, command: &str) -> String {
    let mut body = String::new();
    let heard: Vec<Referee> = Referee::ALL
        .into_iter()
        .filter(|referee| {
            of(runs, *referee, false)
                .chain(of(runs, *referee, true))
                .next()
                .is_some()
        })
        .collect();
    let _ = writeln!(
        body,
        "<p class=\"verdict plain\">{}</p>\n<p class=\"note\">{}</p>",
        escape(&sentence(runs, &heard)),
        escape(setting)
    );
    body += "<h2>Distributions</h2>\n<div class=\"charts\">\n";
    heard.iter().for_each(|referee| figure(&mut body, runs, *referee));
    body += "</div>\n<p class=\"note\">The share that took longer than so long, of all repetitions together; both axes logarithmic. Level to its end: beyond the tool's histogram only the longest is known.</p>\n<h2>Runs</h2>\n";
    sheet(&mut body, &table(runs));
    body += "<p class=\"note\">late: loops of rt-app that were not done by the end of their period. Outside and inside differ in the protection only: core, priority, places of the tools' other threads and hogs are the same.</p>\n";
    let _ = writeln!(body, "<p class=\"note\">{THROTTLED}.</p>");
    if let Some(obtained) = protection(runs) {
        let _ = writeln!(
            body,
            "<h2>Protection inside</h2>\n<div class=\"sheet\"><pre>{}</pre></div>",
            escape(&obtained.replace("; ", "\n"))
        );
    }
    if !absent.is_empty() {
        let _ = writeln!(
            body,
            "<h2>Not heard</h2>\n<div class=\"sheet\"><pre>{}</pre></div>",
            escape(&absent.join("\n"))
        );
    }
    let head = "<b>referees</b> · <span class=\"badge\">measured on Linux</span>";
    framed("referees", head, &body, command)
}

/// A sentence with the longest time of each side.
fn sentence(runs: &[RefereeRun], heard: &[Referee]) -> String {
    let of = |referee: &Referee| {
        let longest = |protected| time(together(runs, *referee, protected).1);
        format!(
            "{} {} outside, {} inside",
            referee.program(),
            longest(false),
            longest(true)
        )
    };
    format!("Longest: {}", heard.iter().map(of).collect::<Vec<_>>().join("; "))
}

fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} us"),
        us => format!("{:.1} ms", us * 1e-3),
    }
}

fn figure(page: &mut String, runs: &[RefereeRun], referee: Referee) {
    let tail = |(protected, class): (bool, &'static str)| {
        let (histogram, max_us) = together(runs, referee, protected);
        Tail {
            name: side(protected).into(),
            class,
            bins: histogram.bins,
            beyond: histogram.beyond,
            max_us: Some(max_us),
        }
    };
    let tails = Tails {
        description: format!("{}: {}, outside and inside", referee.program(), referee.measures()),
        tails: [(false, "d"), (true, "a")].map(tail).to_vec(),
        mark_us: None,
    };
    let _ = write!(
        page,
        "<figure><figcaption><b>{}</b><span>{}</span>",
        referee.program(),
        referee.measures()
    );
    for tail in &tails.tails {
        let _ = write!(page, "<span class=\"key {}\">{}</span>", tail.class, tail.name);
    }
    let _ = writeln!(page, "</figcaption>\n{}\n</figure>", tails.svg());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::referees::tests::run;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let runs = [
            run(Referee::RtApp, false, 26_000.0),
            run(Referee::RtApp, true, 90.0),
            run(Referee::Cyclictest, false, 9.0),
        ];
        let page = referees(
            &runs,
            &["running oslat: a < b".into()],
            "1 repetition",
            "punctual-lab bench referees",
        );
        punctual_report::fixture::check_nesting(&page);
        for part in [
            "rt-app 26.0 ms outside, 90 us inside",
            "7 of 120",
            "kept by &lt;us&gt;",
            "oslat: a &lt; b",
            "measured on Linux",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert_eq!(page.matches("<svg").count(), 2, "a mute referee has no figure");
        for outside in ["http", "src=", "url(", "@import", "<link", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}

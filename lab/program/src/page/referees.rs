//! The page of the referees: their distributions outside and inside of the protection, and the runs.

use maud::{Markup, html};
use punctual_evaluation::referees::{Referee, RefereeRun};

use super::tail::{Tail, Tails};
use crate::referees::{THROTTLED, of, protection, side, table, together};
use punctual_report::page::{figure, framed, sheet};

/// The page of `runs`; `command` is the command line that produced it.
pub fn referees(runs: &[RefereeRun], absent: &[String], setting: &str, command: &str) -> String {
    let is_heard = |referee: &Referee| {
        of(runs, *referee, false)
            .chain(of(runs, *referee, true))
            .next()
            .is_some()
    };
    let heard: Vec<Referee> = Referee::ALL.into_iter().filter(is_heard).collect();
    let head = html! { b { "referees" } " · " span class="badge" { "measured on Linux" } };
    let body = html! {
        p class="verdict plain" { (sentence(runs, &heard)) }
        p class="note" { (setting) }
        h2 { "Distributions" }
        div class="charts" { @for referee in &heard { (drawn(runs, *referee)) } }
        p class="note" {
            "The share that took longer than so long, of all repetitions together; both axes logarithmic. Level to its "
            "end: beyond the tool's histogram only the longest is known."
        }
        h2 { "Runs" }
        (sheet(&table(runs)))
        p class="note" {
            "late: loops of rt-app that were not done by the end of their period. Outside and inside differ in the "
            "protection only: core, priority, places of the tools' other threads and hogs are the same."
        }
        p class="note" { (THROTTLED) "." }
        @if let Some(obtained) = protection(runs) {
            h2 { "Protection inside" }
            div class="sheet" tabindex="0" { pre { (obtained.replace("; ", "\n")) } }
        }
        @if !absent.is_empty() { h2 { "Not heard" } div class="sheet" tabindex="0" { pre { (absent.join("\n")) } } }
    };
    framed("referees", &head, &body, command)
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

fn drawn(runs: &[RefereeRun], referee: Referee) -> Markup {
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
    let measures = html! { span { (referee.measures()) } };
    figure(referee.program(), &measures, &tails.keys(), &tails.svg())
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

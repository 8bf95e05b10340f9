//! The page of a run while it runs: a document without figures, and the figures that its script asks the same server
//! for. It is the page of a finished run but for what is known at the end alone.

use maud::{Markup, PreEscaped, html};
use punctual_runtime::report::{RunHeader, Sample};

use super::figures::figures;
use super::{document, marks, settings, tasks, tiles};
use crate::summary::{START_UP, count, figure as figure_of, mode, share};
use crate::verdict::Standing;
use crate::view::ViewState;

/// Shows the events of the server, and keeps where wide tables were scrolled to, and which one has the focus.
const SCRIPT: &str = "
const shown = document.getElementById('shown'), state = document.getElementById('state');
const events = new EventSource('events');
const sheets = () => [...shown.querySelectorAll('.sheet')];
events.onmessage = event => {
  const at = sheets().map(sheet => sheet.scrollLeft), focused = sheets().indexOf(document.activeElement);
  shown.innerHTML = event.data;
  sheets().forEach((sheet, number) => sheet.scrollLeft = at[number] || 0);
  sheets()[focused]?.focus({ preventScroll: true });
  state.textContent = 'live';
};
events.onerror = () => state.textContent = events.readyState === EventSource.CLOSED
  ? 'not shown: at most BROWSERS browsers at a time'
  : 'ended, or not reached: `punctual top --serve` shows a run while it runs';
";

/// The document; `name` is that of the run, of which at most `browsers` get figures.
pub fn document_of(name: &str, browsers: usize) -> String {
    let head = html! { b { (name) } " · " span id="state" { "waiting for figures" } };
    let body = html! {
        div id="shown" {}
        noscript { p class="why" { "This page needs JavaScript; the terminal does not: punctual top" } }
        p class="note" { "punctual " (env!("CARGO_PKG_VERSION")) }
        script { (PreEscaped(SCRIPT.replace("BROWSERS", &browsers.to_string()))) }
    };
    document(name, &head, &body)
}

/// The figures of a state, as a part of the document.
pub fn figures_of(state: &ViewState) -> String {
    let shown = match &state.header {
        None => html! {
            p class="verdict open" { "Getting ready" }
            @for stage in &state.stages { p class="why" { (stage) } }
        },
        Some(header) => running(state, header),
    };
    shown.into_string()
}

fn running(state: &ViewState, header: &RunHeader) -> Markup {
    let standings: Vec<Standing> = state.tasks.iter().map(Standing::of).collect();
    let held = standings.iter().filter(|standing| **standing == Standing::Held).count();
    let class = match held == standings.len() {
        true => " good",
        false if standings.contains(&Standing::Missed) => "",
        false => " open",
    };
    let samples: Vec<Sample> = state.samples.iter().cloned().collect();
    let [from, to] = state.span();
    html! {
        p class={ "verdict" (class) } { (held) " of " (standings.len()) " tasks hold their goals" }
        @if let Some(why) = state.last().and_then(|last| last.fallback.as_ref()) { p class="why" { "fallback: " (why) } }
        (tiles(&now(state, header)))
        (tasks::tasks(&state.tasks))
        (settings(&state.settings))
        h2 { "Curves" }
        div class="charts" { @for shown in figures(header, &samples, [from, to]) { (shown) } }
        p class="note" {
            (header.controller.name()) " on " (header.machine) " (" (header.platform.name()) "). Curves: the last "
            (format!("{:.0}", to - from)) " s."
        }
        (marks(&state.marks))
    }
}

fn now(state: &ViewState, header: &RunHeader) -> Vec<(String, String)> {
    let [jobs, late] = state.jobs();
    let last = state.last();
    let mode = last.map_or(START_UP, |last| mode(last, header.settle_s));
    let fresh = last.filter(|_| header.load.sensors > 0).map(|last| last.fresh_share);
    let mut tiles = vec![
        (count(late), format!("late of {} jobs", count(jobs))),
        (
            figure_of(last.and_then(|last| last.tardiness)),
            "response time / deadline".into(),
        ),
        (mode.into(), format!("at {:.0} s", state.elapsed_s())),
    ];
    tiles.extend(fresh.map(|fresh| (share(Some(fresh)), format!("fresh, minimum {}", header.goal.min_fresh))));
    tiles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, check_nesting};
    use crate::view::News;
    use punctual_runtime::report::RunMark;

    #[test]
    fn the_document_asks_its_own_server_alone_and_names_are_text() {
        let page = document_of("<b>a & b", 16);
        check_nesting(&page);
        assert!(page.contains("&lt;b&gt;a &amp; b") && page.contains("at most 16 browsers"));
        for outside in ["http", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    fn is_whole(shown: &str) {
        check_nesting(&document("a run", &html! {}, &PreEscaped(shown.into())));
    }

    #[test]
    fn figures_of_every_state_are_whole() {
        let mut state = ViewState::new(f64::INFINITY);
        state.update(News::Stage("calibrating".into()));
        assert!(figures_of(&state).contains("calibrating"));
        state.update(News::Started(Box::new(fixture::header())));
        is_whole(&figures_of(&state));
        (0..3000).for_each(|k| state.update(News::Sample(Box::new(fixture::sample(k)))));
        state.update(News::Tasks(fixture::tasks()));
        state.update(News::Mark(RunMark {
            t_s: 30.0,
            text: "a<b".into(),
        }));
        let shown = figures_of(&state);
        is_whole(&shown);
        for part in [
            "<th>30.0 s</th><td>a&lt;b</td>",
            "2 of 2 tasks hold",
            "4</b><span>late of 5,830 jobs",
            "500 s</text>",
            "600 s</text>",
            "analysis",
        ] {
            assert!(shown.contains(part), "no {part}");
        }
        assert!(!shown.contains("450 s</text>"), "curves begin 120 s ago");
    }
}

//! Tasks on the page: a table of figures, and for each task a histogram of its response times and the parts of its
//! time.

use maud::{Markup, html};
use punctual_runtime::report::{TaskReport, WhereTimeWent};
use punctual_workload::Part;

use super::chart::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, grid, px};
use super::{figure, lines};
use crate::causes;
use crate::summary::count;
use crate::tasks::{COLUMNS, is_late, late, shares, time};
use crate::verdict::Standing;

/// The section; empty without tasks.
pub fn tasks(tasks: &[TaskReport]) -> Markup {
    html! {
        @if !tasks.is_empty() {
            h2 { "Tasks" }
            div class="sheet" tabindex="0" { table {
                thead { tr {
                    th { "task" } @for (title, _) in COLUMNS { th { (title) } }
                    th { "where a job's time goes" } th { "why late" }
                } }
                tbody { @for task in tasks { (row(task)) } }
            } }
            p class="note legend" {
                @for part in Part::ALL { span class={ "key " (class(part)) } { (part.words()) } " " }
            }
            div class="charts" { @for task in tasks.iter().filter(|task| !task.histogram.is_empty()) {
                @let deadline = format!("deadline {}", time(task.deadline_us));
                @let keys = [("jobs by response time".to_owned(), "a"), (deadline, "late")];
                (figure(&task.name, &html! {}, &keys, &svg(task)))
            } }
        }
    }
}

fn row(task: &TaskReport) -> Markup {
    let standing = match Standing::of(task) {
        Standing::Held => " held",
        Standing::Missed => " missed",
        Standing::NoJob | Standing::TooFew { .. } => " untold",
    };
    let causes: Vec<String> = causes::told(task).collect();
    html! {
        tr {
            th { (task.name) }
            @for (title, text) in COLUMNS {
                td class={ "figure" @if title == "late" { (standing) } } { (text(task)) }
            }
            td { @match &task.where_us { Some(parts) => (bar(parts)), None => "-" } }
            td class="text" { @if causes.is_empty() { "-" } @else { (lines(&causes)) } }
        }
    }
}

/// Parts of a job's time as one bar.
fn bar(parts: &WhereTimeWent) -> Markup {
    html! {
        div class="parts" { @for (part, share) in shares(parts) {
            @let words = format!("{} {:.0} %, {}", part.words(), share * 100.0, time(parts.part(part)));
            i class=(class(part)) style={ "width:" (px(share * 100.0)) "%" } title=(words) {}
        } }
    }
}

/// Class of a part in the style sheet.
const fn class(part: Part) -> &'static str {
    match part {
        Part::ReleasedLate => "w",
        Part::Preempted => "p",
        Part::Lock => "l",
        Part::Data => "d2",
        Part::Computation => "c2",
        Part::Commit => "k",
    }
}

/// Histogram of `task`, both axes logarithmic, so that one late job in a thousand is visible.
fn svg(task: &TaskReport) -> Markup {
    let (axes, foot) = (Axes::of(task), HEIGHT - BOTTOM);
    let powers = std::iter::successors(Some(1.0), |jobs| Some(jobs * 10.0));
    let deadline = px(axes.x(task.deadline_us));
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img"
            aria-label={ "response times of " (task.name) ", " (late(task)) }
        {
            @for jobs in powers.take_while(|jobs| *jobs <= axes.most) {
                (grid(LEFT, axes.y(jobs), &count(jobs as u64)))
            }
            @for us in axes.times() {
                @let x = px(axes.x(us));
                line class="grid" x1=(x) x2=(x) y1=(TOP) y2=(px(foot)) {}
                text class="second" x=(x) y=(px(foot + 15.0)) { (time_label(us)) }
            }
            @for bin in &task.histogram {
                @let (left, right, top) = (axes.x(bin.from_us), axes.x(bin.to_us), axes.y(bin.jobs as f64));
                @let class = if is_late(bin, task) { "late" } else { "a" };
                @let width = (right - left - 1.0).max(0.5);
                rect class={ "bar " (class) } x=(px(left)) y=(px(top)) width=(px(width)) height=(px(foot - top)) {
                    title { (time(bin.from_us)) " to " (time(bin.to_us)) ": " (count(bin.jobs)) " jobs" }
                }
            }
            line class="level late" x1=(deadline) x2=(deadline) y1=(TOP) y2=(px(foot)) {}
        }
    }
}

/// Axes: microseconds from `low` to `high` across, jobs from below one to `most` upwards.
struct Axes {
    low: f64,
    high: f64,
    most: f64,
}

impl Axes {
    /// Height of a single job, as a part of a power of ten.
    const ONE_JOB: f64 = 0.5;

    fn of(task: &TaskReport) -> Axes {
        let edges = || task.histogram.iter().flat_map(|bin| [bin.from_us, bin.to_us]);
        let most = task.histogram.iter().map(|bin| bin.jobs).max().unwrap_or(1);
        Axes {
            low: edges().fold(task.deadline_us / 2.0, f64::min),
            high: edges().fold(task.deadline_us * 2.0, f64::max),
            most: most.max(10) as f64,
        }
    }

    fn x(&self, us: f64) -> f64 {
        let share = (us / self.low).ln() / (self.high / self.low).ln();
        LEFT + (WIDTH - LEFT - RIGHT) * share.clamp(0.0, 1.0)
    }

    fn y(&self, jobs: f64) -> f64 {
        let share = (jobs.max(1.0).log10() + Axes::ONE_JOB) / (self.most.log10() + Axes::ONE_JOB);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share.clamp(0.0, 1.0)
    }

    /// Round times within the axis: 1, 2 and 5 of each power of ten, or only 1 if those are too many.
    fn times(&self) -> Vec<f64> {
        const LABELS_MAX: usize = 6;
        let within = |steps: &[f64]| -> Vec<f64> {
            let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let times = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            times.filter(|us| (self.low..=self.high).contains(us)).collect()
        };
        let fine = within(&[1.0, 2.0, 5.0]);
        if fine.len() <= LABELS_MAX { fine } else { within(&[1.0]) }
    }
}

/// Label of a round time, without the digits that [`time`] adds.
fn time_label(us: f64) -> String {
    match us {
        ..1.0 => format!("{:.0} ns", us * 1e3),
        ..1e3 => format!("{us:.0} us"),
        ..1e6 => format!("{:.0} ms", us * 1e-3),
        _ => format!("{:.0} s", us * 1e-6),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_runtime::report::Bin;

    use super::super::chart::PHONE_DIGIT;
    use super::*;
    use crate::fixture;
    use crate::fixture::check_nesting;

    #[test]
    fn every_task_has_its_row_its_parts_and_its_histogram() {
        let page = tasks(&fixture::report().tasks).into_string();
        check_nesting(&format!("<html><head><style></style></head><body>{page}</body></html>"));
        for part in [
            "<th>analysis</th><td class=\"figure\">late 1 %</td>",
            "<td class=\"figure held\">4 of 530 (0.8 %)</td>",
            "<td class=\"figure\">42.6 ms</td><td class=\"figure\">49.4 ms</td>",
            &causes::told(&fixture::report().tasks[0]).next().unwrap(),
            "title=\"store access 59 %, 25.2 ms\"",
            "bar late",
            "deadline 5.00 ms",
        ] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        assert_eq!(page.matches("bar late").count(), 1, "steer has no late job");
    }

    #[test]
    fn a_task_without_a_job_has_a_row_and_no_picture() {
        let mut task = fixture::report().tasks.remove(0);
        task.histogram.clear();
        (task.jobs, task.late, task.late_share) = (0, 0, None);
        (task.response_us, task.where_us, task.causes) = (None, None, Vec::new());
        let page = tasks(&[task]).into_string();
        assert!(page.contains("untold") && !page.contains("<svg"), "{page}");
    }

    proptest! {
        /// Labels of an axis stand apart where they are largest, on a phone.
        #[test]
        fn times_do_not_run_into_each_other(low in 0.5..1e6f64, decades in 0.6..5.0f64) {
            let axes = Axes { low, high: low * 10f64.powf(decades), most: 10.0 };
            let times = axes.times();
            let half = |us: f64| time_label(us).len() as f64 * PHONE_DIGIT / 2.0;
            for pair in times.windows(2) {
                prop_assert!(axes.x(pair[1]) - axes.x(pair[0]) > half(pair[0]) + half(pair[1]), "{times:?}");
            }
        }

        #[test]
        fn any_histogram_can_be_drawn(
            bins in prop::collection::btree_map(-40i32..60, 1u64..1 << 40, 1..30),
            deadline in 1.0..1e9f64,
        ) {
            let mut task = fixture::report().tasks.remove(0);
            task.deadline_us = deadline;
            let edge = |number: i32| deadline * (f64::from(number) / 4.0).exp2();
            let bin =
                |(number, jobs): (&i32, &u64)| Bin { from_us: edge(*number), to_us: edge(number + 1), jobs: *jobs };
            task.histogram = bins.iter().map(bin).collect();
            let svg = svg(&task).into_string();
            prop_assert!(
                svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("inf") && !svg.contains("=\"-"),
                "{}",
                svg
            );
            prop_assert_eq!(svg.matches("<rect").count(), bins.len());
            prop_assert!((1..=12).contains(&Axes::of(&task).times().len()));
        }
    }
}

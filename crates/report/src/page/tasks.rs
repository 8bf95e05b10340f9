//! Tasks on the page: a table of figures, and for each task a histogram of its response times and the parts of its
//! time.

use std::fmt::Write;

use punctual_runtime::report::{TaskReport, WhereTimeWent};
use punctual_workload::Part;

use super::chart::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH};
use super::escape;
use crate::causes;
use crate::summary::count;
use crate::tasks::{is_late, late, responses, shares, time};
use crate::verdict::Standing;

/// Adds the section, unless there is no task.
pub fn tasks(page: &mut String, tasks: &[TaskReport]) {
    if tasks.is_empty() {
        return;
    }
    *page += "<h2>Tasks</h2>\n<div class=\"sheet\"><table>\n<thead><tr><th>task</th><th>goal</th><th>late</th><th>deadline</th><th>p50</th><th>p99</th><th>p99.9</th><th>max</th><th>where a job's time goes</th><th>why late</th></tr></thead>\n<tbody>\n";
    tasks.iter().for_each(|task| row(page, task));
    *page += "</tbody></table></div>\n<p class=\"note legend\">";
    for part in Part::ALL {
        let _ = write!(page, "<span class=\"key {}\">{}</span> ", class(part), part.words());
    }
    *page += "</p>\n<div class=\"charts\">\n";
    tasks.iter().for_each(|task| figure(page, task));
    *page += "</div>\n";
}

fn row(page: &mut String, task: &TaskReport) {
    let standing = match Standing::of(task) {
        Standing::Held => "held",
        Standing::Missed => "missed",
        Standing::NoJob | Standing::TooFew { .. } => "untold",
    };
    let [p50, p99, max] = responses(task);
    let p999 = task.response_us.map_or("-".into(), |response| time(response.p999));
    let figures = [time(task.deadline_us), p50, p99, p999, max];
    let figures: String = figures.map(|cell| format!("<td class=\"figure\">{cell}</td>")).concat();
    let _ = writeln!(
        page,
        "<tr><th>{}</th><td class=\"figure\">{}</td><td class=\"figure {standing}\">{}</td>{figures}<td>{}</td><td>{}</td></tr>",
        escape(&task.name),
        task.goal(),
        late(task),
        task.where_us.as_ref().map_or("-".into(), parts),
        why(task)
    );
}

fn why(task: &TaskReport) -> String {
    let causes: Vec<String> = causes::told(task).map(|cause| escape(&cause)).collect();
    if causes.is_empty() {
        "-".into()
    } else {
        causes.join("<br>")
    }
}

/// Parts of a job's time as one bar.
fn parts(parts: &WhereTimeWent) -> String {
    let told = |(part, share): (Part, f64)| {
        let words = format!("{} {:.0} %, {}", part.words(), share * 100.0, time(parts.part(part)));
        format!(
            "<i class=\"{}\" style=\"width:{:.1}%\" title=\"{words}\"></i>",
            class(part),
            share * 100.0
        )
    };
    let all: String = shares(parts).map(told).concat();
    format!("<div class=\"parts\">{all}</div>")
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

fn figure(page: &mut String, task: &TaskReport) {
    if task.histogram.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<figure><figcaption><b>{}</b><span class=\"key a\">jobs by response time</span><span class=\"key late\">deadline {}</span></figcaption>\n{}\n</figure>",
        escape(&task.name),
        time(task.deadline_us),
        svg(task)
    );
}

/// Histogram of `task`, both axes logarithmic, so that one late job in a thousand is visible.
fn svg(task: &TaskReport) -> String {
    let axes = Axes::of(task);
    let name = escape(&task.name);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"response times of {name}, {}\">\n",
        late(task)
    );
    axes.draw(&mut svg);
    for bin in &task.histogram {
        let (left, right, top) = (axes.x(bin.from_us), axes.x(bin.to_us), axes.y(bin.jobs as f64));
        let class = if is_late(bin, task) { "late" } else { "a" };
        let _ = writeln!(
            svg,
            "<rect class=\"bar {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{} to {}: {} jobs</title></rect>",
            (right - left - 1.0).max(0.5),
            HEIGHT - BOTTOM - top,
            time(bin.from_us),
            time(bin.to_us),
            count(bin.jobs)
        );
    }
    let x = axes.x(task.deadline_us);
    let _ = writeln!(
        svg,
        "<line class=\"level late\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>",
        HEIGHT - BOTTOM
    );
    svg + "</svg>"
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

    fn draw(&self, svg: &mut String) {
        let mut jobs = 1.0;
        while jobs <= self.most {
            let y = self.y(jobs);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 5.0,
                y + 4.0,
                count(jobs as u64)
            );
            jobs *= 10.0;
        }
        for us in self.times() {
            let x = self.x(us);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/><text class=\"second\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 15.0,
                time_label(us)
            );
        }
    }

    /// Round times within the axis: 1, 2 and 5 of each power of ten, or only 1 if those are too many.
    fn times(&self) -> Vec<f64> {
        const LABELS_MAX: usize = 8;
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

    use super::*;
    use crate::fixture;
    use crate::fixture::check_nesting;

    #[test]
    fn every_task_has_its_row_its_parts_and_its_histogram() {
        let mut page = "<html><head><style></style></head><body>".to_string();
        tasks(&mut page, &fixture::report().tasks);
        check_nesting(&format!("{page}</body></html>"));
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
        let mut page = String::new();
        tasks(&mut page, &[task]);
        assert!(page.contains("untold") && !page.contains("<svg"), "{page}");
    }

    proptest! {
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
            let svg = svg(&task);
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

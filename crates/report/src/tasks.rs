//! Results of each task, as the summary, the plain lines, the live view and the page show them: pure, without colours
//! and layout.

use punctual_runtime::report::{Bin, ResponseTimes, TaskReport, WhereTimeWent};
use punctual_workload::Part;

use crate::causes;
use crate::columns::{aligned, widest};
use crate::summary::{count, percent};
use crate::view::EIGHTHS;

/// Most parts of a job's time that are named in words; the others are small.
const PARTS_TOLD: usize = 3;

/// Width of a histogram within lines of text, in columns.
const SPARK_WIDTH: usize = 24;

/// Parts below this share of a job's time are left out.
const PART_LEAST: f64 = 0.01;

/// Columns of texts in a table (task, goal, late), which come before those of figures.
const TEXTS: usize = 3;
/// A letter for each part of a job's time, for columns too narrow for words.
pub const LETTERS: [(char, Part); 6] = [
    ('w', Part::ReleasedLate),
    ('p', Part::Preempted),
    ('l', Part::Lock),
    ('d', Part::Data),
    ('c', Part::Computation),
    ('k', Part::Commit),
];

/// Formats microseconds with a unit, to three digits.
pub fn time(us: f64) -> String {
    let (value, unit) = match us {
        ..1e3 => (us, "us"),
        ..1e6 => (us * 1e-3, "ms"),
        _ => (us * 1e-6, "s"),
    };
    let decimals = match value {
        ..10.0 if unit != "us" => 2,
        ..100.0 if unit != "us" => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// Late jobs such as `4 of 530 (0.8 %)`, and failed ones; a dash without a job.
pub fn late(task: &TaskReport) -> String {
    if task.jobs + task.failed == 0 {
        return "-".into();
    }
    let share = task
        .late_share
        .map_or(String::new(), |share| format!(" ({})", percent(share)));
    let failed = match task.failed {
        0 => String::new(),
        failed => format!(", {} failed", count(failed)),
    };
    format!("{} of {}{share}{failed}", count(task.late), count(task.jobs))
}

/// A figure of a task: its name, and its text.
pub type TaskColumn = (&'static str, fn(&TaskReport) -> String);

/// Figures of each task. Text leaves out `p99.9`, the live view the deadline as well.
pub static COLUMNS: [TaskColumn; 7] = [
    ("goal", |task| task.goal().to_string()),
    ("late", late),
    ("p50", |task| response(task, |response| response.p50)),
    ("p99", |task| response(task, |response| response.p99)),
    ("p99.9", |task| response(task, |response| response.p999)),
    ("max", |task| response(task, |response| response.max)),
    ("deadline", |task| time(task.deadline_us)),
];

fn response(task: &TaskReport, of: fn(&ResponseTimes) -> f64) -> String {
    task.response_us
        .as_ref()
        .map_or("-".into(), |response| time(of(response)))
}

/// The columns but for some.
pub fn columns_without(left_out: &[&str]) -> impl Iterator<Item = &'static TaskColumn> {
    COLUMNS.iter().filter(move |(title, _)| !left_out.contains(title))
}

/// Share of each part of the job's time, 0 to 1, in the order of a job's life.
pub fn shares(parts: &WhereTimeWent) -> [(Part, f64); 6] {
    let whole: f64 = Part::ALL.iter().map(|part| parts.part(*part)).sum();
    let share = |part| if whole > 0.0 { parts.part(part) / whole } else { 0.0 };
    Part::ALL.map(|part| (part, share(part)))
}

/// Largest parts of an average job's time, in descending order.
pub fn where_time_goes(task: &TaskReport) -> String {
    let Some(parts) = &task.where_us else { return "-".into() };
    let mut shares = shares(parts);
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told = shares.iter().take(PARTS_TOLD).filter(|(_, share)| *share >= PART_LEAST);
    let told: Vec<String> = told
        .map(|(part, share)| format!("{} {:.0} %", part.words(), share * 100.0))
        .collect();
    told.join(", ")
}

/// Parts of an average job's time as letters, `width` of them in all; empty without a job.
///
/// Each part gets its share of the letters, rounded down; the missing letters go to the parts that rounding cut most.
pub fn letters(task: &TaskReport, width: usize) -> Vec<(char, Part, usize)> {
    let Some(parts) = &task.where_us else { return Vec::new() };
    let exact = shares(parts).map(|(_, share)| share * width as f64);
    let mut columns = exact.map(|columns| columns as usize);
    let missing = width.saturating_sub(columns.iter().sum());
    let mut by_rest: [usize; 6] = std::array::from_fn(|i| i);
    by_rest.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
    by_rest.iter().cycle().take(missing).for_each(|i| columns[*i] += 1);
    let lettered = LETTERS
        .iter()
        .zip(columns)
        .map(|((letter, part), columns)| (*letter, *part, columns));
    lettered.filter(|(_, _, columns)| *columns > 0).collect()
}

/// Lines of a table: a head, then per task a line of figures, a line with histogram and parts of the time, and a line
/// for each cause of lateness.
pub fn table(tasks: &[TaskReport]) -> Vec<String> {
    let columns = || columns_without(&["p99.9"]);
    let head = std::iter::once("task".into()).chain(columns().map(|(title, _)| (*title).into()));
    let row = |task: &TaskReport| {
        let cells = columns().map(|(_, text)| text(task));
        std::iter::once(task.name.clone()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(head.collect()).chain(tasks.iter().map(row)).collect();
    let mut lines = aligned(&rows, TEXTS, 2).into_iter();
    let width = widest(rows.iter().map(|row| &row[0]));
    let mut table: Vec<String> = lines.next().into_iter().collect();
    table.push(format!(
        "{:width$}  {:<SPARK_WIDTH$}  where a job's time goes",
        "", "response times │deadline"
    ));
    for (line, task) in lines.zip(tasks) {
        table.push(line);
        let histogram = sparkline(task, SPARK_WIDTH);
        table.push(format!("{:width$}  {histogram}  {}", "", where_time_goes(task)));
        table.extend(causes::told(task).map(|cause| format!("{:width$}  {cause}", "")));
    }
    table
}

/// Column of a histogram of response times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Column {
    /// Jobs of this column.
    Jobs {
        /// Height from 0 (no job) to 8, logarithmic, so that one job in a thousand is visible.
        height: u8,
        /// Whether the column lies beyond the deadline.
        late: bool,
    },
    /// The line at the deadline.
    Deadline,
}

impl Column {
    /// Character for this column.
    pub const fn symbol(self) -> char {
        match self {
            Column::Jobs { height, .. } => EIGHTHS[height as usize],
            Column::Deadline => '│',
        }
    }
}

/// Histogram of a task's response times in `width` columns, on a logarithmic axis that includes the deadline as a
/// column; empty without a job, or if `width` is below 3.
pub fn histogram(task: &TaskReport, width: usize) -> Vec<Column> {
    let (Some(first), Some(last)) = (task.histogram.first(), task.histogram.last()) else {
        return Vec::new();
    };
    if width < 3 {
        return Vec::new();
    }
    // The axis includes half and twice the deadline, wherever the jobs are.
    let low = first.from_us.min(task.deadline_us / 2.0).ln();
    let high = last.to_us.max(task.deadline_us * 2.0).ln();
    let at = |us: f64| ((us.ln() - low) / (high - low) * width as f64).clamp(0.0, width as f64 - 1.0) as usize;
    let deadline = at(task.deadline_us).clamp(1, width - 2);
    let mut jobs = vec![0u64; width];
    for bin in &task.histogram {
        // A bin may be wider or narrower than a column.
        let side = if is_late(bin, task) {
            deadline + 1..width
        } else {
            0..deadline
        };
        let first = at(bin.from_us).clamp(side.start, side.end - 1);
        let end = at(bin.to_us).clamp(first + 1, side.end);
        jobs[first..end].iter_mut().for_each(|jobs| *jobs += bin.jobs);
    }
    let most = jobs.iter().copied().max().unwrap_or(1).max(1) as f64;
    let height = |jobs: u64| match jobs {
        0 => 0,
        jobs => (1.0 + 7.0 * (jobs as f64).ln_1p() / most.ln_1p()).round() as u8,
    };
    let column = |(column, jobs): (usize, &u64)| match column == deadline {
        true => Column::Deadline,
        false => Column::Jobs {
            height: height(*jobs).min(8),
            late: column > deadline,
        },
    };
    jobs.iter().enumerate().map(column).collect()
}

/// Whether the jobs in this bin were late; the deadline is an edge between bins.
pub fn is_late(bin: &Bin, task: &TaskReport) -> bool {
    (bin.from_us * bin.to_us).sqrt() > task.deadline_us
}

/// Histogram ([`histogram`]) as one line of characters.
pub fn sparkline(task: &TaskReport, width: usize) -> String {
    histogram(task, width).into_iter().map(Column::symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use proptest::prelude::*;

    #[test]
    fn times_have_three_digits() {
        let times = [0.4, 12.3, 999.0, 1_230.0, 12_340.0, 123_456.0, 1_234_567.0].map(time);
        assert_eq!(
            times,
            ["0 us", "12 us", "999 us", "1.23 ms", "12.3 ms", "123 ms", "1.23 s"]
        );
    }

    #[test]
    fn a_task_is_told_in_a_few_words() {
        let [analysis, steer] = &fixture::report().tasks[..] else {
            panic!("two tasks")
        };
        assert_eq!(late(analysis), "4 of 530 (0.8 %)");
        let responses: Vec<String> = COLUMNS[2..6].iter().map(|(_, text)| text(steer)).collect();
        assert_eq!(
            [&responses[0], &responses[1], &responses[3]],
            ["1.20 ms", "2.61 ms", "4.40 ms"]
        );
        assert!(where_time_goes(analysis).starts_with("store access 59 %, "));
        let letters: String = letters(analysis, 20)
            .iter()
            .map(|(letter, _, n)| letter.to_string().repeat(*n))
            .collect();
        assert_eq!(letters, "pddddddddddddccccccc");
        assert_eq!(sparkline(analysis, 16).chars().filter(|c| *c == '│').count(), 1);
    }

    proptest! {
        /// Whatever a job's time went to, the letters fill the width, and no part has more than a letter too many.
        #[test]
        fn letters_fill_the_width(parts in prop::array::uniform6(0.0..1e6f64), width in 1usize..60) {
            let mut task = fixture::report().tasks.remove(0);
            let [released_late, preempted, lock, data, computation, commit] = parts;
            task.where_us = Some(WhereTimeWent { released_late, preempted, lock, data, computation, commit });
            let letters = letters(&task, width);
            prop_assert_eq!(letters.iter().map(|(_, _, columns)| columns).sum::<usize>(), width);
            let shares = shares(&task.where_us.unwrap());
            for (_, part, columns) in letters {
                let share = shares.iter().find(|(other, _)| *other == part).unwrap().1;
                prop_assert!((columns as f64 - share * width as f64).abs() <= 1.0 || share == 0.0);
            }
        }

        /// A late job is always drawn behind the deadline, one on time before it, and any job is seen.
        #[test]
        fn a_histogram_has_late_jobs_behind_the_deadline(
            exponents in prop::collection::btree_set(0i32..120, 1..20),
            width in 3usize..50,
        ) {
            let mut task = fixture::report().tasks.remove(0);
            let edge = |exponent: i32| 2f64.powf(f64::from(exponent) / 4.0);
            let bin = |exponent: i32| Bin { from_us: edge(exponent), to_us: edge(exponent + 1), jobs: 1 };
            task.histogram = exponents.iter().map(|exponent| bin(*exponent)).collect();
            let late = task.histogram.iter().any(|bin| is_late(bin, &task));
            let on_time = task.histogram.iter().any(|bin| !is_late(bin, &task));
            let columns = histogram(&task, width);
            prop_assert_eq!(columns.len(), width);
            let drawn = |wanted: bool| {
                columns.iter().any(|column| matches!(column, Column::Jobs { height: 1.., late } if *late == wanted))
            };
            prop_assert_eq!((drawn(true), drawn(false)), (late, on_time));
            prop_assert_eq!(columns.iter().filter(|column| **column == Column::Deadline).count(), 1);
        }
    }
}

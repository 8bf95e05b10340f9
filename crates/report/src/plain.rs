//! Progress without a terminal: a line per second, two lines per task every ten seconds, and one per stage.

use punctual_platform::KnobId;
use punctual_runtime::report::{RunHeader, Sample, TaskReport};

use crate::summary::{figure, headline, mode};
use crate::tasks;

/// Seconds of the run between two prints of all tasks.
const TASKS_EVERY_S: u64 = 10;

/// Gathers the samples of a second into a line.
#[derive(Debug, Default)]
pub struct Plain {
    /// Provenance of the clock knob in brackets; empty without such a knob.
    clock_note: String,
    /// Whether the run has data that can be fresh.
    has_data: bool,
    /// Length of the start-up, in seconds.
    settle_s: f64,
    /// Whole seconds of the run that were printed.
    told: u64,
    /// Multiples of ten seconds at which all tasks were printed.
    tasks_told: u64,
    gathered: Vec<Sample>,
}

impl Plain {
    /// Starts the run proper, and returns its headline.
    pub fn started(&mut self, header: &RunHeader) -> String {
        let clock = header.offered(KnobId::CLOCK);
        *self = Plain {
            has_data: header.load.sensors > 0,
            settle_s: header.settle_s,
            clock_note: clock.map_or(String::new(), |provenance| format!(" ({provenance})")),
            ..Plain::default()
        };
        format!("{}, default goal {}", headline(header), header.goal.tasks)
    }

    /// Takes a sample; returns the line of a second once it is complete.
    pub fn sample(&mut self, sample: &Sample) -> Option<String> {
        self.gathered.push(sample.clone());
        // Steps come slightly after their due time or, because of rounding in sums, before it.
        let seconds = (sample.t_s + 1e-3) as u64;
        if seconds == self.told {
            return None;
        }
        self.told = seconds;
        self.flush()
    }

    /// Lines of all tasks, if ten seconds have passed since the last print.
    pub fn tasks(&mut self, tasks: &[TaskReport]) -> Option<String> {
        let tens = self.told / TASKS_EVERY_S;
        if tens == self.tasks_told {
            return None;
        }
        self.tasks_told = tens;
        let lines = tasks::table(tasks).into_iter().map(|line| format!("          {line}"));
        Some(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Line of the samples since the last one, if there are any.
    pub fn flush(&mut self) -> Option<String> {
        let gathered = std::mem::take(&mut self.gathered);
        let last = gathered.last()?;
        let jobs: u32 = gathered.iter().map(|sample| sample.jobs).sum();
        let misses: u32 = gathered.iter().map(|sample| sample.misses).sum();
        let by_jobs = |mean: fn(&Sample) -> Option<f64>| {
            let sums = gathered
                .iter()
                .filter_map(|sample| Some((mean(sample)? * f64::from(sample.ended), sample.ended)));
            let (sum, jobs) = sums.fold((0.0, 0), |(sum, jobs), (part, n)| (sum + part, jobs + n));
            format!("{:>4}", figure((jobs > 0).then(|| sum / f64::from(jobs))))
        };
        let fresh = gathered.iter().map(|sample| sample.fresh_share).fold(1.0, f64::min);
        let (mode, tardiness) = (mode(last, self.settle_s), by_jobs(|sample| sample.tardiness));
        let mut line = format!("{:>6.1} s  {mode:<8}  tardiness {tardiness}", last.t_s);
        if self.has_data {
            let (drr, admitted) = (by_jobs(|sample| sample.drr), last.admitted_share * 100.0);
            let fresh = fresh * 100.0;
            line += &format!("  drr {drr}  admitted {admitted:>3.0} %  fresh {fresh:>3.0} %");
        }
        if let Some(share) = last.best_effort_share {
            line += &format!("  best-effort {:>3.0} %", share * 100.0);
        }
        if let Some(clock) = last.clock_hz {
            line += &format!("  clock {:>4.0} MHz{}", clock as f64 * 1e-6, self.clock_note);
        }
        line += &format!("  late {misses} of {jobs}");
        if let Some(reason) = &last.fallback {
            line += &format!("  ({reason})");
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_line_tells_a_second() {
        let mut plain = Plain::default();
        let started = plain.started(&fixture::header());
        let mut lines: Vec<String> = (0..300).filter_map(|k| plain.sample(&fixture::sample(k))).collect();
        lines.extend(plain.flush());
        assert_eq!(lines.len(), 60);
        assert_eq!(plain.flush(), None);
        let empty = windows_without_jobs().flush().unwrap();
        assert!(
            lines[6].contains("start-up  ") && lines[7].contains("running  "),
            "{lines:?}"
        );
        insta::assert_snapshot!("plain", format!("{started}\n{}\n{empty}", lines[20]));
    }

    fn windows_without_jobs() -> Plain {
        let mut plain = Plain::default();
        let sample = Sample {
            mode: punctual_loop::ModeName::Fallback,
            fallback: Some("no jobs".into()),
            ..Sample::default()
        };
        assert_eq!(plain.sample(&sample), None);
        plain
    }

    #[test]
    fn windows_without_jobs_or_clock_leave_gaps() {
        let line = windows_without_jobs().flush().unwrap();
        assert!(line.contains("tardiness    -") && !line.contains("clock"), "{line}");
        assert!(line.ends_with("(no jobs)"), "{line}");
    }
}

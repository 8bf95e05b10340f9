//! `punctual profile measure -- PROGRAM`: a program under the processor's counters, with the allocation in force.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use punctual_profiler::Program;
use punctual_profiler::counters::{CountedWindow, CountersError, Counting, Events, examine, write_measured};

use super::follow::{follow, signals, tell};
use super::place::{beside, counted, keep, millions};
use crate::args::Measure;
use crate::failure::Failure;
use crate::output::Output;

/// Carries out `punctual profile measure -- PROGRAM`.
pub fn measure(arguments: &Measure) -> Result<(), Failure> {
    // First what no other program could mend.
    examine(&Events::HARDWARE).map_err(refused)?;
    let search = std::env::var_os("PATH").unwrap_or_default();
    let (name, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| Failure::input(["name the program to measure: punctual profile measure ... -- PROGRAM ARGS"]))?;
    let program = Program::find(name, rest, &search).map_err(|error| Failure::input([error.to_string()]))?;
    let path = arguments.output.clone().unwrap_or_else(|| beside(name));
    let output = Output::prepare(&path)?;
    let mut signals = signals()?;
    let mut run = Counting::start(&program, &Events::HARDWARE, arguments.window).map_err(refused)?;
    let (status, stopped) = follow(&mut run, &mut signals)?;
    let windows = run.windows().map_err(refused)?;
    if status.success() && !stopped {
        output.text(&rows(&windows, arguments)?)?;
        tell(&format!(
            "{}written to {}: {}\n",
            summary(&windows, run.interpolated()),
            path.display(),
            counted(windows.len() as u64, "window", "windows")
        ));
        return Ok(());
    }
    let mut lines = vec![format!("{}: {}", program.name.display(), why(status, stopped))];
    let instructions = sum(&windows, CountedWindow::progress) as u64;
    lines.extend(keep(&path, windows.len(), instructions, || rows(&windows, arguments))?);
    Err(Failure::Input(lines))
}

fn why(status: ExitStatus, stopped: bool) -> String {
    match (stopped, status.signal(), status.code()) {
        (true, ..) => "was stopped".into(),
        (_, Some(signal), _) => format!("was killed by signal {signal} (see signal(7))"),
        (.., code) => {
            let code = code.unwrap_or_default();
            format!("ended with exit code {code}; mend the program, or what it is given")
        }
    }
}

fn rows(windows: &[CountedWindow], arguments: &Measure) -> Result<String, Failure> {
    let mut text = Vec::new();
    let internal = |error: &dyn std::fmt::Display| Failure::Internal(error.to_string());
    write_measured(windows, arguments.ways, arguments.partitions, &mut text).map_err(|error| internal(&error))?;
    String::from_utf8(text).map_err(|error| internal(&error))
}

fn sum(windows: &[CountedWindow], of: impl Fn(&CountedWindow) -> f64) -> f64 {
    windows.iter().map(of).sum()
}

fn summary(windows: &[CountedWindow], interpolated: u64) -> String {
    let instructions = sum(windows, CountedWindow::progress);
    let per_1000 = |event: usize| sum(windows, |window| window.counts[event]) * 1000.0 / instructions.max(1.0);
    let seconds = sum(windows, |window| window.ns) * 1e-9;
    let mut text = format!(
        "{} instructions in {seconds:.2} s of processor time; per 1000: {:.0} cycles, {:.2} cache references, {:.2} misses\n",
        millions(instructions as u64),
        per_1000(1),
        per_1000(2),
        per_1000(3),
    );
    if interpolated > 0 {
        text += &format!(
            "{} shorter than the time between two readings: means over more; a longer --window tells more\n",
            counted(interpolated, "window is", "windows are")
        );
    }
    text
}

fn refused(error: CountersError) -> Failure {
    Failure::input([error.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_allocation::Share;
    use punctual_allocation::profile::{Options, Recording};

    fn arguments() -> Measure {
        Measure {
            ways: 1,
            partitions: 1,
            window: 1000,
            output: None,
            command: Vec::new(),
        }
    }

    /// A profile of a machine with one way and one partition is whole with one run, and every reader of measured
    /// profiles can read it.
    #[test]
    fn what_is_written_is_a_measured_profile() {
        let window = |ns: f64, instructions: f64| CountedWindow {
            ns,
            counts: [instructions, 2.0 * instructions, 9.0, 3.0],
        };
        let windows = [window(500.0, 1000.0), window(1000.0, 1000.0), window(100.0, 250.0)];
        let text = rows(&windows, &arguments()).expect("text");
        let recording = Recording::read("p.csv", text.as_bytes(), None).expect("a profile");
        let course = recording.course(&Options::default()).expect("a course");
        let all = Share { ways: 1, partitions: 1 };
        assert_eq!(course.instructions(), 2250.0);
        assert_eq!(
            (0..course.len())
                .map(|piece| course.rate(piece, all))
                .map(f64::round)
                .collect::<Vec<_>>(),
            [2e9, 1e9, 2.5e9]
        );
        assert!(
            (course.duration(all) - 1600e-9).abs() < 1e-15,
            "{}",
            course.duration(all)
        );
    }

    #[test]
    fn the_summary_tells_what_was_counted() {
        let window = CountedWindow {
            ns: 5e8,
            counts: [1e9, 2e9, 3e6, 1e6],
        };
        assert_eq!(
            summary(&[window, window], 1),
            "2000.0 M instructions in 1.00 s of processor time; per 1000: 2000 cycles, 3.00 cache references, 1.00 misses\n\
             1 window is shorter than the time between two readings: means over more; a longer --window tells more\n"
        );
    }
}

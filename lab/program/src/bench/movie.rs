//! `punctual-lab bench movie`: the second paper's player on this machine, in three ways and beside a control, by turns.

use std::path::Path;

use punctual_evaluation::movie::{Arm, MoviePlan, MovieReport, play, possible};
use punctual_units::Nanos;
use punctual_workload::{Arrival, Class};
use serde::Serialize;

use super::series::{Interrupt, tell};
use crate::args::{Movie, Play};
use crate::movie::{goals, is_inconclusive, told};
use crate::page;
use punctual_cli::commands::print;
use punctual_evaluation::claims::Goal;
use punctual_files::failure::Failure;
use punctual_files::scenario::{self, Loaded};
use punctual_report::output::{OutputFile, apart};

/// The scenario played by default, and its path in the project's folder.
const SHIPPED: &str = "scenarios/movie.toml";
/// Largest part of a period that decoding may take: the paper's player sleeps for most of the period.
const DECODE_MAX: f64 = 0.4;

/// The JSON output of the experiment.
#[derive(Debug, Serialize)]
struct MovieDocument<'r> {
    scenario: String,
    /// Whether the machine was too disturbed: goals about time then get no verdict.
    inconclusive: bool,
    goals: Vec<Goal>,
    #[serde(flatten)]
    report: &'r MovieReport,
}

/// Carries out `punctual-lab bench movie`.
pub fn movie(arguments: &Movie, command: &str) -> Result<(), Failure> {
    let [json, html] = [&arguments.json, &arguments.html];
    apart(&[("--json", json.as_deref()), ("--html", html.as_deref())])?;
    let [json, html] = [OutputFile::report(json.as_ref())?, OutputFile::page(html.as_ref())?];
    let path = arguments.scenario.as_deref().unwrap_or(Path::new(SHIPPED));
    let loaded = scenario::load(Some(path), &arguments.set)?;
    let plan = plan(&loaded, &arguments.play, arguments.repetitions)?;
    let interrupt = Interrupt::listen()?;
    let report = play(&plan, &mut |what| {
        tell(what);
        interrupt.answer()
    });
    let report = report.map_err(Failure::of)?;
    print(&told(&report))?;
    let written = MovieDocument {
        scenario: loaded.shown(),
        inconclusive: is_inconclusive(&report),
        goals: goals(&report),
        report: &report,
    };
    json.map_or(Ok(()), |file| file.json(&written))?;
    html.map_or(Ok(()), |file| {
        file.text(&page::movie(&written.scenario, &report, &written.goals, command))
    })
}

/// Bytes of a device's block: frames are read in whole blocks.
const BLOCK: usize = 4096;

/// The plan of a scenario with one exclusive task, changed by the options in `asked`.
fn plan(loaded: &Loaded, asked: &Play, repetitions: u32) -> Result<MoviePlan, Failure> {
    let complain = |what: String| Failure::of(format!("{}: {what}", loaded.shown()));
    let tasks = &loaded.scenario.tasks;
    let mut players = tasks
        .iter()
        .filter(|task| matches!(task.class, Class::Exclusive { .. }));
    let (Some(player), None) = (players.next(), players.next()) else {
        return Err(complain(
            "task: `bench movie` plays one task; give exactly one class = \"exclusive\"".into(),
        ));
    };
    let (Some(deadline), Arrival::Periodic { period }) = (player.deadline(), player.arrival) else {
        return Err(complain(format!("task.{}: a player has a `period`", player.name)));
    };
    let (period, deadline) = asked.period().map_or((period, deadline), |period| (period, period));
    let decode = asked.decode.unwrap_or(player.demand.compute);
    if decode.ratio(period) > DECODE_MAX || decode == Nanos::ZERO {
        return Err(complain(format!(
            "task.{}.compute, --decode: {decode} of every {period}: give more than 0 and at most {:.0} %; a player sleeps between frames",
            player.name,
            DECODE_MAX * 100.0
        )));
    }
    let file = loaded.movie;
    if file.frames == 0 {
        return Err(complain("movie.frames: at least one is played".into()));
    }
    let hogs = tasks
        .iter()
        .filter(|task| task.class == Class::BestEffort)
        .map(|task| task.per_core);
    let plan = MoviePlan {
        period,
        deadline,
        decode,
        frame_bytes: match asked.film {
            Some(film) => (film.frame_bytes(period) as usize).next_multiple_of(BLOCK),
            None => file.frame_bytes as usize,
        },
        file_bytes: file.file_bytes.into(),
        cache_bytes: file.cache_bytes.into(),
        frames: file.frames,
        hogs_per_core: asked.hogs.unwrap_or_else(|| hogs.sum()),
        busy_disk: file.busy_disk,
        repetitions,
        arms: Arm::ALL.to_vec(),
        neighbours: loaded.neighbours.clone(),
    };
    possible(&plan).map_err(|refusal| complain(format!("{}; {}", refusal.why, refusal.remedy)))?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_evaluation::dps::Film;
    use punctual_files::toml::Override;

    fn shipped(set: &[&str]) -> Result<MoviePlan, Failure> {
        played(set, &Play::default())
    }

    fn played(set: &[&str], asked: &Play) -> Result<MoviePlan, Failure> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(SHIPPED);
        let set: Vec<_> = set.iter().map(|text| Override::parse(text).unwrap()).collect();
        plan(&scenario::load(Some(&path), &set)?, asked, 5)
    }

    #[test]
    fn the_shipped_movie_is_the_papers() {
        let plan = shipped(&[]).unwrap();
        assert_eq!((plan.frames, plan.repetitions), (150, 5));
        assert!(
            (plan.period.as_secs_f64() * 24.0 - 1.0).abs() < 1e-3,
            "24 frames per second"
        );
        assert!(plan.file_bytes > plan.cache_bytes, "a file larger than its cache");
        assert!(plan.decode.ratio(plan.period) <= DECODE_MAX && plan.hogs_per_core > 0);
    }

    #[test]
    fn what_is_asked_for_stands_in_place_of_the_scenarios() {
        let asked = Play {
            film: Some(Film::Hd),
            fps: Some(50.0),
            hogs: Some(0),
            decode: Some(Nanos::from_millis(5)),
        };
        let plan = played(&[], &asked).unwrap();
        assert_eq!(
            (plan.period, plan.deadline),
            (Nanos::from_millis(20), Nanos::from_millis(20))
        );
        assert_eq!((plan.hogs_per_core, plan.decode), (0, Nanos::from_millis(5)));
        // 20 Mbit/s are 50,000 bytes in a fiftieth of a second.
        assert_eq!(plan.frame_bytes, 13 * 4096);
        for decode in [Nanos::ZERO, Nanos::from_millis(9)] {
            let asked = Play {
                decode: Some(decode),
                ..asked.clone()
            };
            let Err(Failure::Input(lines)) = played(&[], &asked) else {
                panic!("{decode} was accepted")
            };
            assert!(lines[0].contains("--decode"), "{lines:?}");
        }
    }

    #[test]
    fn what_cannot_be_played_is_said() {
        for (set, word) in [
            ("task.player.compute=20ms", "task.player.compute"),
            ("movie.frame_bytes=1000", "movie.frame_bytes"),
            ("movie.frames=0", "movie.frames"),
            ("task.player.class=real-time", "exactly one"),
            ("movie.disk=full", "\"busy\" or \"idle\""),
        ] {
            let Err(Failure::Input(lines)) = shipped(&[set]) else {
                panic!("{set} was accepted")
            };
            assert!(lines[0].contains(word), "{set}: {lines:?}");
        }
    }
}

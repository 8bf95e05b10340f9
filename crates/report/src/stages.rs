//! Results of a scenario's stages, as the summary and the page show them.

use punctual_runtime::report::StageReport;
use punctual_workload::TaskGoal;

use crate::columns::aligned;
use crate::summary::{count, counted, figure, percent};
use crate::verdict::{Standing, TOLERANCE};

/// A figure of a stage: its name, and its text.
pub type StageColumn = (&'static str, fn(&StageReport) -> String);

/// Columns of the table.
pub static COLUMNS: [StageColumn; 10] = [
    ("stage", |stage| stage.name.clone()),
    ("goal", |stage| stage.goal().map_or("-".into(), |goal| goal.to_string())),
    ("late", |stage| late_of(stage.late, stage.timed)),
    ("tardiness p50", |stage| figure(stage.tardiness.map(|it| it.p50))),
    ("p99", |stage| figure(stage.tardiness.map(|it| it.p99))),
    ("max", |stage| figure(stage.tardiness.map(|it| it.max))),
    ("frames", |stage| count(frames(stage))),
    ("moves", |stage| count(stage.moves)),
    ("restarts", |stage| count(stage.restarts)),
    ("core", |stage| stage.core.map_or("-".into(), |core| core.to_string())),
];

/// Columns of texts, which come before those of figures.
const TEXTS: usize = 3;

/// Standing of a stage against its goal; `None` without a goal.
pub fn standing(stage: &StageReport) -> Option<Standing> {
    Some(standing_of(
        stage.goal()?,
        (stage.late, stage.timed),
        stage.tardiness_mean,
    ))
}

/// Standing of a stage against `goal`, from its late frames, its frames with a due time, and the mean tardiness
/// (response time / deadline) of those that it took: missing ones have none, and miss a mean where no other came.
pub fn standing_of(goal: TaskGoal, (late, timed): (u64, u64), mean: Option<f64>) -> Standing {
    match goal {
        _ if timed == 0 => Standing::NoJob,
        TaskGoal::Late(goal) => Standing::of_late(late, timed, goal.get()),
        TaskGoal::Tardiness(goal) if mean.is_some_and(|mean| mean <= goal + TOLERANCE) => Standing::Held,
        TaskGoal::Tardiness(_) => Standing::Missed,
    }
}

/// Standing of all stages together, the worst of each; `None` where none has a goal and all frames have come through.
/// Frames that have not are a goal missed.
pub fn standing_of_all(stages: &[StageReport]) -> Option<Standing> {
    let worst = |standing: &Standing| match standing {
        Standing::Missed => 3,
        Standing::NoJob => 2,
        Standing::TooFew { .. } => 1,
        Standing::Held => 0,
    };
    let left = (left(stages) > 0).then_some(Standing::Missed);
    left.or_else(|| stages.iter().filter_map(standing).max_by_key(worst))
}

/// Whether every stage with a goal meets it, and all frames have come through.
pub fn is_good(stages: &[StageReport]) -> bool {
    standing_of_all(stages).is_none_or(|standing| standing == Standing::Held)
}

/// Frames that still waited before stages when the run ended.
fn left(stages: &[StageReport]) -> u64 {
    stages.iter().map(|stage| stage.left).sum()
}

/// Frames that a stage took; for a source, frames that it made.
fn frames(stage: &StageReport) -> u64 {
    stage
        .frames_taken
        .max(if stage.frames_taken == 0 { stage.frames_made } else { 0 })
}

/// Late frames as a count and a share of the frames with a due time.
pub fn late_of(late: u64, timed: u64) -> String {
    if timed == 0 {
        return "-".into();
    }
    let share = percent(late as f64 / timed as f64);
    format!("{} of {} ({share})", count(late), count(timed))
}

/// Table as lines: the head, then a line per stage.
pub fn table(stages: &[StageReport]) -> Vec<String> {
    let head = COLUMNS.map(|(name, _)| name.to_owned()).to_vec();
    let row = |stage: &StageReport| COLUMNS.map(|(_, text)| text(stage)).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(stages.iter().map(row)).collect();
    aligned(&rows, TEXTS, 2)
}

/// Sentences on lost frames, processes that stood still and killed programs, stage by stage.
pub fn notes(stages: &[StageReport]) -> Vec<String> {
    // The programs behind it wait for frames then.
    let is_stuck = left(stages) > 0;
    let note = |stage: &StageReport| {
        let name = &stage.name;
        let dropped =
            (stage.dropped > 0).then(|| format!("{} frames were dropped before \"{name}\"", count(stage.dropped)));
        let refused = (stage.refused > 0).then(|| {
            format!(
                "the program of \"{name}\" ended before {} frames could be given to it",
                count(stage.refused)
            )
        });
        let left = (stage.left > 0).then(|| {
            format!(
                "{} frames still waited before \"{name}\" when the run ended",
                count(stage.left)
            )
        });
        let hung = (stage.hung > 0).then(|| {
            let (were, they) = match stage.hung {
                1 => (format!("1 process of \"{name}\" was"), "it"),
                many => (format!("{} processes of \"{name}\" were", count(many)), "they"),
            };
            format!("{were} killed, because {they} stood still for longer than pipeline.step_max")
        });
        let killed = stage.killed.then(|| match is_stuck {
            true => format!("the program of \"{name}\" was killed at the end: not all of its frames had come"),
            false => format!("the program of \"{name}\" went on when all was over, and was killed"),
        });
        [dropped, refused, left, hung, killed].into_iter().flatten()
    };
    stages.iter().flat_map(note).collect()
}

/// Verdict on all stages in a sentence.
pub fn sentence(stages: &[StageReport]) -> String {
    let judged: Vec<(&StageReport, Standing)> = stages
        .iter()
        .filter_map(|stage| Some((stage, standing(stage)?)))
        .collect();
    let with = |wanted: fn(&Standing) -> bool| judged.iter().find(|(_, standing)| wanted(standing)).map(|(it, _)| *it);
    let Some((first, _)) = judged.first() else {
        return match left(stages) {
            0 => "No stage has a goal: nothing to judge.".into(),
            left => format!("{} had not come through when the run ended.", counted(left, "frame")),
        };
    };
    if let Some(stage) = with(|standing| *standing == Standing::Missed) {
        return format!("Goal missed by stage \"{}\": {}.", stage.name, stands(stage));
    }
    // These frames are in no count: a stage that hangs would be the better, the earlier it does.
    let left = left(stages);
    if left > 0 {
        return format!(
            "Goal missed by stage \"{}\": {} had not come through when the run ended; of the others, {}.",
            first.name,
            counted(left, "frame"),
            stands(first)
        );
    }
    if let Some(stage) = with(|standing| *standing == Standing::NoJob) {
        let name = &stage.name;
        return format!("Too short to judge: no frame with a due time came to stage \"{name}\".");
    }
    if let Some(stage) = with(|standing| matches!(standing, Standing::TooFew { .. })) {
        return format!("Too few frames to judge stage \"{}\": {}.", stage.name, stands(stage));
    }
    match judged.as_slice() {
        [(stage, _)] => format!("Goal held by stage \"{}\": {}.", stage.name, stands(stage)),
        all => format!("All {} stages with a goal hold it.", all.len()),
    }
}

/// Figure by which a stage is judged, and its goal.
fn stands(stage: &StageReport) -> String {
    match stage.goal() {
        Some(goal @ TaskGoal::Late(_)) => format!("{} frames late, goal {goal}", late_of(stage.late, stage.timed)),
        Some(goal @ TaskGoal::Tardiness(_)) => match stage.tardiness_mean {
            Some(mean) => format!("tardiness {mean:.2} on average, goal {goal}"),
            None => format!("no frame came, {} missing, goal {goal}", count(stage.missing)),
        },
        None => String::new(),
    }
}

/// Summary of a run without tasks, which was refused these protections; every line ends in a newline. The verdict is
/// last.
pub fn summary(scenario: &str, seconds: f64, stages: &[StageReport], refused: &[String]) -> String {
    let mut text = format!("\n{scenario} on linux, {seconds:.1} s\n\n");
    let notes = notes(stages).into_iter().map(|note| format!("note: {note}"));
    let refused = refused.iter().map(|refusal| format!("refused: {refusal}"));
    let lines = table(stages).into_iter().chain(notes).chain(refused);
    lines.for_each(|line| text += &format!("  {line}\n"));
    text + &format!("\n{}\n", sentence(stages))
}

#[cfg(test)]
mod tests {
    use punctual_units::Share;

    use super::*;

    #[test]
    fn frames_are_judged_as_jobs_are() {
        let late = |late, timed| standing_of(TaskGoal::Late(Share::clamped(0.01)), (late, timed), None);
        let standings = [(0, 0), (0, 50), (1, 50), (3, 50), (1, 100), (2, 100)].map(|(of, timed)| late(of, timed));
        let few = Standing::TooFew { needed: 100 };
        let [missed, held] = [Standing::Missed, Standing::Held];
        assert_eq!(standings, [Standing::NoJob, few, few, missed, held, missed]);
        let mean = |late, mean| standing_of(TaskGoal::Tardiness(0.8), (late, 50), mean);
        assert_eq!(
            [mean(50, None), mean(40, Some(0.7)), mean(0, Some(0.9))],
            [missed, held, missed]
        );
    }

    #[test]
    fn frames_that_did_not_come_through_hold_no_goal() {
        let sink = StageReport {
            name: "sink".into(),
            goal_late: Some(0.01),
            timed: 150,
            ..StageReport::default()
        };
        let before = StageReport {
            name: "hangs".into(),
            ..StageReport::default()
        };
        let mut stages = [before, sink];
        assert!(is_good(&stages) && sentence(&stages).starts_with("Goal held"));
        stages[0].left = 14;
        let sentence = sentence(&stages);
        assert!(!is_good(&stages) && sentence.starts_with("Goal missed"), "{sentence}");
        assert!(sentence.contains("14 frames"), "{sentence}");
    }
}

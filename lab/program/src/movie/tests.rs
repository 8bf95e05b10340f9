use punctual_evaluation::beside::{Effort, Medium};
use punctual_evaluation::claims::Verdict;
use punctual_evaluation::movie::{Frame, MoviePlan};
use punctual_platform::Neighbours;
use punctual_runtime::linux::tenancy::LendingMeasured;

use super::*;

/// One repetition of two frames in each way, of which the fair one dropped the second.
pub(crate) fn report() -> MovieReport {
    let ms = Nanos::from_millis;
    let plan = MoviePlan {
        period: ms(41),
        deadline: ms(41),
        decode: ms(15),
        frame_bytes: 4096,
        file_bytes: 4096,
        cache_bytes: 4096,
        frames: 2,
        hogs_per_core: 2,
        busy_disk: true,
        repetitions: 1,
        arms: Arm::ALL.to_vec(),
        neighbours: Neighbours::default(),
    };
    let frame = |dropped: bool| Frame {
        woken: ms(if dropped { 80 } else { 1 }),
        read: (!dropped).then_some(ms(2)),
        finished: ms(if dropped { 80 } else { 17 }),
        late: dropped,
        explained: false,
    };
    let run = |arm: Arm| Run {
        repetition: 0,
        arm,
        frames: match arm {
            Arm::Alone => Vec::new(),
            _ => vec![frame(false), frame(arm == Arm::Fair)],
        },
        wrong: 0,
        player_cpu: ms(30),
        lent: ms(20),
        counted: Effort {
            window: ms(82),
            interactive_units: 7,
            disk_bytes: 5,
        },
        lending: arm.exclusive().then(|| LendingMeasured {
            hand_over: vec![Nanos(30_000)],
            take_back: vec![Nanos(60_000)],
            control: vec![Nanos(20_000)],
        }),
        take_back: Vec::from_iter(arm.exclusive().then_some(Nanos(70_000))),
        exclusive: arm.exclusive(),
        protection: vec!["memory <locked>".into()],
    };
    let medium = Medium {
        name: "ext4 on /dev/vda".into(),
        in_memory: false,
    };
    MovieReport::of(&plan, 2, medium, Arm::ALL.map(run).to_vec(), None)
}

fn judgement(report: &MovieReport, word: &str) -> Verdict {
    let goals = goals(report);
    let goal = goals.iter().find(|goal| goal.what.contains(word));
    goal.unwrap_or_else(|| panic!("no goal about {word}")).outcome
}

/// The same with other runs.
fn with(change: impl Fn(&mut Run)) -> MovieReport {
    let MovieReport {
        plan, medium, mut runs, ..
    } = report();
    runs.iter_mut().for_each(change);
    MovieReport::of(&plan, 2, medium, runs, None)
}

#[test]
fn both_of_the_interactive_side_are_judged() {
    let idle_writer = with(|run| run.counted.disk_bytes = if run.arm == Arm::Alone { 10 } else { 5 });
    assert_eq!(judgement(&idle_writer, "hogs"), Verdict::Holds);
    assert_eq!(judgement(&idle_writer, "disk's writer"), Verdict::DoesNotHold);
    let text = told(&idle_writer);
    assert!(text.contains("disk written") && text.contains("50.0 %"), "{text}");
}

/// The planted fault: nine times as much work beside the player as without it.
#[test]
fn more_than_there_is_to_share_is_not_judged() {
    let doubtful = with(|run| run.counted.interactive_units = if run.arm == Arm::Alone { 1 } else { 7 });
    assert_eq!(judgement(&doubtful, "hogs"), Verdict::NotJudged);
    let text = told(&doubtful);
    assert!(
        text.contains("at most 120.0 % of the work without a player; found: 700.0 %"),
        "{text}"
    );
}

#[test]
fn nothing_to_hold_it_against_is_not_a_number() {
    let idle_hogs = with(|run| (run.counted.interactive_units, run.counted.disk_bytes) = (0, 0));
    assert_eq!(judgement(&idle_hogs, "hogs"), Verdict::NotJudged);
    assert!(!told(&idle_hogs).contains("NaN"));
}

#[test]
fn dual_management_without_a_core_is_not_judged() {
    let refused = with(|run| {
        run.exclusive = false;
        run.lending = None;
    });
    for word in ["late for none", "hogs", "disk's writer", "taking the core back"] {
        assert_eq!(judgement(&refused, word), Verdict::NotJudged, "{word}");
    }
    assert!(told(&refused).contains("no exclusive core in repetition 1"));
}

#[test]
fn a_disturbed_machine_judges_nothing_but_bytes() {
    let disturbed = with(|run| {
        for frame in &mut run.frames {
            (frame.late, frame.explained) = (true, true);
        }
        run.wrong = 1;
    });
    assert!(is_inconclusive(&disturbed));
    let goals = goals(&disturbed);
    let (bytes, timed) = goals.split_last().unwrap();
    assert!(timed.iter().all(|goal| goal.outcome == Verdict::NotJudged), "{goals:?}");
    assert_eq!(bytes.outcome, Verdict::DoesNotHold);
    assert!(
        timed[0].failed_premise.as_ref().unwrap().found.contains("frames"),
        "{goals:?}"
    );
    assert!(serde_json::to_string(&goals).unwrap().contains("\"not-judged\""));
}

#[test]
fn a_repetition_that_obtained_less_is_told() {
    let mut report = report();
    let more = report.runs.clone().into_iter().map(|run| Run { repetition: 1, ..run });
    report.runs.extend(more);
    assert_eq!(protections(&report).len(), Arm::ALL.len(), "the same in both");
    let dual = |run: &&mut Run| run.arm == Arm::Dual;
    for run in report.runs.iter_mut().filter(dual) {
        run.protection = vec![match run.repetition {
            0 => "23 threads moved away within 990 us".into(),
            _ => "24 threads moved away within 1.02 ms".into(),
        }];
    }
    assert_eq!(protections(&report).len(), Arm::ALL.len(), "figures alone do not tell");
    report
        .runs
        .iter_mut()
        .filter(dual)
        .for_each(|run| run.exclusive = run.repetition == 0);
    let ways: Vec<String> = protections(&report).into_iter().map(|(way, _)| way).collect();
    assert!(
        ways.contains(&"dual (repetition 1)".into()) && ways.contains(&"dual (repetition 2)".into()),
        "{ways:?}"
    );
}

#[test]
fn a_film_in_memory_is_said() {
    let mut report = report();
    assert!(setting(&report).ends_with("film and disk: ext4 on /dev/vda"));
    report.medium.in_memory = true;
    assert!(setting(&report).contains("TMPDIR"));
}

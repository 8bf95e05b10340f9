//! The layout, on ratatui's test backend.

use proptest::prelude::*;
use punctual_runtime::report::{RunMark, Sample, TaskReport, UserRequest};
use punctual_units::Share;
use punctual_workload::TaskGoal;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::fixture;

fn running(samples: u64) -> ViewState {
    let mut state = ViewState::new(60.0);
    state.update(News::Started(Box::new(fixture::header())));
    (0..samples).for_each(|k| state.update(News::Sample(Box::new(fixture::sample(k)))));
    state.update(News::Tasks(fixture::tasks()));
    state
}

fn screen(width: u16, height: u16, state: &ViewState) -> Vec<String> {
    pressed(width, height, state, &Controls::default())
}

fn pressed(width: u16, height: u16, state: &ViewState, controls: &Controls) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, controls)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(row).collect()
}

#[test]
fn everything_is_on_the_smallest_terminal() {
    let screen = screen(80, 24, &running(150));
    let text = screen.join("\n");
    assert!(screen[0].contains("fire-rescue  mimo   running"), "{text}");
    assert!(screen[1].contains("0:30 of 1:00"), "{text}");
    for part in [
        "tardiness 0.88",
        "late 1 %",
        "analysis",
        "42.6 ms",
        "data response ratio 0.6",
        "goal 0.62",
        "admitted 55 %",
        "fresh ",
        "min 50 %",
        "clock 1.90 GHz",
        "emulated",
        "5,830 jobs",
        "late (",
        "27,500 updates/s  transaction",
        "decision ",
        "knobs 15.4 us",
        " 0  6",
        " 1  8",
        "late > 1",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(screen[23].starts_with(" ? help  p pause  q stop in order"), "{text}");
}

#[test]
fn every_task_is_shown_with_its_goal_and_its_figures() {
    let screen = screen(120, 40, &running(150));
    let text = screen.join("\n");
    let line = |name: &str| screen.iter().find(|line| line.contains(name)).expect(name).clone();
    let analysis = line(">analysis ");
    for part in [
        "late 1 %",
        "4 of 530 (0.8 %)",
        "42.6 ms",
        "49.4 ms",
        "55.3 ms",
        "│",
        "pddddddddddddccccccc",
    ] {
        assert!(analysis.contains(part), "no {part:?} in\n{text}");
    }
    assert!(line(" steer ").contains("0 of 5,300 (0.0 %)"), "{text}");
    assert!(text.contains(" p  preempted"), "{text}");
}

#[test]
fn many_tasks_share_the_room_there_is() {
    let mut state = running(150);
    state.tasks = (0..30).map(|_| fixture::tasks().remove(1)).collect();
    let text = screen(80, 24, &state).join("\n");
    assert!(text.contains("steer") && text.contains("tasks 1 to 3 of 30"), "{text}");
}

#[test]
fn every_size_can_be_drawn() {
    for width in [1, 10, 40, 60, 80, 131, 240] {
        for height in [1, 2, 5, 12, 18, 24, 60] {
            for state in [ViewState::new(60.0), running(0), running(1), running(300)] {
                screen(width, height, &state);
            }
        }
    }
}

#[test]
fn many_cores_share_the_room_there_is() {
    let mut state = running(1);
    state.samples[0].busy = vec![0.5; 256];
    assert!(screen(80, 24, &state).join("\n").contains("and more cores"));
    state.samples[0].busy = vec![0.5; 8];
    let text = screen(160, 50, &state).join("\n");
    assert!(text.contains("  7  50 %") && !text.contains("and more cores"), "{text}");
}

#[test]
fn stages_fallback_and_stopping_are_told() {
    let mut state = ViewState::new(60.0);
    for stage in ["calibrating", "filling the store"] {
        state.update(News::Stage(stage.into()));
    }
    let text = screen(80, 24, &state).join("\n");
    assert!(
        text.contains("+ calibrating") && text.contains("> filling the store"),
        "{text}"
    );

    let mut state = running(3);
    let mut sample = fixture::sample(3);
    sample.mode = ModeName::Fallback;
    sample.fallback = Some("no job finished for 3 windows".into());
    state.update(News::Sample(Box::new(sample)));
    let text = screen(80, 24, &state).join("\n");
    assert!(
        text.contains(" fallback ") && text.contains("no job finished for 3 windows"),
        "{text}"
    );
    let small = screen(50, 12, &state).join("\n");
    assert!(small.contains("no job finished"), "{small}");
    let mut controls = Controls::default();
    type_text(&mut controls, &state, "pm");
    assert!(controls.keys.stop() && !controls.keys.stop());
    assert_eq!(type_text(&mut controls, &state, "?gm5\n"), [const { None }; 5]);
    controls.keys.stop();
    let text = pressed(80, 24, &state, &controls).join("\n");
    assert!(
        text.contains("stopping in order") && !text.contains("this help"),
        "{text}"
    );
}

#[test]
fn what_is_simulated_says_so() {
    let mut state = running(5);
    let header = state.header.as_mut().unwrap();
    header.platform = PlatformChoice::Sim;
    header.knobs[0].offered = Some(punctual_platform::Provenance::Simulated);
    let text = screen(80, 24, &state).join("\n");
    assert!(
        text.contains("the simulated machine")
            && text.contains(" simulated ")
            && text.contains("every figure is simulated"),
        "{text}"
    );
}

#[test]
fn a_run_without_data_shows_only_what_concerns_it() {
    let mut header = fixture::header();
    header.load.sensors = 0;
    header
        .knobs
        .retain(|it| it.knob == punctual_platform::KnobId::BestEffortShare);
    header.knobs[0].used = true;
    let sample = Sample {
        best_effort_share: Some(0.25),
        clock_hz: None,
        ..fixture::sample(9)
    };
    let mut plain = crate::plain::Plain::default();
    plain.started(&header);
    let line = plain.sample(&sample).or_else(|| plain.flush()).unwrap();
    assert!(
        line.contains("best-effort  25 %") && !line.contains("admitted"),
        "{line}"
    );
    let mut state = ViewState::new(60.0);
    state.update(News::Started(Box::new(header)));
    state.update(News::Sample(Box::new(sample)));
    let text = screen(80, 24, &state).join("\n");
    assert!(
        text.contains("tardiness") && text.contains("best-effort share 25 %"),
        "{text}"
    );
    for part in ["admitted", "data response ratio", "clock", "updates/s"] {
        assert!(!text.contains(part), "{part:?} in\n{text}");
    }
    // A clock that is no knob is shown where it is read, and a bound that stands still not.
    state.update(News::Sample(Box::new(fixture::sample(10))));
    let text = screen(80, 24, &state).join("\n");
    assert!(
        text.contains("clock 1.") && !text.contains("best-effort share"),
        "{text}"
    );
}

type Asked = Option<Result<UserRequest, String>>;

fn press(controls: &mut Controls, state: &ViewState, key: KeyCode) -> Asked {
    controls.press(&KeyEvent::new(key, KeyModifiers::NONE), state)
}

fn type_text(controls: &mut Controls, state: &ViewState, text: &str) -> Vec<Asked> {
    let keys = text.chars().map(|typed| {
        if typed == '\n' {
            KeyCode::Enter
        } else {
            KeyCode::Char(typed)
        }
    });
    keys.map(|key| press(controls, state, key)).collect()
}

fn tasks(count: usize) -> Vec<TaskReport> {
    let named = |number| TaskReport {
        name: format!("task-{number}"),
        ..fixture::tasks().remove(1)
    };
    (0..count).map(named).collect()
}

#[test]
fn the_smallest_terminal_is_laid_out_like_this() {
    let mut state = running(150);
    state.update(News::Mark(RunMark {
        t_s: 15.0,
        text: "door".into(),
    }));
    let mut late = fixture::tasks();
    (late[1].late, late[1].late_share) = (530, Some(0.1));
    state.update(News::Tasks(late));
    let mut controls = Controls::default();
    type_text(&mut controls, &state, "ss");
    insta::assert_snapshot!("view", pressed(80, 24, &state, &controls).join("\n"));
}

#[test]
fn a_paused_screen_stays_and_counts_what_happens_meanwhile() {
    let (before, mut controls) = (running(150), Controls::default());
    type_text(&mut controls, &before, "p");
    let mut live = running(200);
    live.tasks[0].jobs += 70;
    live.update(News::Sample(Box::new(Sample {
        fallback: Some("lost".into()),
        ..fixture::sample(200)
    })));
    for (width, height) in [(80, 24), (60, 20), (120, 40)] {
        let shown = pressed(width, height, &live, &controls);
        let text = shown.join("\n");
        assert!(text.contains("0:30 of 1:00") && !text.contains("lost"), "{text}");
        let last = shown.last().unwrap();
        assert!(
            last.contains(" paused  p goes on; the run went on: 10 s, 70 jobs, 0 la"),
            "{last}"
        );
    }
    type_text(&mut controls, &live, " ");
    let text = pressed(80, 24, &live, &controls).join("\n");
    assert!(
        text.contains("0:40 of 1:00") && text.contains("2 warnings  fallback: lost"),
        "{text}"
    );
}

#[test]
fn the_help_has_the_keys_that_are_of_use_and_any_key_closes_it() {
    let (mut state, mut controls) = (running(3), Controls::default());
    assert_eq!(type_text(&mut controls, &state, "?"), [None]);
    let text = pressed(60, 20, &state, &controls).join("\n");
    assert!(
        text.contains("pause the screen") && text.contains("mark this instant"),
        "{text}"
    );
    state.update(News::Learning);
    state.update(News::Started(Box::new(fixture::header())));
    assert!(!state.takes_requests());
    state.update(News::Run(60.0));
    assert!(state.takes_requests());
    state = running(3);
    state.is_learning = true;
    let text = pressed(80, 24, &state, &controls).join("\n");
    assert!(
        text.contains("sort the tasks") && !text.contains("mark this instant"),
        "{text}"
    );
    assert!(!text.contains("change the goal"));
    // Closes the help; what a run that learns does not take has no effect.
    assert_eq!(type_text(&mut controls, &state, "qgm"), [None, None, None]);
    assert!(!controls.keys.quits && controls.keys.typed.is_none());
    type_text(&mut controls, &state, "q");
    assert!(controls.keys.quits);
}

#[test]
fn tasks_are_sorted_and_the_selected_one_keeps_its_goal_or_gets_another() {
    let (mut state, mut controls) = (running(150), Controls::default());
    state.tasks = tasks(100);
    (state.tasks[42].late, state.tasks[42].late_share) = (1, Some(0.5));
    state.tasks[7].where_us.as_mut().unwrap().computation = 1e6;
    for (order, first) in [
        ("by late share", "task-42"),
        ("by name", "task-0"),
        ("by mean load", "task-7"),
        ("", "task-0"),
    ] {
        type_text(&mut controls, &state, "s");
        let text = pressed(80, 24, &state, &controls).join("\n");
        assert!(text.contains(order) && text.contains(&format!(">{first} ")), "{text}");
    }
    type_text(&mut controls, &state, "s");
    let wrong = type_text(&mut controls, &state, "g100\n").pop().unwrap();
    assert!(wrong.unwrap().is_err());
    let asked = type_text(&mut controls, &state, "g2.5 %\n").pop().unwrap();
    let goal = TaskGoal::Late(Share::clamped(0.025));
    assert_eq!(asked, Some(Ok(UserRequest::Goal("task-42".into(), goal))));
}

#[test]
fn a_mark_has_the_time_of_its_key_and_a_text_in_which_no_key_has_a_meaning() {
    let (state, mut controls) = (running(150), Controls::default());
    type_text(&mut controls, &state, "mquit? ");
    let later = running(200);
    let text = pressed(80, 24, &later, &controls).join("\n");
    assert!(
        text.contains("0:30 of 1:00") && text.contains(" mark at 0:30, text: quit? "),
        "{text}"
    );
    let asked = press(&mut controls, &later, KeyCode::Enter);
    let Some(Ok(UserRequest::Mark(mark))) = asked else {
        panic!("{asked:?}")
    };
    assert!(
        (mark.t_s - state.elapsed_s()).abs() < 1e-9 && mark.text == "quit? ",
        "{mark:?}"
    );
    // A pause before the question goes on after it; of a long text the end is shown.
    type_text(&mut controls, &state, "p");
    type_text(&mut controls, &later, "m");
    type_text(&mut controls, &running(250), &"0123456789".repeat(6));
    let text = pressed(80, 24, &later, &controls).join("\n");
    assert!(
        text.contains("text: 678901234") && text.contains("789█  Enter or Esc"),
        "{text}"
    );
    let Some(Ok(UserRequest::Mark(mark))) = press(&mut controls, &later, KeyCode::Enter) else {
        panic!("no mark")
    };
    assert!((mark.t_s - later.elapsed_s()).abs() < 1e-9 && controls.keys.paused.is_some());
    type_text(&mut controls, &later, "p");
    // A mark needs no task, a goal does.
    let empty = ViewState::new(60.0);
    type_text(&mut controls, &empty, "g");
    assert!(controls.keys.typed.is_none());
    let asked = type_text(&mut controls, &empty, "m\n").pop().unwrap();
    assert!(matches!(asked, Some(Ok(UserRequest::Mark(_)))), "{asked:?}");
    type_text(&mut controls, &later, "mx");
    assert_eq!(press(&mut controls, &later, KeyCode::Esc), None);
    assert!(!controls.keys.quits);
    type_text(&mut controls, &later, "q");
    assert!(controls.keys.quits);
}

#[test]
fn the_settings_are_explained_on_any_screen_and_the_key_goes_back() {
    let (mut state, mut controls) = (running(150), Controls::default());
    type_text(&mut controls, &state, "e");
    assert!(
        pressed(80, 24, &state, &controls)
            .join("\n")
            .contains("settings 0 to 0")
    );
    state.update(News::Settings(fixture::settings()));
    let text = pressed(80, 24, &state, &controls).join("\n");
    for part in [
        "settings 1 to 3",
        "cores of vision (thread 7)",
        "and 2 more:",
        "0, before 0-1; since 0.5 s, to 55.0 s",
        "admitted-share: 55.0 %",
        "6 of 300 jobs late",
        "refused: operation not permitted",
        " ? help ",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains("tardiness"), "{text}");
    let small = pressed(40, 9, &state, &controls).join("\n");
    assert!(small.contains("cores of vision") && small.contains("q stop"), "{small}");
    type_text(&mut controls, &state, "p");
    press(&mut controls, &state, KeyCode::End);
    let small = pressed(40, 9, &state, &controls).join("\n");
    assert!(
        small.contains("settings 3 to 3") && small.contains("memory locked: refused"),
        "{small}"
    );
    type_text(&mut controls, &state, "e");
    assert!(pressed(80, 24, &state, &controls).join("\n").contains("tardiness"));
}

proptest! {
    // A screen is drawn for each key.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.div_ceil(4),
        ..ProptestConfig::default()
    })]

    /// Whatever is pressed, and however the number of tasks changes, the selected row is on the screen.
    #[test]
    fn the_selected_row_is_shown(
        keys in prop::collection::vec((0usize..7, 1usize..60), 1..12), height in 18u16..60,
    ) {
        use KeyCode::{Char, Down, End, Home, PageDown, PageUp, Up};
        let (mut state, mut controls, mut row) = (running(3), Controls::default(), 0usize);
        for (key, count) in keys {
            state.tasks = tasks(count);
            let last = count - 1;
            let (key, next) = [
                (Up, row.min(last).saturating_sub(1)), (Down, row + 1), (PageUp, row.min(last).saturating_sub(10)),
                (PageDown, row + 10), (Home, 0), (End, last), (Char('p'), row),
            ][key];
            row = next.min(last);
            press(&mut controls, &state, key);
            let text = pressed(80, height, &state, &controls).join("\n");
            let shown = controls.keys.shown(&state).tasks.len();
            prop_assert!(text.contains(&format!(">task-{} ", row.min(shown - 1))), "{} in\n{}", row, text);
        }
    }
}

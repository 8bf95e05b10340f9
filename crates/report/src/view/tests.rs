//! The layout, on ratatui's test backend.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

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
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
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
    assert!(screen[23].starts_with(" q stop in order"), "{text}");
}

#[test]
fn every_task_is_shown_with_its_goal_and_its_figures() {
    let screen = screen(120, 40, &running(150));
    let text = screen.join("\n");
    let line = |name: &str| screen.iter().find(|line| line.contains(name)).expect(name).clone();
    let analysis = line(" analysis ");
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
    assert!(text.contains("steer") && text.contains(" and 27 more"), "{text}");
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
    state.stopping = true;
    assert!(screen(80, 24, &state).join("\n").contains("stopping in order"));
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
    let sample = punctual_runtime::report::Sample {
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

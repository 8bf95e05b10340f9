//! What becomes of frames that come while an edge is full: each is delivered, dropped or under way, and counts once.

use std::sync::Arc;

use proptest::prelude::*;
use punctual_pipelines::*;
use punctual_units::Time;
use serde::{Deserialize, Serialize};

/// Each frame is due so long after it was made.
const PATIENCE: u64 = 5;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FrameNumbers(Vec<u64>);

impl State for FrameNumbers {
    const VERSION: u32 = 1;
}

/// Makes a frame a step, at an instant that its state counts; the graph's other end remembers the frames that it gets.
struct End {
    makes: bool,
}

impl Stage for End {
    type State = FrameNumbers;

    fn begin(&self) -> FrameNumbers {
        FrameNumbers::default()
    }

    fn step(&mut self, seen: &mut FrameNumbers, frames: &mut Frames<'_>) -> Result<(), Failure> {
        if self.makes {
            let sequence = seen.0.first().copied().unwrap_or(0);
            seen.0 = vec![sequence + 1];
            let head = Head {
                sequence,
                captured_at: Time(sequence),
                due_by: Time(sequence + PATIENCE),
            };
            frames.make(0, 0, head);
        } else {
            seen.0
                .extend((0..frames.count(0)).map(|number| frames.head(0, number).sequence));
        }
        Ok(())
    }
}

fn graph(full: WhenFull, slots: u32) -> Graph {
    let edge = EdgeSpec {
        slots,
        frame_bytes: 8,
        full,
    };
    Graph::builder("full")
        .stage(StageSpec::new("source").makes(&[1]).state(64))
        .stage(StageSpec::new("sink").takes(&[1]).state(8192))
        .edge(("source", 0), ("sink", 0), edge)
        .build()
        .unwrap()
}

/// What a schedule of turns of source (true) and sink comes to: frames made, delivered (by number), dropped, waiting.
fn play(full: WhenFull, slots: u32, schedule: &[bool]) -> (u64, Vec<u64>, u64, u64) {
    let graph = graph(full, slots);
    let layout = Arc::new(Layout::new(&graph));
    let region = Region::on_heap(layout.bytes());
    layout.prepare(&region).unwrap();
    let (mut source, mut sink) = (erase(End { makes: true }), erase(End { makes: false }));
    let mut making = Runner::take(&layout, &region, 0, 1, source.as_mut()).unwrap();
    let mut taking = Runner::take(&layout, &region, 1, 1, sink.as_mut()).unwrap();
    for (now, makes) in schedule.iter().enumerate() {
        let now = Time(now as u64);
        let turn = match makes {
            true => making.turn(source.as_mut(), now, &mut |_| {}),
            false => taking.turn(sink.as_mut(), now, &mut |_| {}),
        };
        assert!(matches!(turn, TurnResult::Stepped | TurnResult::Wait), "{turn:?}");
    }
    let mut room = vec![0; 8192];
    let length = sink.save(&mut room).unwrap();
    let mut read = erase(End { makes: false });
    read.load(1, &room[..length]).unwrap();
    let seen: FrameNumbers = postcard::from_bytes(&room[..length]).unwrap();
    let (made, dropped) = (layout.made(&region, 0, 0), layout.dropped(&region, 1, 0));
    (made, seen.0, dropped, layout.waiting(&region, 1, 0).0)
}

proptest! {
    #[test]
    fn offered_is_delivered_and_dropped_and_under_way(
        full in prop_oneof![Just(WhenFull::Wait), Just(WhenFull::DropOldest), Just(WhenFull::DropLate)],
        slots in 1u32..8,
        schedule in prop::collection::vec(any::<bool>(), 0..300),
    ) {
        let (made, delivered, dropped, waiting) = play(full, slots, &schedule);
        prop_assert_eq!(made, delivered.len() as u64 + dropped + waiting);
        prop_assert!(delivered.is_sorted_by(|a, b| a < b), "in order, each once: {:?}", delivered);
        prop_assert!(waiting <= u64::from(slots));
        if full == WhenFull::Wait {
            prop_assert_eq!(dropped, 0);
            prop_assert!(delivered.iter().enumerate().all(|(number, sequence)| number as u64 == *sequence));
        }
    }
}

#[test]
fn the_oldest_frames_are_dropped_so_that_the_newest_have_room() {
    // Eight turns of the source for each of the sink: it is always full.
    let schedule: Vec<bool> = (0..90).map(|turn| turn % 9 != 8).collect();
    let (made, delivered, dropped, waiting) = play(WhenFull::DropOldest, 3, &schedule);
    assert_eq!(
        (made, delivered.as_slice(), dropped, waiting),
        (21, [1, 3, 5, 7, 9, 11, 13, 15, 17, 19].as_slice(), 10, 1)
    );
}

#[test]
fn frames_past_their_due_time_are_dropped_and_no_others() {
    // All frames are made at the beginning: one is taken in time, the others are late at the next look.
    let schedule = [vec![true; 3], vec![false], vec![true; 20], vec![false]].concat();
    let (made, delivered, dropped, waiting) = play(WhenFull::DropLate, 4, &schedule);
    assert_eq!(
        (made, delivered.as_slice(), dropped, waiting),
        (5, [0].as_slice(), 4, 0)
    );
}

/// The last frame is a step, the end of the input is none.
#[test]
fn no_step_begins_at_the_end_of_all_inputs() {
    let layout = Arc::new(Layout::new(&graph(WhenFull::Wait, 3)));
    let region = Region::on_heap(layout.bytes());
    layout.prepare(&region).unwrap();
    let (mut source, mut sink) = (erase(End { makes: true }), erase(End { makes: false }));
    let mut making = Runner::take(&layout, &region, 0, 1, source.as_mut()).unwrap();
    let mut taking = Runner::take(&layout, &region, 1, 1, sink.as_mut()).unwrap();
    assert!(making.begin_turn(Time(0)) && !taking.begin_turn(Time(0)));
    assert_eq!(making.end_turn(source.as_mut(), &mut |_| {}), TurnResult::Stepped);
    assert_eq!(making.end(source.as_ref(), &mut |_| {}), TurnResult::Ended);
    assert!(taking.begin_turn(Time(1)));
    assert_eq!(taking.end_turn(sink.as_mut(), &mut |_| {}), TurnResult::Stepped);
    assert!(!taking.begin_turn(Time(2)));
    assert_eq!(taking.end_turn(sink.as_mut(), &mut |_| {}), TurnResult::Ended);
}

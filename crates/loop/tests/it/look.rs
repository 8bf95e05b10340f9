//! Looking ahead while the loop runs, in virtual time: driven as a control thread does, with pieces where no event
//! waits.

use crate::common;

use punctual_allocation::{
    Allocator, AllocatorSettings, Base, CoreShares, Grid, Objective, PeriodicTask, Phase, Policy, Pool, Profile,
    Programs, RateTable, Refill, Share,
};
use punctual_loop::{Answer, DeciderSetup, Event, EventLog, Regulator, RegulatorOptions, SplitOptions, replay};
use punctual_platform::{KnobId, KnobOffer, Plan, Provenance, Range, Value};
use punctual_units::{CoreId, Hertz, Nanos, TaskId, Time};

/// Most time of a piece.
const PIECE: Nanos = Nanos::from_micros(50);
/// A run does not begin when its clock does.
const START: Time = Time(7_000_000_000);
/// When the second task comes and ends, since the start.
const COMES: Nanos = Nanos::from_secs(10);
const ENDS: Nanos = Nanos::from_secs(12);

fn at(since: Nanos) -> Time {
    START + since
}

/// Two tasks on two cores, of a program that wants all bandwidth; the second comes later.
fn split() -> SplitOptions {
    let hungry = |share: Share| 1e9 * f32::from(share.partitions) / 20.0;
    let phase = |ends| Phase {
        ends,
        rates: RateTable::new(Grid::PAPER, hungry),
    };
    let task = |core, from| PeriodicTask {
        from,
        ..PeriodicTask::new(0, Nanos::from_millis(240), core)
    };
    SplitOptions {
        profiles: vec![Profile {
            name: "hungry".into(),
            grid: Grid::PAPER,
            instructions: 1e8,
            phases: vec![phase(0.5), phase(1.0)],
        }],
        tasks: vec![task(0, Time::ZERO), task(1, Time::ZERO + COMES)],
        settings: AllocatorSettings {
            cores: 2,
            base: Base::AheadStatic,
            refill: Some(Refill::PAPER),
            pool: Pool::PAPER,
            ..AllocatorSettings::paper(Policy::Dna)
        },
        first: None,
        of: vec![Some(0), Some(1)],
    }
}

fn options() -> RegulatorOptions {
    let mut options = RegulatorOptions {
        split: Some(split()),
        start: START,
        ..common::options()
    };
    options.offers.knobs.push(KnobOffer {
        knob: KnobId::Bandwidth(CoreId(0)),
        range: Range::Parts(20, Provenance::Simulated),
    });
    options
}

/// The split in which these tasks have the fewest late jobs if they are there from the start, looked for at once.
fn best(tasks: &[PeriodicTask]) -> Plan {
    let there = |task: &PeriodicTask| PeriodicTask {
        from: Time::ZERO,
        ..*task
    };
    let tasks: Vec<PeriodicTask> = tasks.iter().map(there).collect();
    let SplitOptions { profiles, settings, .. } = split();
    let programs = Programs::new(&profiles, Objective::Speed).unwrap();
    let allocator = Allocator::new(&programs, &tasks, settings).unwrap();
    let CoreShares { shares, masks } = allocator.plan();
    let knobs = shares.iter().zip(masks).zip(0..).flat_map(|((share, mask), core)| {
        let ways = (KnobId::Ways(CoreId(core)), Value::Ways(mask.bits()));
        [ways, (KnobId::Bandwidth(CoreId(core)), Value::Parts(share.partitions))]
    });
    knobs.collect()
}

/// The ways and bandwidth of a plan.
fn of_split(plan: &Plan) -> Plan {
    let splits = |knob| matches!(knob, KnobId::Ways(_) | KnobId::Bandwidth(_));
    plan.iter().filter(|(knob, _)| splits(*knob)).collect()
}

/// What a run of the loop came to.
struct Driven {
    log: EventLog,
    /// Longest time that an event waited.
    waited: Nanos,
    pieces: u64,
    /// Splits, and when they came into force.
    splits: Vec<(Time, Plan)>,
    notes: Vec<String>,
}

/// Drives a loop as the control thread does: it decides every millisecond from 9.9 s to 14 s, and its second task ends.
/// `whole`: a look ahead that has begun is brought to its end before another event is taken.
fn drive(options: RegulatorOptions, whole: bool) -> Driven {
    let mut regulator = Regulator::new(options.clone()).unwrap();
    let mut driven = Driven {
        log: EventLog::of(DeciderSetup::Tasks(Box::new(options)), usize::MAX),
        waited: Nanos::ZERO,
        pieces: 0,
        splits: vec![(START, of_split(&regulator.plan()))],
        notes: Vec::new(),
    };
    let millis = |millis| at(Nanos::from_millis(millis));
    let mut events: Vec<(Time, Event)> = (9_900..14_000)
        .map(|number| (millis(number), Event::Period(common::vitals(millis(number)))))
        .collect();
    events.push((at(ENDS), Event::Ended { task: TaskId(1) }));
    // While it looks ahead the clock falls: what it foresees is of the clock at its begin.
    let slow = Event::Jobs {
        clock: Hertz::from_mhz(1000),
        cores: Vec::new(),
        foreseen: false,
    };
    events.push((at(COMES + Nanos::from_millis(2)), slow));
    events.sort_by_key(|(time, _)| *time);
    let (mut events, mut now) = (events.into_iter().peekable(), START);
    let step = |driven: &mut Driven, regulator: &mut Regulator, event: Event, now| {
        let answer = regulator.step(&event, now);
        driven.log.note(now, event, answer.clone());
        if let Some(Answer::Turn(plan)) = answer {
            driven.splits.push((now, plan));
        }
        driven.notes.extend(regulator.split_forecast());
    };
    while let Some((comes, _)) = events.peek() {
        if *comes <= now {
            let (comes, event) = events.next().unwrap();
            driven.waited = driven.waited.max(now.since(comes));
            step(&mut driven, &mut regulator, event, now);
            continue;
        }
        let due = regulator.split_due().unwrap_or(Time::MAX);
        if due > now {
            now = due.min(*comes);
            continue;
        }
        let mut due = regulator.look(now);
        (driven.pieces, now) = (driven.pieces + 1, now + PIECE);
        while whole && due.is_none() {
            now = now.max(regulator.split_due().unwrap());
            due = regulator.look(now);
            (driven.pieces, now) = (driven.pieces + 1, now + PIECE);
        }
        if let Some(foreseen) = due {
            let (clock, cores) = (Hertz::from_mhz(2000), Vec::new());
            step(&mut driven, &mut regulator, Event::Jobs { clock, cores, foreseen }, now);
        }
    }
    driven
}

/// Events at which the log takes up what was foreseen.
fn taken_up(log: &EventLog) -> usize {
    let text = serde_json::to_string(&log.decisions).unwrap();
    text.matches("\"foreseen\":true").count()
}

#[test]
fn a_task_that_comes_gets_the_best_split_and_no_decision_waits_for_more_than_a_piece() {
    let driven = drive(options(), false);
    let [first, second] = [1, 2].map(|count| best(&split().tasks[..count]));
    assert_ne!(first, second);
    let splits: Vec<&Plan> = driven.splits.iter().map(|(_, plan)| plan).collect();
    assert_eq!(splits, [&first, &second, &first]);
    for ((taken, _), changed) in driven.splits[1..].iter().zip([COMES, ENDS]) {
        assert!(
            *taken > at(changed) && *taken < at(changed + Nanos::from_secs(1)),
            "{taken:?}"
        );
    }
    assert!(driven.waited <= PIECE, "an event waited for {}", driven.waited);
    assert!(driven.pieces > 40, "{} pieces", driven.pieces);
    assert_eq!(driven.notes.len(), 3, "{:#?}", driven.notes);
    assert!(driven.notes[1].starts_with("at 10.0 s: "), "{:#?}", driven.notes);
}

/// The planted fault: a look ahead that is brought to its end before another event is taken.
#[test]
fn a_look_ahead_that_ends_in_one_piece_lets_decisions_wait() {
    let driven = drive(options(), true);
    assert_eq!(driven.splits.len(), 3);
    assert!(driven.waited > PIECE * 10, "an event waited for {}", driven.waited);
}

#[test]
fn what_was_foreseen_in_pieces_replays_at_once() {
    let Driven { log, .. } = drive(options(), false);
    let log: EventLog = serde_json::from_str(&serde_json::to_string(&log).unwrap()).unwrap();
    assert_eq!(replay(&log), Ok(Vec::new()));
    assert_eq!(taken_up(&log), 2, "one decision for each look");

    let mut planted = log;
    for decision in &mut planted.decisions {
        if let punctual_loop::DeciderEvent::Tasks(event) = &mut decision.event
            && let Event::Jobs { foreseen, .. } = &mut **event
        {
            *foreseen = false;
        }
    }
    assert_eq!(replay(&planted).unwrap().len(), 2);
}

/// A loop that was made for a learnt model goes on with the split, and the look ahead, of the one before.
#[test]
fn another_regulator_goes_on_with_the_look_ahead() {
    let mut options = options();
    assert!(options.split.as_mut().unwrap().look_ahead().unwrap().is_some());
    let mut before = Regulator::new(options.clone()).unwrap();
    let clock = Hertz::from_mhz(2000);
    let jobs = |foreseen| Event::Jobs {
        clock,
        cores: Vec::new(),
        foreseen,
    };
    before.step(&jobs(false), at(COMES));
    assert_eq!(before.look(at(COMES)), None);
    let due = before.split_due();
    assert!(due.is_some_and(|due| due > at(COMES)), "{due:?}");
    options.start = at(COMES);
    let mut after = Regulator::new(options).unwrap();
    after.take_split(&mut before);
    assert_eq!(after.split_due(), due);
    let mut now = due.unwrap();
    while after.look(now) != Some(true) {
        now = after.split_due().unwrap();
    }
    assert!(matches!(after.step(&jobs(true), now), Some(Answer::Turn(_))));
    assert_eq!(of_split(&after.plan()), best(&split().tasks));
}

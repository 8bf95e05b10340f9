//! The loop under faults, and the law's manners: all from values.

use punctual_platform::{KnobOffer, Measure, Provenance, Range, Readings, Refusal};
use punctual_units::{CoreId, Hertz, TaskId};
use punctual_workload::{JobOutcome, Pace, Split, TaskGoal, UpdateMode};

use super::*;
use crate::document::{MadeFor, ModelDocument};
use crate::mode::{GOOD_WINDOWS, SILENT_WINDOWS};

mod goals;
mod paced;
mod stages;
mod unlearnt;

const STEP: Nanos = Nanos::from_millis(200);
/// Least share of updates that keeps the freshness minimum.
const LEAST: f64 = 0.27;
const TOP: Hertz = Hertz::from_mhz(2000);

/// y(k+1) = 0.2 y(k) + B u(k): a faster clock lowers tardiness, more updates raise it, and drr tells the two apart.
fn plant(tardiness: f64, clock: f64, admitted: f64) -> [f64; 2] {
    [
        0.2 * tardiness + 1.5 - 1.2 * clock + 0.6 * admitted,
        0.5 - 0.05 * clock + 0.3 * admitted,
    ]
}

fn design() -> ControllerDocument {
    let (mut y, mut u) = (vec![[0.9, 0.6]], Vec::new());
    for k in 0..120u32 {
        let knobs = [0.8 + 0.05 * f64::from(k % 4), 0.5 + 0.1 * f64::from(k % 5)];
        y.push(plant(y[k as usize][0], knobs[0], knobs[1]));
        u.push(knobs);
    }
    y.pop();
    let made_for = MadeFor {
        shipped: false,
        scenario: "test".into(),
        platform: "test".into(),
        pace: Pace::Period(STEP),
        update_mode: UpdateMode::Transaction,
        machine: None,
    };
    ModelDocument::identify(made_for, &y, &u).unwrap().design().unwrap()
}

fn options(kind: ControllerKind) -> RegulatorOptions {
    let steps = (8..=20).map(|hundreds| Hertz::from_mhz(hundreds * 100)).collect();
    RegulatorOptions {
        kind,
        goal: Goal {
            tasks: TaskGoal::Tardiness(0.85),
            drr: 0.6,
            min_fresh: Share::clamped(0.5),
        },
        goals: Vec::new(),
        stages: Vec::new(),
        offers: Offers {
            machine: "test".into(),
            cores: vec![CoreId(0)],
            knobs: vec![KnobOffer {
                knob: KnobId::CLOCK,
                range: Range::Clock(ClockOffer::new(steps, Provenance::Simulated)),
            }],
            domains: Vec::new(),
            meters: Vec::new(),
        },
        start: Time::ZERO,
        warm_up: Nanos::ZERO,
        silence: STEP * SILENT_WINDOWS,
        impatient: false,
        within: false,
        design: Some(design()),
        best_effort: None,
        split: None,
        prices: None,
        idle_clock: false,
        excite: None,
    }
}

/// A regulator with time around it.
struct Bench {
    regulator: Regulator,
    now: Time,
}

impl Bench {
    fn new(kind: ControllerKind) -> Bench {
        Bench {
            regulator: Regulator::new(options(kind)).unwrap(),
            now: Time::ZERO,
        }
    }

    fn job(&mut self, tardiness: f64, drr: f64) {
        // A deadline of zero makes any response infinitely tardy.
        let deadline = if tardiness.is_finite() {
            Nanos::from_millis(50)
        } else {
            Nanos::ZERO
        };
        let response = Nanos::from_millis(50).scaled(if tardiness.is_finite() { tardiness } else { 1.0 });
        let data = response.scaled(drr);
        let split = Split {
            data,
            computation: response - data,
            ..Split::default()
        };
        let (task, released) = (TaskId(0), self.now);
        let finished = released + response;
        let job = JobOutcome {
            task,
            job: 0,
            released,
            deadline: Some(deadline),
            finished,
            split,
        };
        assert_eq!(self.regulator.step(&Event::Completed(job), finished), None);
    }

    fn period(&mut self, clock: Result<Hertz, String>) -> Step {
        self.now = self.now + STEP;
        let machine = Readings {
            at: self.now,
            meters: vec![(MeterId::Clock, clock.map(Measure::Clock))],
        };
        let vitals = Vitals {
            machine,
            fresh: Share::ONE,
            updates_offered: 0,
            updates_admitted: 0,
            updates_for_minimum: 0,
            updates_least: Share::clamped(LEAST),
        };
        let step = self
            .regulator
            .step(&Event::Period(vitals), self.now)
            .and_then(Answer::step)
            .expect("a period is answered");
        let applied = Applied {
            obtained: step.plan,
            ..Applied::default()
        };
        self.regulator.step(&Event::Applied(applied), self.now);
        step
    }

    fn good(&mut self) -> Step {
        self.job(0.85, 0.6);
        self.period(Ok(TOP))
    }
}

/// A plan of the clock, if one is given, and the admitted share.
fn planned(clock: Option<Hertz>, admitted: f64) -> Plan {
    let clock = clock.map(|clock| (KnobId::CLOCK, Value::Clock(clock)));
    let admitted = (KnobId::AdmittedShare, Value::Share(Share::clamped(admitted)));
    clock.into_iter().chain([admitted]).collect()
}

fn admitted(plan: &Plan) -> Share {
    plan.share(KnobId::AdmittedShare).unwrap()
}

/// An answer of a machine whose clock cannot be turned.
fn read_only() -> Applied {
    let refusal = Refusal {
        what: "clock".into(),
        why: "read-only".into(),
        remedy: String::new(),
    };
    Applied {
        refused: vec![(KnobId::CLOCK, refusal)],
        ..Applied::default()
    }
}

/// Full clock, and no more updates than the minimum needs.
fn is_safe(plan: Plan) -> bool {
    plan == planned(Some(TOP), LEAST)
}

/// Closes the loop around `plant` for so many windows; the steps, and the last outputs.
fn closed(bench: &mut Bench, windows: usize, plant: impl Fn(f64, f64, f64) -> [f64; 2]) -> (Vec<Step>, [f64; 2]) {
    let mut y = [1.4, 0.8];
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..windows {
        bench.job(y[0], y[1]);
        let step = bench.period(Ok(TOP));
        y = plant(y[0], step.plan.clock().unwrap().ratio(TOP), admitted(&step.plan).get());
        steps.push(step);
    }
    (steps, y)
}

#[test]
fn both_goals_are_reached_and_held() {
    let mut bench = Bench::new(ControllerKind::Mimo);
    let (steps, y) = closed(&mut bench, 150, plant);
    let plan = steps[149].plan;
    // One step of this clock is 5 % of the top, and moves the tardiness by 0.06.
    assert!(
        (y[0] - 0.85).abs() < 0.06 && (y[1] - 0.6).abs() < 0.02,
        "{y:?} under {plan:?}"
    );
}

/// The gains that suit the paper's period, at the pace of jobs: on the clock's steps, and the mean on the goal.
#[test]
fn at_the_pace_of_jobs_mimo_carries_the_rounding() {
    let mut options = options(ControllerKind::Mimo);
    let model = design().model.unwrap().for_every_job(1.0).unwrap();
    assert_eq!(model.made_for.pace, Pace::Job);
    options.design = Some(model.design().unwrap());
    let mut bench = Bench {
        regulator: Regulator::new(options).unwrap(),
        now: Time::ZERO,
    };
    let (steps, _) = closed(&mut bench, 600, plant);
    let late: Vec<f64> = steps[300..].iter().filter_map(|step| step.window.tardiness).collect();
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((mean - 0.85).abs() < 0.01, "{mean}");
    assert!(steps.iter().all(|step| step.fallback.is_none()));
}

/// A machine whose knobs do the opposite of what the model says. The law would hold the clock at its bottom.
#[test]
fn a_wrong_model_falls_back_says_why_and_is_tried_less_and_less() {
    let mut bench = Bench::new(ControllerKind::Mimo);
    let mut turned = options(ControllerKind::Mimo);
    turned.design = Some(opposite_design());
    bench.regulator = Regulator::new(turned).unwrap();
    let (steps, _) = closed(&mut bench, 2000, plant);
    let first = steps
        .iter()
        .position(|step| step.fallback.is_some())
        .expect("it is noticed");
    assert!(first < 60, "only in window {first}");
    assert!(
        steps[first]
            .fallback
            .as_ref()
            .unwrap()
            .contains("the model is wrong here")
    );
    assert!(is_safe(steps[first].plan));
    let in_fallback = |steps: &[Step]| steps.iter().filter(|step| step.fallback.is_some()).count();
    assert!(in_fallback(&steps[1000..]) > 900, "{}", in_fallback(&steps[1000..]));
}

/// The design for [`plant`] with the signs of B turned round.
fn opposite_design() -> ControllerDocument {
    let mut model = *design().model.unwrap();
    for model in model.mimo.iter_mut().chain([&mut model.tardiness]) {
        let mut json = serde_json::to_value(&*model).unwrap();
        for row in json["b"][0].as_array_mut().unwrap() {
            for gain in row.as_array_mut().unwrap() {
                *gain = serde_json::json!(-gain.as_f64().unwrap());
            }
        }
        *model = serde_json::from_value(json).unwrap();
    }
    assert!(
        model.check_nature(ControllerKind::Mimo).is_err(),
        "a model file like that is refused"
    );
    model.for_every_job(1.0).unwrap().design().unwrap()
}

#[test]
fn a_failed_clock_meter_falls_back_to_the_safe_setting_until_it_is_trusted_again() {
    let mut bench = Bench::new(ControllerKind::Mimo);
    bench.good();
    bench.job(0.85, 0.6);
    let step = bench.period(Err("no such file".into()));
    assert!(is_safe(step.plan) && step.mode.as_str() == "fallback", "{step:?}");
    assert!(step.fallback.unwrap().contains("no such file"));
    for _ in 0..GOOD_WINDOWS - 1 {
        assert!(is_safe(bench.good().plan));
    }
    assert_eq!(bench.good().mode.as_str(), "running");
}

#[test]
fn a_refused_knob_a_senseless_reading_and_silence_fall_back_and_say_why() {
    let mut bench = Bench::new(ControllerKind::Qod);
    bench.good();
    bench.job(f64::INFINITY, 0.6);
    let step = bench.period(Ok(TOP));
    assert!(is_safe(step.plan) && step.fallback.unwrap().contains("senseless"));

    let mut bench = Bench::new(ControllerKind::Clock);
    bench.good();
    bench.regulator.step(&Event::Applied(read_only()), bench.now);
    let step = bench.good();
    assert!(is_safe(step.plan) && step.fallback.unwrap().contains("read-only"));

    let mut bench = Bench::new(ControllerKind::Qod);
    bench.good();
    let silence: Vec<Step> = (0..SILENT_WINDOWS).map(|_| bench.period(Ok(TOP))).collect();
    let (last, before) = silence.split_last().unwrap();
    assert!(
        before
            .iter()
            .all(|step| step.mode.as_str() == "running" && step.plan == before[0].plan),
        "the knobs stay meanwhile"
    );
    assert!(is_safe(last.plan) && last.fallback.as_ref().unwrap().contains("no real-time job"));
}

/// Jobs that waited while none ended are late one after the other: the law does not begin again amidst them.
#[test]
fn windows_with_late_jobs_are_not_good_after_silence_but_are_after_another_fault() {
    let late = |bench: &mut Bench| {
        bench.job(1.5, 0.6);
        bench.period(Ok(TOP)).mode
    };
    let mut bench = Bench::new(ControllerKind::Qod);
    bench.good();
    (0..SILENT_WINDOWS).for_each(|_| drop(bench.period(Ok(TOP))));
    for _ in 0..3 * GOOD_WINDOWS {
        assert_eq!(late(&mut bench), ModeName::Fallback);
    }
    for _ in 0..GOOD_WINDOWS - 1 {
        assert_eq!(bench.good().mode, ModeName::Fallback);
    }
    assert_eq!(bench.good().mode, ModeName::Running);

    let mut bench = Bench::new(ControllerKind::Clock);
    bench.good();
    bench.period(Err("no such file".into()));
    for _ in 0..GOOD_WINDOWS - 1 {
        assert_eq!(late(&mut bench), ModeName::Fallback);
    }
    assert_eq!(late(&mut bench), ModeName::Running);
}

#[test]
fn open_never_turns_a_knob_whatever_fails() {
    let mut bench = Bench::new(ControllerKind::Open);
    let untouched = planned(None, 1.0);
    assert_eq!(bench.regulator.plan(), untouched);
    bench.job(3.0, 0.9);
    assert_eq!(bench.period(Err("gone".into())).plan, untouched);
}

#[test]
fn warm_up_holds_the_operating_point() {
    let mut options = options(ControllerKind::Mimo);
    options.warm_up = Nanos::from_secs(1);
    let mut bench = Bench {
        regulator: Regulator::new(options).unwrap(),
        now: Time::ZERO,
    };
    let held = bench.regulator.plan();
    for _ in 0..4 {
        bench.job(2.0, 0.9);
        let step = bench.period(Ok(TOP));
        assert_eq!((step.mode.as_str(), step.plan), ("warm-up", held));
    }
    bench.job(2.0, 0.9);
    let step = bench.period(Ok(TOP));
    assert_eq!(step.mode.as_str(), "running");
    assert!(step.plan.clock() > held.clock(), "late jobs ask for a faster clock");
    assert!(admitted(&step.plan) < admitted(&held), "and for fewer updates");
}

/// Before it learns a model, too, and where the clock has one step.
#[test]
fn a_machine_without_a_clock_refuses_the_controllers_that_need_one() {
    let levels = Excitation {
        clock: vec![0.9, 1.0],
        admitted: vec![0.5, 1.0],
        hold: 1,
    };
    let fixed = KnobOffer {
        knob: KnobId::CLOCK,
        range: Range::Clock(ClockOffer::new(vec![TOP], Provenance::Simulated)),
    };
    for (knobs, excite) in [
        (vec![], None),
        (vec![], Some(&levels)),
        (vec![fixed.clone()], None),
        (vec![fixed], Some(&levels)),
    ] {
        let on = |kind| {
            let mut options = options(kind);
            (options.offers.knobs, options.excite) = (knobs.clone(), excite.cloned());
            Regulator::new(options).map(drop)
        };
        for kind in [ControllerKind::Mimo, ControllerKind::Clock] {
            let told = on(kind).unwrap_err();
            assert!(told.to_string().contains("offers no clock knob: use `qod`"), "{told}");
        }
        assert_eq!(on(ControllerKind::Qod), Ok(()));
    }
}

/// Freshness can be weighed against energy only where both are measured.
#[test]
fn a_price_without_its_meter_is_refused() {
    let on = |energy, freshness, meters: &[(MeterId, Provenance)]| {
        let mut options = options(ControllerKind::Mimo);
        options.prices = Some(Prices { energy, freshness });
        options.offers.meters = meters.to_vec();
        Regulator::new(options).map(drop)
    };
    let meter = [(MeterId::Energy, Provenance::Real)];
    assert_eq!(on(1.0, 1.0, &[]), Err(Mismatch(UNMETERED.into())));
    assert!(!UNMETERED.contains("  "));
    assert_eq!(on(1.0, 1.0, &meter), Ok(()));
    assert_eq!((on(1.0, 0.0, &[]), on(0.0, 1.0, &[])), (Ok(()), Ok(())));
}

/// The law never asks for a dear step, unless nothing is done to save energy.
#[test]
fn steps_that_others_undercut_are_left_out_where_energy_has_a_price() {
    let asked = |energy| {
        let mut options = options(ControllerKind::Mimo);
        options.prices = Some(Prices { energy, freshness: 0.0 });
        let Some(Range::Clock(clock)) = options.offers.knobs.first_mut().map(|offer| &mut offer.range) else {
            panic!("a clock")
        };
        // All but the two ends are far above the line between these.
        let last = clock.steps.len() - 1;
        clock.microwatts = (0..=last)
            .map(|i| if i == 0 || i == last { 1_000_000 } else { 3_000_000 })
            .collect();
        let mut bench = Bench {
            regulator: Regulator::new(options).unwrap(),
            now: Time::ZERO,
        };
        let mut window = || {
            bench.job(0.6, 0.6);
            bench.period(Ok(TOP)).plan.clock()
        };
        let mut clocks: Vec<Hertz> = (0..60).filter_map(|_| window()).collect();
        clocks.sort_unstable();
        clocks.dedup();
        clocks
    };
    let ends = [Hertz::from_mhz(800), TOP];
    assert!(asked(1.0).iter().all(|clock| ends.contains(clock)));
    assert!(asked(0.0).iter().any(|clock| !ends.contains(clock)));
}

//! One suite that every [`Machine`] passes, so that a policy never learns on which one it runs.

use punctual_units::{Hertz, Share};

use punctual_platform::{Applied, DomainId, KnobId, KnobOffer, Machine, MeterId, Offers, Plan, Range, Value};

/// Checks the contract of [`Machine`] on `machine` and returns what was violated; empty means that it conforms.
///
/// `pass_time` lets about 10 ms pass on that machine (a sleep on Linux, a run of the model in `sim`).
/// The machine's knobs are turned and put back.
pub fn check<M: Machine>(machine: &mut M, mut pass_time: impl FnMut(&mut M)) -> Vec<String> {
    let mut violations = Vec::new();
    let mut require = |holds: bool, what: String| {
        if !holds {
            violations.push(what);
        }
    };
    let offers = machine.offers().clone();
    require(!offers.cores.is_empty(), "a machine has at least one core".into());
    require(
        offers.cores.is_sorted(),
        format!("cores are ascending, not {:?}", offers.cores),
    );

    let found = machine.read();
    if let Some(clock) = offers.clock() {
        require(!clock.steps.is_empty(), "a clock knob has at least one step".into());
        require(
            clock.steps.is_sorted(),
            format!("clock steps are ascending, not {:?}", clock.steps),
        );
    }
    for (place, offer) in offers.knobs.iter().enumerate() {
        let earlier = &offers.knobs[..place];
        require(
            earlier.iter().all(|other| other.knob != offer.knob),
            format!("the {} is offered once", offer.knob),
        );
    }
    for what in turning(machine, &offers)
        .into_iter()
        .chain(turning_domains(machine, &offers))
    {
        require(false, what);
    }

    let before = machine.read();
    pass_time(machine);
    let after = machine.read();
    require(
        after.at > before.at,
        format!("time passes: {:?} then {:?}", before.at, after.at),
    );
    for meter in [MeterId::Energy, MeterId::Temperature, MeterId::DomainClocks] {
        require(
            after.get(meter).is_some() == offers.reads(meter),
            format!("{}: offered {:?}, read {after:?}", meter.name(), offers.meters),
        );
    }
    if let (Some(before), Some(after)) = (before.energy_j(), after.energy_j()) {
        require(
            after >= before && before >= 0.0,
            format!("energy never decreases: {before} then {after}"),
        );
    }
    if let (Some(earlier), Some(later)) = (before.busy(), after.busy()) {
        require(
            later.len() == offers.cores.len(),
            format!("one busy time per core, not {}", later.len()),
        );
        // A reading has its time from before its meters are read, and its thread may be put off between the two.
        let elapsed = machine.read().at.since(before.at);
        for (core, (earlier, later)) in offers.cores.iter().zip(earlier.iter().zip(later)) {
            require(later >= earlier, format!("busy time of core {core} never decreases"));
            // Busy time is the sum of five counters of the kernel, each rounded to ticks of 10 ms.
            require(
                later.saturating_sub(*earlier).0 <= elapsed.0 + 50_000_000,
                format!("core {core} cannot be busy for longer than time passed"),
            );
        }
    }

    let left_over = machine.restore();
    require(
        left_over.is_empty(),
        format!("everything can be put back, except {left_over:?}"),
    );
    let restored = machine.read();
    require(
        restored.clock() == found.clock(),
        format!(
            "restore puts the clock back to {:?}, not {:?}",
            found.clock(),
            restored.clock()
        ),
    );
    require(
        restored.domain_clocks() == found.domain_clocks(),
        format!(
            "restore puts clocks back to {:?}, not {:?}",
            found.domain_clocks(),
            restored.domain_clocks()
        ),
    );
    require(machine.restore().is_empty(), "restoring twice is harmless".into());
    violations
}

/// Turns every knob that is offered, alone and together with one that is not.
fn turning<M: Machine>(machine: &mut M, offers: &Offers) -> Vec<String> {
    let mut violations = Vec::new();
    for offer in &offers.knobs {
        for (wanted, expected) in wanted(offer) {
            let mut plan = Plan::of(offer.knob, wanted);
            plan.set(NOT_THERE, Value::Clock(Hertz::from_mhz(1000)));
            let applied = machine.apply(&plan);
            let obtained = applied.result(offer.knob);
            if !obtained
                .as_ref()
                .is_some_and(|obtained| obtained.as_ref().is_ok_and(|value| near(*value, expected)))
            {
                violations.push(format!(
                    "{}: asked for {wanted}, the nearest is {expected}, got {obtained:?}",
                    offer.knob
                ));
            }
            if !matches!(applied.result(NOT_THERE), Some(Err(_))) {
                violations.push(format!(
                    "the {NOT_THERE} is not offered and was not refused: {applied:?}"
                ));
            }
            let read = machine.read().clock();
            if let (Value::Clock(expected), KnobId::CLOCK) = (expected, offer.knob)
                && read != Some(expected)
            {
                violations.push(format!("the clock was set to {expected} but reads {read:?}"));
            }
        }
    }
    let asked = [
        (KnobId::CLOCK, Value::Clock(Hertz::from_mhz(1000))),
        (KnobId::AdmittedShare, Value::Share(Share::clamped(0.5))),
        (KnobId::BestEffortShare, Value::Share(Share::clamped(0.5))),
    ];
    for (knob, value) in asked.into_iter().filter(|(knob, _)| offers.range(*knob).is_none()) {
        let applied = machine.apply(&Plan::of(knob, value));
        if applied.refused.len() != 1 || applied.obtained.iter().next().is_some() {
            violations.push(format!("the {knob} is not offered and was not refused: {applied:?}"));
        }
    }
    if machine.apply(&Plan::default()) != Applied::default() {
        violations.push("a plan of nothing turns nothing".into());
    }
    violations
}

/// Turns the clock of each domain, which leaves the others where they are, and then that of all cores together.
fn turning_domains<M: Machine>(machine: &mut M, offers: &Offers) -> Vec<String> {
    let mut violations = Vec::new();
    let knobs: Vec<KnobId> = (1..=offers.domains.len())
        .map(|number| KnobId::Clock(DomainId(number as u8)))
        .collect();
    for (cores, knob) in offers.domains.iter().zip(&knobs) {
        let whole = cores.iter().all(|core| offers.clock_of(*core) == Some(*knob));
        if cores.is_empty() || !whole {
            violations.push(format!("the {knob} is that of cores of its own, not {cores:?}"));
        }
    }
    for (place, knob) in knobs.iter().enumerate() {
        let Some(Range::Clock(clock)) = offers.range(*knob) else {
            violations.push(format!("the {knob} is offered with its steps"));
            continue;
        };
        for step in [clock.bottom(), clock.top()] {
            let mut expected = machine.read().domain_clocks().unwrap_or_default().to_vec();
            machine.apply(&Plan::of(*knob, Value::Clock(step)));
            if let Some(clock) = expected.get_mut(place) {
                *clock = step;
            }
            let readings = machine.read();
            if readings.domain_clocks() != Some(&expected) {
                violations.push(format!(
                    "{knob} at {step}: {expected:?}, not {:?}",
                    readings.domain_clocks()
                ));
            }
        }
    }
    if let (Some(clock), false) = (offers.clock(), knobs.is_empty()) {
        machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(clock.bottom())));
        let all = machine.read().domain_clocks().map(<[Hertz]>::to_vec);
        if all != Some(vec![clock.bottom(); knobs.len()]) {
            violations.push(format!("the clock of all cores at {}: {all:?}", clock.bottom()));
        }
    }
    violations
}

/// The clock of a domain that no machine has.
const NOT_THERE: KnobId = KnobId::Clock(DomainId(u8::MAX));

/// Values to ask for, within the range and beyond, each with the one that is to be obtained.
fn wanted(offer: &KnobOffer) -> Vec<(Value, Value)> {
    match &offer.range {
        Range::Clock(clock) => {
            let (bottom, top) = (clock.bottom(), clock.top());
            let middle = Hertz(bottom.0.midpoint(top.0));
            let wanted = [bottom, top, Hertz(bottom.0 / 2), top.scaled(2.0), middle];
            wanted
                .map(|wanted| (Value::Clock(wanted), Value::Clock(clock.nearest(wanted))))
                .into()
        }
        // Of each core another way, so that no way is asked for twice.
        Range::Ways(..) => match offer.knob {
            KnobId::Ways(core) => vec![(Value::Ways(1 << core.0), Value::Ways(1 << core.0))],
            _ => Vec::new(),
        },
        Range::Lent(_) => [true, false].map(|lent| (Value::Lent(lent), Value::Lent(lent))).into(),
        Range::Parts(..) => vec![(Value::Parts(1), Value::Parts(1))],
        Range::Items(least, most, _) => [(*least, *least), (*most, *most), (0, *least), (u64::MAX, *most)]
            .map(|(wanted, obtained)| (Value::Items(wanted), Value::Items(obtained)))
            .into(),
        Range::Share(_) => {
            let share = |share| Value::Share(Share::clamped(share));
            [0.5, 0.25, 1.0].map(|wanted| (share(wanted), share(wanted))).into()
        }
    }
}

/// Whether a knob is where it was to be, but for the units that the kernel keeps shares in.
fn near(obtained: Value, expected: Value) -> bool {
    match (obtained.share(), expected.share()) {
        (Some(obtained), Some(expected)) => (obtained.get() - expected.get()).abs() < 1e-3,
        _ => obtained == expected,
    }
}

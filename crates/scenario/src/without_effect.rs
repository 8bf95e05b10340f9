//! Settings of a request that change nothing in its run.
//!
//! A user sets a governor, reads that the goal was held, and believes that the governor did it. So settings without
//! effect are found before the run: the command line refuses options, and the report mentions the rest.

use punctual_allocation::mapping::MappingPolicy;
use punctual_units::{Nanos, Share};
use punctual_workload::{Class, ControllerKind, Durability, StoreNeeds, UpdateMode};

use punctual_runtime::report::PlatformChoice;

use punctual_platform::{CoreChoice, Neighbours};

use crate::run::RunRequest;
use crate::stages::{Body, COPY, StageNeeds};

/// Something that changes nothing in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutEffect {
    /// The option or key, such as `--governor` or `control.within`.
    pub what: String,
    /// Why, and what to do.
    pub why: String,
}

impl std::fmt::Display for WithoutEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has no effect in this run: {}", self.what, self.why)
    }
}

impl WithoutEffect {
    /// `what` has no effect, for the reason `why`.
    pub fn of(what: impl Into<String>, why: impl Into<String>) -> WithoutEffect {
        WithoutEffect {
            what: what.into(),
            why: why.into(),
        }
    }

    /// Whether it was asked for by an option of the command line.
    pub fn is_option(&self) -> bool {
        self.what.starts_with("--")
    }
}

/// Everything in `request` that has no effect.
pub fn without_effect(request: &RunRequest) -> Vec<WithoutEffect> {
    let mut found = match request.platform {
        PlatformChoice::Linux => on_linux(request),
        PlatformChoice::Sim => on_the_simulated_machine(request),
    };
    found.extend(of_the_controller(request));
    found
}

/// Work of stages that do their own on Linux.
fn on_linux(request: &RunRequest) -> Vec<WithoutEffect> {
    let stages = request.pipeline.stages.iter().enumerate();
    let copies = |does: &Body| matches!(does, Body::Kind(name, _) if name == COPY);
    let own = stages.filter(|(_, stage)| stage.compute > Nanos::ZERO && !copies(&stage.does));
    let why = "on Linux only the kind `copy` computes for a set time; it is for --platform sim";
    own.map(|(number, _)| WithoutEffect::of(format!("stage[{number}].compute"), why))
        .collect()
}

/// Settings that the simulated machine has no use for, and wrong ones among its own.
fn on_the_simulated_machine(request: &RunRequest) -> Vec<WithoutEffect> {
    let scenario = &request.scenario;
    let mut found = Vec::new();
    for (key, set) in [("store.path", &request.store_path), ("store.temporal", &request.mapped)] {
        if set.is_some() {
            let why = "the simulated machine keeps its store in memory; it is for --platform linux";
            found.push(WithoutEffect::of(key, why));
        }
    }
    if scenario.store.durability != Durability::Volatile {
        let why = "the simulated machine has no disk; it is for --platform linux";
        found.push(WithoutEffect::of("store.durability", why));
    }
    let Neighbours {
        cores,
        spare,
        lend_to,
        share_with,
        move_init,
        interrupts,
        ..
    } = &request.neighbours;
    for (key, set) in [
        ("exclusive.spare", !spare.is_empty()),
        ("exclusive.move_init", *move_init),
        ("exclusive.lend_to", !lend_to.is_empty()),
        ("exclusive.share_with", !share_with.is_empty()),
        ("exclusive.cores", *cores != CoreChoice::Any),
        ("exclusive.interrupts", !interrupts.is_empty()),
    ] {
        if set {
            let why =
                "the simulated machine has no other programs, interrupts or boot options; it is for --platform linux";
            found.push(WithoutEffect::of(key, why));
        }
    }
    let pipeline = &request.pipeline;
    let any = |set: fn(&StageNeeds) -> bool| pipeline.stages.iter().any(set);
    for (key, set) in [
        ("pipeline.policy", pipeline.policy != MappingPolicy::default()),
        ("pipeline.rate", pipeline.rate.is_some()),
        ("pipeline.step_max", pipeline.step_max.is_some()),
        ("pipeline.turns_clocks", pipeline.turns_clocks),
        ("stage.restart", any(|stage| stage.restart)),
        ("stage.save_every", any(|stage| stage.save_every > 1)),
        ("stage.state_bytes", any(|stage| stage.state_bytes.is_some())),
        ("stage.migratable", any(|stage| stage.migratable.is_some())),
    ] {
        if set {
            let why = "on the simulated machine stages have no processes, moves or state; it is for --platform linux";
            found.push(WithoutEffect::of(key, why));
        }
    }
    found.extend(request.environment.without_effect(request));
    found
}

/// Settings that this controller, update mode or set of tasks has no use for.
fn of_the_controller(request: &RunRequest) -> Vec<WithoutEffect> {
    let scenario = &request.scenario;
    let control = &scenario.control;
    let mut found = Vec::new();
    if control.within && !control.kind.turns_clock() {
        let why = format!(
            "`{}` never sets the clock, so it cannot do so within jobs",
            control.kind.name()
        );
        found.push(WithoutEffect::of("control.within", why));
    }
    if scenario.store.coldest_first && !sheds(control.kind) {
        let why = format!("`{}` lets every update in", control.kind.name());
        found.push(WithoutEffect::of("store.shedding", why));
    }
    let group_commit = scenario.store.group_commit != StoreNeeds::GROUP_COMMIT;
    if (scenario.store.update_mode == UpdateMode::Transaction || request.mapped.is_some()) && group_commit {
        let why = "nothing is written in groups; it is for `update_mode = \"memory-first\"`, not in a mapped file";
        found.push(WithoutEffect::of("store.group_commit", why));
    }
    let best_effort = scenario.tasks.iter().any(|task| task.class == Class::BestEffort);
    if control.best_effort_share < Share::ONE && !best_effort {
        let why = "no task is of the class best-effort";
        found.push(WithoutEffect::of("control.best_effort_share", why));
    }
    found
}

fn sheds(kind: ControllerKind) -> bool {
    matches!(kind, ControllerKind::Qod | ControllerKind::Mimo)
}

//! Moves, kills and replaces stages: as often as the command line says, and when a key says so.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use punctual_runtime::linux::pipeline::{Cause, Handover, MoveError, StageNow, Supervisor};
use punctual_units::CoreId;

use super::plan::Plan;

/// Hand-overs that the report's figures are of, the first ones.
const HANDOVERS_MAX: usize = 500_000;
/// Hand-overs that a live view's figures are of, the last ones.
const RECENT_MAX: usize = 1000;
/// Wishes that wait: more keys than a person presses while a stage is handed over.
const WISHES_MAX: usize = 16;
/// How long a wish is tried: a process that takes a stage over has to be started first.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a key asks of the stage of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To the next core.
    Move(String),
    /// To a new process of the same program.
    Upgrade(String),
    Kill(String),
}

/// What was asked of the stages, and what came of it.
pub struct Meddler {
    plan: Plan,
    cores: Vec<CoreId>,
    begin: Instant,
    next_move: Duration,
    next_kill: Duration,
    draw: u64,
    /// Stages that are to be replaced yet.
    to_upgrade: Vec<String>,
    wishes: VecDeque<(Wish, Instant)>,
    /// What became of the last wish.
    pub answer: Option<String>,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    pub handovers: Vec<Handover>,
    pub recent: VecDeque<Handover>,
}

impl Meddler {
    pub fn new(plan: &Plan, supervisor: &Supervisor) -> Meddler {
        let migratable = supervisor.stages().into_iter().filter(|stage| stage.core.is_some());
        let names = migratable.map(|stage| stage.name).collect();
        Meddler {
            plan: plan.clone(),
            cores: supervisor.cores(),
            begin: Instant::now(),
            next_move: plan.migrate_every.unwrap_or(Duration::MAX),
            next_kill: plan.kill_every.unwrap_or(Duration::MAX),
            draw: plan.seed,
            to_upgrade: names,
            wishes: VecDeque::new(),
            answer: None,
            migrations: 0,
            kills: 0,
            upgrades: 0,
            handovers: Vec::new(),
            recent: VecDeque::new(),
        }
    }

    /// Takes a wish; one too many is passed over.
    pub fn wish(&mut self, wish: Wish) {
        if self.wishes.len() < WISHES_MAX {
            self.wishes.push_back((wish, Instant::now()));
        }
    }

    /// Does what is due, and answers the hand-overs since the last look.
    pub fn look(&mut self, supervisor: &Supervisor) -> Vec<Handover> {
        let fetched = self.fetch(supervisor);
        let elapsed = self.begin.elapsed();
        if self.plan.upgrade_at.is_some_and(|at| elapsed >= at) {
            self.upgrade_one(supervisor);
        }
        if let Some(every) = self.plan.kill_every.filter(|_| elapsed >= self.next_kill) {
            self.next_kill = elapsed + every;
            if let Some(stage) = self.drawn(supervisor) {
                self.kills += u64::from(supervisor.kill(&stage.name).unwrap_or(false));
            }
        }
        if let Some(every) = self.plan.migrate_every.filter(|_| elapsed >= self.next_move)
            && self.move_one(supervisor)
        {
            self.next_move = (self.next_move + every).max(elapsed.saturating_sub(every));
            self.migrations += 1;
        }
        self.fulfil(supervisor);
        fetched
    }

    /// The hand-overs since the last call.
    pub fn fetch(&mut self, supervisor: &Supervisor) -> Vec<Handover> {
        let fetched = supervisor.handovers();
        let room = HANDOVERS_MAX - self.handovers.len();
        self.handovers.extend(fetched.iter().take(room));
        self.recent.extend(fetched.iter().filter(|it| it.cause != Cause::Began));
        let surplus = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..surplus);
        fetched
    }

    /// Replaces the next stage of all; one that is not ready is asked for again.
    fn upgrade_one(&mut self, supervisor: &Supervisor) {
        if let Some(name) = self.to_upgrade.last()
            && supervisor.replace(name, &self.plan.upgrade_to).is_ok()
        {
            self.to_upgrade.pop();
            self.upgrades += 1;
        }
    }

    /// Moves a stage that is drawn; one that cannot be moved now is being handed over, or starts again.
    fn move_one(&mut self, supervisor: &Supervisor) -> bool {
        let Some(stage) = self.drawn(supervisor) else {
            return false;
        };
        let elsewhere = self.cores.iter().copied().filter(|core| Some(*core) != stage.core);
        let elsewhere: Vec<CoreId> = elsewhere.collect();
        let target = elsewhere.get(self.number(elsewhere.len())).copied();
        target.is_some_and(|core| supervisor.move_stage(&stage.name, core, self.plan.mechanism).is_ok())
    }

    /// Tries the oldest wish.
    fn fulfil(&mut self, supervisor: &Supervisor) {
        let Some((wish, since)) = self.wishes.front().cloned() else {
            return;
        };
        match self.tried(&wish, supervisor) {
            Err(MoveError::Busy(_) | MoveError::NotReady(..)) if since.elapsed() < PATIENCE => return,
            Ok(told) => self.answer = Some(told),
            Err(why) => self.answer = Some(why.to_string()),
        }
        self.wishes.pop_front();
    }

    fn tried(&mut self, wish: &Wish, supervisor: &Supervisor) -> Result<String, MoveError> {
        match wish {
            Wish::Kill(name) => {
                let killed = supervisor.kill(name)?;
                self.kills += u64::from(killed);
                Ok(format!(
                    "{name}: {}",
                    if killed {
                        "killed"
                    } else {
                        "has no process at this instant"
                    }
                ))
            }
            Wish::Upgrade(name) => {
                supervisor.replace(name, &self.plan.upgrade_to)?;
                self.upgrades += 1;
                Ok(format!("{name}: a new process of the program takes it over"))
            }
            Wish::Move(name) => {
                let core = next_core(&self.cores, &supervisor.stages(), name);
                let Some(core) = core else {
                    return Ok(format!("{name}: there is no other core"));
                };
                supervisor.move_stage(name, core, self.plan.mechanism)?;
                self.migrations += 1;
                Ok(format!("{name}: goes to core {core}"))
            }
        }
    }

    fn drawn(&mut self, supervisor: &Supervisor) -> Option<StageNow> {
        let mut stages = supervisor.stages();
        stages.retain(|stage| stage.core.is_some());
        let number = self.number(stages.len());
        stages.into_iter().nth(number)
    }

    /// A number below `below`, drawn from the seed (the multiplier is Knuth's: The Art of Computer Programming, section
    /// 3.3.4).
    fn number(&mut self, below: usize) -> usize {
        self.draw = self
            .draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 33) as usize % below.max(1)
    }
}

/// The core after that of the stage, round and round; `None` where there is no other one. A pinned stage is asked for
/// the first core, which tells that it is pinned.
fn next_core(cores: &[CoreId], stages: &[StageNow], name: &str) -> Option<CoreId> {
    let own = stages.iter().find(|stage| stage.name == name)?.core;
    let Some(own) = own else { return cores.first().copied() };
    let at = cores.iter().position(|core| *core == own)?;
    Some(cores[(at + 1) % cores.len()]).filter(|core| *core != own)
}

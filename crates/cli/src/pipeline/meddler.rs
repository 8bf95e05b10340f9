//! Moves, kills and replaces stages: at intervals from the command line, and on keys.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_pipelines::linux::{Cause, Handover, Mechanism, MoveError, Panel, StageNow};
use punctual_units::CoreId;

/// Most handovers that the report's figures cover, the first ones.
const HANDOVERS_MAX: usize = 500_000;
/// Most handovers that a live view's figures cover, the last ones.
const RECENT_MAX: usize = 1000;
/// Capacity of the queue of requests: more keys than a person presses during a handover.
const WISHES_MAX: usize = 16;
/// Interval between retries of a request that was refused for now.
const AGAIN: Duration = Duration::from_micros(200);
/// Time for which a request is retried: a process that takes a stage over has to be started first.
const PATIENCE: Duration = Duration::from_secs(4);

/// Request by a key about the stage of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Move to the next core.
    Move(String),
    /// Replace by a new process of the same program.
    Upgrade(String),
    Kill(String),
}

/// Mechanism of moves, and the intervals of automatic moves, kills and replacements.
#[derive(Clone, Debug)]
pub struct Orders {
    pub mechanism: Mechanism,
    pub migrate_every: Option<Duration>,
    pub kill_every: Option<Duration>,
    pub upgrade_at: Option<Duration>,
    pub upgrade_to: PathBuf,
    pub seed: u64,
}

impl Orders {
    /// No automatic moves, kills and replacements.
    pub fn none() -> Orders {
        Orders {
            mechanism: Mechanism::Announced,
            migrate_every: None,
            kill_every: None,
            upgrade_at: None,
            upgrade_to: "/proc/self/exe".into(),
            seed: 1,
        }
    }
}

/// Carries out requests about stages, and counts their results.
pub struct Meddler {
    orders: Orders,
    cores: Vec<CoreId>,
    begin: Instant,
    next_move: Duration,
    next_kill: Duration,
    draw: u64,
    /// Stages that are still to be replaced.
    to_upgrade: Vec<String>,
    wishes: VecDeque<(Wish, Instant)>,
    /// Result of the last request, as a sentence.
    pub answer: Option<String>,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    pub handovers: Vec<Handover>,
    pub recent: VecDeque<Handover>,
}

impl Meddler {
    pub fn new(orders: &Orders, panel: &Panel) -> Meddler {
        let migratable = panel.stages().into_iter().filter(|stage| stage.core.is_some());
        let names = migratable.map(|stage| stage.name).collect();
        Meddler {
            orders: orders.clone(),
            cores: panel.cores(),
            begin: Instant::now(),
            next_move: orders.migrate_every.unwrap_or(Duration::MAX),
            next_kill: orders.kill_every.unwrap_or(Duration::MAX),
            draw: orders.seed,
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

    /// Mechanism by which stages move.
    pub fn mechanism(&self) -> Mechanism {
        self.orders.mechanism
    }

    /// Queues a request; dropped if the queue is full.
    pub fn wish(&mut self, wish: Wish) {
        if self.wishes.len() < WISHES_MAX {
            self.wishes.push_back((wish, Instant::now()));
        }
    }

    /// Carries out requests that are due, and returns the handovers since the last look.
    pub fn look(&mut self, panel: &Panel) -> Vec<Handover> {
        let fetched = self.fetch(panel);
        let elapsed = self.begin.elapsed();
        if self.orders.upgrade_at.is_some_and(|at| elapsed >= at) {
            self.upgrade_one(panel);
        }
        if let Some(every) = self.orders.kill_every.filter(|_| elapsed >= self.next_kill) {
            self.next_kill = elapsed + every;
            if let Some(stage) = self.drawn(panel) {
                self.kills += u64::from(panel.kill(&stage.name).unwrap_or(false));
            }
        }
        if let Some(every) = self.orders.migrate_every.filter(|_| elapsed >= self.next_move)
            && self.move_one(panel)
        {
            self.next_move = (self.next_move + every).max(elapsed.saturating_sub(every));
            self.migrations += 1;
        }
        self.fulfil(panel);
        fetched
    }

    /// Time until the next request is due; `None`: until a key.
    pub fn due_in(&self) -> Option<Duration> {
        let elapsed = self.begin.elapsed();
        let upgrade = self.orders.upgrade_at.filter(|_| !self.to_upgrade.is_empty());
        let kill = self.orders.kill_every.map(|_| self.next_kill);
        let moved = self.orders.migrate_every.map(|_| self.next_move);
        let orders = [upgrade, kill, moved].into_iter().flatten();
        // Requests that are due already were tried at the last look.
        let orders = orders.map(|at| at.saturating_sub(elapsed).max(AGAIN));
        let wish = self.wishes.front().map(|_| AGAIN);
        orders.chain(wish).min()
    }

    /// Handovers since the last call.
    pub fn fetch(&mut self, panel: &Panel) -> Vec<Handover> {
        let fetched = panel.handovers();
        let room = HANDOVERS_MAX - self.handovers.len();
        self.handovers.extend(fetched.iter().take(room));
        self.recent.extend(fetched.iter().filter(|it| it.cause != Cause::Began));
        let surplus = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..surplus);
        fetched
    }

    /// Replaces the next of the remaining stages; a refusal is retried at the next look.
    fn upgrade_one(&mut self, panel: &Panel) {
        if let Some(name) = self.to_upgrade.last()
            && panel.replace(name, &self.orders.upgrade_to).is_ok()
        {
            self.to_upgrade.pop();
            self.upgrades += 1;
        }
    }

    /// Moves a random stage; a refusal means that it is in a handover, or restarts.
    fn move_one(&mut self, panel: &Panel) -> bool {
        let Some(stage) = self.drawn(panel) else {
            return false;
        };
        let elsewhere = self.cores.iter().copied().filter(|core| Some(*core) != stage.core);
        let elsewhere: Vec<CoreId> = elsewhere.collect();
        let target = elsewhere.get(self.number(elsewhere.len())).copied();
        target.is_some_and(|core| panel.move_stage(&stage.name, core, self.orders.mechanism).is_ok())
    }

    /// Tries the oldest request.
    fn fulfil(&mut self, panel: &Panel) {
        let Some((wish, since)) = self.wishes.front().cloned() else {
            return;
        };
        match self.tried(&wish, panel) {
            Err(MoveError::Busy(_) | MoveError::NotReady(..)) if since.elapsed() < PATIENCE => return,
            Ok(told) => self.answer = Some(told),
            Err(why) => self.answer = Some(why.to_string()),
        }
        self.wishes.pop_front();
    }

    fn tried(&mut self, wish: &Wish, panel: &Panel) -> Result<String, MoveError> {
        match wish {
            Wish::Kill(name) => {
                let killed = panel.kill(name)?;
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
                panel.replace(name, &self.orders.upgrade_to)?;
                self.upgrades += 1;
                Ok(format!("{name}: a new process of the program takes it over"))
            }
            Wish::Move(name) => {
                let core = next_core(&self.cores, &panel.stages(), name);
                let Some(core) = core else {
                    return Ok(format!("{name}: there is no other core"));
                };
                panel.move_stage(name, core, self.orders.mechanism)?;
                self.migrations += 1;
                Ok(format!("{name}: goes to core {core}"))
            }
        }
    }

    fn drawn(&mut self, panel: &Panel) -> Option<StageNow> {
        let mut stages = panel.stages();
        stages.retain(|stage| stage.core.is_some());
        let number = self.number(stages.len());
        stages.into_iter().nth(number)
    }

    /// A number below `below`, from the seed (a linear congruential generator; the multiplier is Knuth's: The Art of
    /// Computer Programming, section 3.3.4).
    fn number(&mut self, below: usize) -> usize {
        self.draw = self
            .draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 33) as usize % below.max(1)
    }
}

/// The next core after the stage's, cyclically; `None` if there is no other one. For a pinned stage, the first core:
/// the refusal then says that it is pinned.
fn next_core(cores: &[CoreId], stages: &[StageNow], name: &str) -> Option<CoreId> {
    let own = stages.iter().find(|stage| stage.name == name)?.core;
    let Some(own) = own else { return cores.first().copied() };
    let at = cores.iter().position(|core| *core == own)?;
    Some(cores[(at + 1) % cores.len()]).filter(|core| *core != own)
}

//! Moves, kills and replaces stages on keys.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_pipelines::linux::{Cause, Handover, Mechanism, MoveError, Panel, StageNow};
use punctual_units::CoreId;

/// Most handovers that a live view's figures cover, the last ones.
const RECENT_MAX: usize = 1000;
/// Capacity of the queue of requests: more keys than a person presses during a handover.
const WISHES_MAX: usize = 16;
/// Interval between retries of a request that was refused for now.
pub const AGAIN: Duration = Duration::from_micros(200);
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

/// Carries out requests about stages, and counts their results.
pub struct Meddler {
    /// Mechanism by which stages move.
    pub mechanism: Mechanism,
    /// Program of the processes that replace others.
    pub upgrade_to: PathBuf,
    cores: Vec<CoreId>,
    wishes: VecDeque<(Wish, Instant)>,
    /// Result of the last request, as a sentence.
    pub answer: Option<String>,
    pub migrations: u64,
    pub kills: u64,
    pub upgrades: u64,
    pub recent: VecDeque<Handover>,
}

impl Meddler {
    pub fn new(panel: &Panel) -> Meddler {
        Meddler {
            mechanism: Mechanism::Announced,
            upgrade_to: "/proc/self/exe".into(),
            cores: panel.cores(),
            wishes: VecDeque::new(),
            answer: None,
            migrations: 0,
            kills: 0,
            upgrades: 0,
            recent: VecDeque::new(),
        }
    }

    /// Queues a request; dropped if the queue is full.
    pub fn wish(&mut self, wish: Wish) {
        if self.wishes.len() < WISHES_MAX {
            self.wishes.push_back((wish, Instant::now()));
        }
    }

    /// Time until the oldest request is tried again; `None`: until a key.
    pub fn due_in(&self) -> Option<Duration> {
        self.wishes.front().map(|_| AGAIN)
    }

    /// Handovers since the last call.
    pub fn fetch(&mut self, panel: &Panel) -> Vec<Handover> {
        let fetched = panel.handovers();
        self.recent.extend(fetched.iter().filter(|it| it.cause != Cause::Began));
        let surplus = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..surplus);
        fetched
    }

    /// Tries the oldest request.
    pub fn fulfil(&mut self, panel: &Panel) {
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
                Ok(match killed {
                    true => format!("{name}: killed"),
                    false => format!("{name}: has no process at this instant"),
                })
            }
            Wish::Upgrade(name) => {
                panel.replace(name, &self.upgrade_to)?;
                self.upgrades += 1;
                Ok(format!("{name}: a new process of the program takes it over"))
            }
            Wish::Move(name) => {
                let core = next_core(&self.cores, &panel.stages(), name);
                let Some(core) = core else {
                    return Ok(format!("{name}: there is no other core"));
                };
                panel.move_stage(name, core, self.mechanism)?;
                self.migrations += 1;
                Ok(format!("{name}: goes to core {core}"))
            }
        }
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

//! Moves, kills and replaces stages at intervals from the command line, and on keys.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_cli::pipeline::meddler::{AGAIN, Meddler};
use punctual_pipelines::linux::{Handover, Mechanism, Panel, StageNow};
use punctual_units::CoreId;

/// Most handovers that the report's figures cover, the first ones.
const HANDOVERS_MAX: usize = 500_000;

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

/// Carries out orders, and requests by keys.
pub struct Execution {
    orders: Orders,
    pub meddler: Meddler,
    begin: Instant,
    next_move: Duration,
    next_kill: Duration,
    draw: u64,
    /// Stages that are still to be replaced.
    to_upgrade: Vec<String>,
    pub handovers: Vec<Handover>,
}

impl Execution {
    pub fn new(orders: &Orders, panel: &Panel) -> Execution {
        let migratable = panel.stages().into_iter().filter(|stage| stage.core.is_some());
        let mut meddler = Meddler::new(panel);
        (meddler.mechanism, meddler.upgrade_to) = (orders.mechanism, orders.upgrade_to.clone());
        Execution {
            orders: orders.clone(),
            meddler,
            begin: Instant::now(),
            next_move: orders.migrate_every.unwrap_or(Duration::MAX),
            next_kill: orders.kill_every.unwrap_or(Duration::MAX),
            draw: orders.seed,
            to_upgrade: migratable.map(|stage| stage.name).collect(),
            handovers: Vec::new(),
        }
    }

    /// Carries out what is due, and returns the handovers since the last look.
    pub fn look(&mut self, panel: &Panel) -> Vec<Handover> {
        let fetched = self.fetch(panel);
        let elapsed = self.begin.elapsed();
        if self.orders.upgrade_at.is_some_and(|at| elapsed >= at) {
            self.upgrade_one(panel);
        }
        if let Some(every) = self.orders.kill_every.filter(|_| elapsed >= self.next_kill) {
            self.next_kill = elapsed + every;
            if let Some(stage) = self.drawn(panel) {
                self.meddler.kills += u64::from(panel.kill(&stage.name).unwrap_or(false));
            }
        }
        if let Some(every) = self.orders.migrate_every.filter(|_| elapsed >= self.next_move)
            && self.move_one(panel)
        {
            self.next_move = (self.next_move + every).max(elapsed.saturating_sub(every));
            self.meddler.migrations += 1;
        }
        self.meddler.fulfil(panel);
        fetched
    }

    /// Time until the next order or request is due; `None`: until a key.
    pub fn due_in(&self) -> Option<Duration> {
        let elapsed = self.begin.elapsed();
        let upgrade = self.orders.upgrade_at.filter(|_| !self.to_upgrade.is_empty());
        let kill = self.orders.kill_every.map(|_| self.next_kill);
        let moved = self.orders.migrate_every.map(|_| self.next_move);
        let orders = [upgrade, kill, moved].into_iter().flatten();
        // Orders that are due already were tried at the last look.
        let orders = orders.map(|at| at.saturating_sub(elapsed).max(AGAIN));
        orders.chain(self.meddler.due_in()).min()
    }

    /// Handovers since the last call.
    pub fn fetch(&mut self, panel: &Panel) -> Vec<Handover> {
        let fetched = self.meddler.fetch(panel);
        let room = HANDOVERS_MAX - self.handovers.len();
        self.handovers.extend(fetched.iter().take(room));
        fetched
    }

    /// Replaces the next of the remaining stages; a refusal is retried at the next look.
    fn upgrade_one(&mut self, panel: &Panel) {
        if let Some(name) = self.to_upgrade.last()
            && panel.replace(name, &self.orders.upgrade_to).is_ok()
        {
            self.to_upgrade.pop();
            self.meddler.upgrades += 1;
        }
    }

    /// Moves a random stage; a refusal means that it is in a handover, or restarts.
    fn move_one(&mut self, panel: &Panel) -> bool {
        let Some(stage) = self.drawn(panel) else {
            return false;
        };
        let elsewhere = panel.cores().into_iter().filter(|core| Some(*core) != stage.core);
        let elsewhere: Vec<CoreId> = elsewhere.collect();
        let target = elsewhere.get(self.number(elsewhere.len())).copied();
        target.is_some_and(|core| panel.move_stage(&stage.name, core, self.orders.mechanism).is_ok())
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

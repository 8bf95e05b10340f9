//! Recording of a pipeline's decisions (where stages run, and the clocks beneath them), for `punctual replay`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_loop::{DeciderEvent, DeciderSetup, EventLog};
use punctual_pipelines::linux::mapping::{Ground, MappingDecision};
use punctual_pipelines::linux::{ClockHand, Panel, Pipeline};

use punctual_files::failure::Failure;

/// Interval between fetches: the pipeline keeps its last 64 decisions, which are 0.64 s at the shortest period.
const FETCH: Duration = Duration::from_millis(200);
/// Most decisions that are kept, the first ones: a day at the usual period.
const DECISIONS_MAX: usize = 24 * 3600 * 10;

/// Thread that fetches decisions until the recording ends.
pub struct Recorder {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<EventLog>,
    clocks: Option<ClockHand>,
}

impl Recorder {
    /// Starts to record the decisions of a pipeline.
    pub fn start(pipeline: &Pipeline) -> Recorder {
        let ends = Arc::new(AtomicBool::new(false));
        let (panel, told, ground) = (pipeline.panel(), Arc::clone(&ends), pipeline.ground().clone());
        Recorder {
            thread: std::thread::spawn(move || record(&panel, ground, &told)),
            ends,
            clocks: pipeline.clocks().and_then(Result::ok),
        }
    }

    /// Ends the recording, and returns the decisions.
    ///
    /// # Errors
    /// [`Failure::Internal`] if the thread panicked.
    pub fn end(self) -> Result<EventLog, Failure> {
        self.ends.store(true, Ordering::Release);
        let panicked = |_| Failure::Internal("the thread that records decisions panicked".into());
        let mut log = self.thread.join().map_err(panicked)?;
        self.clocks
            .and_then(|hand| hand.log())
            .into_iter()
            .for_each(|clocks| log.join(clocks));
        Ok(log)
    }
}

fn record(panel: &Panel, ground: Ground, ends: &AtomicBool) -> EventLog {
    let (mut from, mut kept) = (0, CoordinatorLogs::default());
    loop {
        // Read before the fetch, so that the last fetch has every decision made before the end.
        let last = ends.load(Ordering::Acquire);
        let (fetched, next) = panel.decisions(from);
        kept.lost += next - from - fetched.len() as u64;
        from = next;
        fetched.into_iter().for_each(|decision| kept.keep(&ground, decision));
        if last {
            return kept.joined();
        }
        std::thread::sleep(FETCH);
    }
}

/// The decisions so far. A coordinator's memory reaches back to its first decision, so after a missing one no further
/// one is kept: it could not be taken again.
#[derive(Default)]
struct CoordinatorLogs {
    /// Each coordinator, in the order in which they began.
    logs: Vec<EventLog>,
    /// Of each core, the index of its coordinator's log, and the number of its next decision.
    present: BTreeMap<usize, (usize, u64)>,
    count: usize,
    lost: u64,
}

impl CoordinatorLogs {
    fn keep(&mut self, ground: &Ground, decision: MappingDecision) {
        let core = decision.seen.core;
        if decision.number == 0 && self.count < DECISIONS_MAX {
            let ground = Box::new(ground.clone());
            let setup = DeciderSetup::Stages {
                ground,
                policy: decision.policy,
            };
            self.present.insert(core, (self.logs.len(), 0));
            self.logs.push(EventLog::of(setup, DECISIONS_MAX));
        }
        let present = self.present.get_mut(&core);
        match present.filter(|(_, next)| *next == decision.number && self.count < DECISIONS_MAX) {
            Some((log, next)) => {
                *next += 1;
                self.count += 1;
                let seen = DeciderEvent::Stages(Box::new(decision.seen));
                self.logs[*log].note(decision.now, seen, decision.answer);
            }
            None => self.lost += 1,
        }
    }

    fn joined(self) -> EventLog {
        let mut log = EventLog::default();
        self.logs.into_iter().for_each(|other| log.join(other));
        log.lost += self.lost;
        log
    }
}

#[cfg(test)]
mod tests {
    use punctual_pipelines::linux::mapping::{Cores, Mapping, MappingPolicy, MoveCost, PeriodMeasurements};
    use punctual_units::Time;

    use super::*;

    fn decision(core: usize, number: u64) -> MappingDecision {
        MappingDecision {
            now: Time(number),
            number,
            policy: MappingPolicy::Balance,
            seen: PeriodMeasurements {
                core,
                fps: 0.0,
                cycles: Vec::new(),
                mapping: Mapping::of([]),
                celsius: Vec::new(),
                moving: false,
                held: false,
            },
            answer: Default::default(),
        }
    }

    #[test]
    fn after_a_missing_decision_the_next_coordinator_is_kept() {
        let ground = Ground {
            stages: Vec::new(),
            cores: Cores {
                domains: Vec::new(),
                low_power_watts: 0.0,
            },
            cost: MoveCost {
                constant_cycles: 0.0,
                cycles_per_byte: 0.0,
                bytes_min: 0,
            },
        };
        let mut kept = CoordinatorLogs::default();
        let seen = [(0, 0), (0, 1), (1, 5), (0, 3), (0, 4), (1, 0), (0, 0), (0, 1), (1, 1)];
        seen.into_iter()
            .for_each(|(core, number)| kept.keep(&ground, decision(core, number)));
        let log = kept.joined();
        assert_eq!((log.deciders.len(), log.decisions.len(), log.lost), (3, 6, 3));
        assert_eq!(punctual_loop::replay(&log), Ok(Vec::new()));
    }
}

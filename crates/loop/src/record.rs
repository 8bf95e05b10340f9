//! The log of a run, and its replay: the same events through fresh deciders must give the same answers.
//!
//! Deciders run in threads and processes of their own, so each keeps a log of its own decisions; they are joined at the
//! end, in the order of time. A log holds nothing but values.

use std::collections::BTreeMap;

use punctual_platform::KnobId;
use punctual_units::Time;
use serde::{Deserialize, Serialize};

use crate::decider::{Decider, DeciderAnswer, DeciderEvent, DeciderSetup};
use crate::document::Mismatch;

/// The version of the logs that this program writes; those from [`LOG_OLDEST`] on replay. It changes with the fields of
/// events and answers: from 8 on, all decisions are one list; 9 reports releases and has prices; 10 reports the frames
/// that stages miss; in 11 a user may change goals; in 12 tasks end, and a look ahead says when it does.
pub const LOG_VERSION: u32 = 12;

/// The oldest version of logs that this program replays.
pub const LOG_OLDEST: u32 = 8;

/// Kind that a log file states first.
pub const LOG_KIND: &str = "punctual-log";

/// The deciders of a run, with their events and answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventLog {
    /// What each decider was made from.
    pub deciders: Vec<DeciderSetup>,
    /// The decisions in the order of time; of each decider, in the order in which it took them.
    pub decisions: Vec<Decision>,
    /// Number of further decisions, for which there was no room.
    pub lost: u64,
    /// Most decisions that [`EventLog::note`] keeps.
    #[serde(skip)]
    room: usize,
}

/// An event of a decider, and the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Index of the decider into [`EventLog::deciders`].
    pub decider: usize,
    /// When it was asked.
    pub now: Time,
    pub event: DeciderEvent,
    pub answer: DeciderAnswer,
}

impl EventLog {
    /// The log of one decider, with room for `room` decisions.
    pub fn of(setup: DeciderSetup, room: usize) -> EventLog {
        EventLog {
            deciders: vec![setup],
            room,
            ..EventLog::default()
        }
    }

    /// Makes room for `room` decisions at once, so that noting them allocates nothing.
    pub fn reserve(&mut self, room: usize) {
        self.room = room;
        self.decisions.reserve_exact(room);
    }

    /// Notes a decision of the last decider, or counts it as lost.
    pub fn note(&mut self, now: Time, event: impl Into<DeciderEvent>, answer: impl Into<DeciderAnswer>) {
        if self.decisions.len() >= self.room {
            self.lost += 1;
            return;
        }
        self.decisions.push(Decision {
            decider: self.deciders.len() - 1,
            now,
            event: event.into(),
            answer: answer.into(),
        });
    }

    /// Adds the deciders and decisions of another log.
    pub fn join(&mut self, other: EventLog) {
        let before = self.deciders.len();
        self.deciders.extend(other.deciders);
        let moved = |decision: Decision| Decision {
            decider: decision.decider + before,
            ..decision
        };
        self.decisions.extend(other.decisions.into_iter().map(moved));
        self.lost += other.lost;
        // Stable, and each decider's instants ascend: its decisions stay in their order.
        self.decisions.sort_by_key(|decision| decision.now);
    }

    /// The decisions of the deciders that `of` names.
    pub fn decisions_of(&self, of: impl Fn(&DeciderSetup) -> bool) -> impl Iterator<Item = &Decision> {
        let named: Vec<bool> = self.deciders.iter().map(of).collect();
        let is_named = move |decider: usize| named.get(decider).copied().unwrap_or(false);
        self.decisions.iter().filter(move |decision| is_named(decision.decider))
    }
}

/// A decision that the replay takes differently.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Index of the logged decision into [`EventLog::decisions`].
    pub index: usize,
    /// The logged and the replayed decision.
    pub what: String,
}

/// Replays `log` through fresh deciders and returns every decision that differs; empty means that all are identical.
/// A knob that goes back to a decider after another one has turned it is a difference, too: two fight for it.
///
/// # Errors
/// [`Mismatch`], where a decider cannot be made.
pub fn replay(log: &EventLog) -> Result<Vec<Difference>, Mismatch> {
    let deciders: Result<Vec<Decider>, Mismatch> = log.deciders.iter().map(Decider::new).collect();
    let (mut deciders, mut holders) = (deciders?, BTreeMap::<KnobId, Vec<usize>>::new());
    let mut differences = Vec::new();
    for (index, logged) in log.decisions.iter().enumerate() {
        let Some(decider) = deciders.get_mut(logged.decider) else {
            let what = format!("decider {} is not in the log", logged.decider);
            differences.push(Difference { index, what });
            continue;
        };
        let about = || log.deciders[logged.decider].about();
        let answer = decider.step(&logged.event, logged.now);
        if answer != logged.answer {
            let what = format!("{}: logged {:?}, replayed {answer:?}", about(), logged.answer);
            differences.push(Difference { index, what });
        }
        for (knob, _) in logged.answer.plan().into_iter().flat_map(|plan| plan.iter()) {
            let before = holders.entry(knob).or_default();
            if before.last() == Some(&logged.decider) {
                continue;
            }
            if before.contains(&logged.decider) {
                let what = format!("{}: {knob} was turned by another decider meanwhile", about());
                differences.push(Difference { index, what });
            }
            before.push(logged.decider);
        }
    }
    Ok(differences)
}

#[cfg(test)]
mod tests {
    use punctual_cores::{LendingCosts, TenantEvent};
    use punctual_platform::{Plan, Value};
    use punctual_units::{CoreId, Nanos, Share};

    use super::*;

    fn lending(core: u32, room: usize) -> EventLog {
        let costs = LendingCosts {
            hand_over: Nanos(10),
            take_back: Nanos(20),
        };
        let tenants = 1;
        let setup = DeciderSetup::Lending {
            core: CoreId(core),
            tenants,
            costs,
        };
        let (mut log, mut decider) = (EventLog::of(setup.clone(), room), Decider::new(&setup).unwrap());
        for job in 0..4 {
            let release = Time(1000 * (job + 1));
            let leaves = DeciderEvent::Lending(0, TenantEvent::Leaves { release, costs });
            let called = DeciderEvent::Lending(0, TenantEvent::Called);
            for (event, now) in [(leaves, Time(1000 * job + 100)), (called, release)] {
                let answer = decider.step(&event, now);
                log.note(now, event, answer);
            }
        }
        log
    }

    #[test]
    fn logs_are_joined_in_the_order_of_time_and_replay() {
        let mut log = lending(1, 100);
        log.join(lending(2, 5));
        assert_eq!((log.decisions.len(), log.lost), (13, 3));
        assert!(log.decisions.is_sorted_by_key(|decision| decision.now));
        assert!(log.decisions.iter().all(|decision| decision.answer == true.into()));
        assert_eq!(replay(&log), Ok(Vec::new()));
        let read: EventLog = serde_json::from_str(&serde_json::to_string(&log).unwrap()).unwrap();
        assert_eq!((&read.deciders, &read.decisions), (&log.deciders, &log.decisions));
    }

    #[test]
    fn a_changed_answer_a_foreign_event_and_an_unknown_decider_are_found() {
        let mut log = lending(1, 100);
        log.decisions[2].answer = false.into();
        log.decisions[4].event = DeciderEvent::Clocks(Box::default());
        log.decisions[7].decider = 1;
        let found = replay(&log).unwrap();
        assert_eq!(found.iter().map(|it| it.index).collect::<Vec<_>>(), [2, 4, 5, 7]);
        assert!(
            found[0].what.starts_with("lending core 1: logged Yes(false)"),
            "{}",
            found[0].what
        );
    }

    #[test]
    fn two_deciders_that_turn_one_knob_by_turns_are_found() {
        let share = |share| Plan::of(KnobId::BestEffortShare, Value::Share(Share::clamped(share)));
        let mut log = lending(1, 100);
        log.join(lending(2, 100));
        let turned = |log: &EventLog| {
            let found = replay(log).unwrap();
            let fights = found.iter().filter(|it| it.what.contains("meanwhile"));
            fights.map(|it| it.index).collect::<Vec<_>>()
        };
        // A successor is no fight.
        for (at, decision) in log.decisions.iter_mut().enumerate() {
            decision.decider = usize::from(at > 7);
            decision.answer = share(0.5).into();
        }
        assert_eq!(turned(&log), [0; 0]);
        log.decisions[12].decider = 0;
        assert_eq!(turned(&log), [12, 13]);
    }
}

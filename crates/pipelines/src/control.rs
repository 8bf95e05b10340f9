//! Which process owns a stage, and how ownership passes to another.
//!
//! **Terms.** A stage has *slots*: processes that may run it, on any core, of any version. One of them is its *owner*.
//! **Method.** One word names the owner's slot, the epoch, and the phase of a handover. Every change is a
//! compare-and-swap of that word, by whichever process can do it first:
//!
//! ```text
//!                announce(target)              ready (by the target)
//!   Held(owner) ───────────────► Announced ───────────────────────► Asked
//!        ▲  │         ask(target)                                     │ yield (by the owner, between steps),
//!        │  └────────────────────────────────────────────────────────►│ or the owner has died
//!        │                                                            ▼
//!        └────────────────────────────────────────────────── Held(target), epoch + 1
//! ```
//!
//! In phase Announced, the target maps and reads what it will need while the owner continues, and then spins; asked
//! without an announcement, the target sleeps until the owner has yielded. The death of a target rolls the handover
//! back; the death of an owner completes it. So a handover needs no third process, and any process can continue it: the
//! word holds everything that it needs to know.

/// Greatest number of processes that may run one stage.
pub const SLOTS_MAX: usize = 16;

/// Phase of a handover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// No handover: the owner runs the stage.
    #[default]
    Held = 0,
    /// The target prepares itself while the owner continues.
    Announced = 1,
    /// The owner must yield between two steps.
    Asked = 2,
}

/// Content of a stage's control word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Number of owners so far; wraps after 65,535.
    pub epoch: u16,
    /// Slot of the process that owns the stage.
    pub owner: u8,
    /// Slot of the next owner; equals `owner` while no handover is under way.
    pub target: u8,
    /// Phase of the handover, if one is under way.
    pub phase: Phase,
}

impl Control {
    /// Packs all fields into one word.
    pub fn word(self) -> u64 {
        let phase = self.phase as u64;
        u64::from(self.epoch) | u64::from(self.owner) << 16 | u64::from(self.target) << 24 | phase << 32
    }

    /// Unpacks a control word.
    #[inline]
    pub fn of(word: u64) -> Control {
        let byte = |at: u32| (word >> at) as u8;
        Control {
            epoch: word as u16,
            owner: byte(16),
            target: byte(24),
            phase: match byte(32) {
                0 => Phase::Held,
                1 => Phase::Announced,
                _ => Phase::Asked,
            },
        }
    }

    /// The state in which `slot` owns the stage in `epoch`, without a handover.
    pub fn held(slot: u8, epoch: u16) -> Control {
        Control {
            epoch,
            owner: slot,
            target: slot,
            phase: Phase::Held,
        }
    }

    /// Whether the process in `slot` may execute steps.
    #[inline]
    pub fn runs(self, slot: u8) -> bool {
        self.owner == slot && self.phase != Phase::Asked
    }

    /// Announces a handover to `target`, which prepares itself; `None` if one is under way or `target` owns the stage.
    pub fn announce(self, target: u8) -> Option<Control> {
        self.to(target, Phase::Announced)
    }

    /// Asks the owner to yield to `target`; `None` if a handover is under way or `target` owns the stage.
    pub fn ask(self, target: u8) -> Option<Control> {
        self.to(target, Phase::Asked)
    }

    fn to(self, target: u8, phase: Phase) -> Option<Control> {
        let free = self.phase == Phase::Held && self.owner != target && usize::from(target) < SLOTS_MAX;
        free.then_some(Control { target, phase, ..self })
    }

    /// The announced target in `slot` is ready; `None` if it was not announced.
    pub fn ready(self, slot: u8) -> Option<Control> {
        let announced = self.phase == Phase::Announced && self.target == slot;
        announced.then_some(Control {
            phase: Phase::Asked,
            ..self
        })
    }

    /// The owner in `slot` yields, between two steps; `None` if it was not asked or is not the owner.
    pub fn yields(self, slot: u8) -> Option<Control> {
        (self.phase == Phase::Asked && self.owner == slot).then(|| self.handed(self.target))
    }

    /// The process in `slot` is dead; `spare` is another one that may own the stage. `None` leaves the word as it is:
    /// the process had no part in it, or it was the owner and there is no spare.
    pub fn died(self, slot: u8, spare: Option<u8>) -> Option<Control> {
        match (self.phase, self.owner == slot, self.target == slot) {
            (Phase::Announced | Phase::Asked, true, _) => Some(self.handed(self.target)),
            (Phase::Announced | Phase::Asked, _, true) => Some(Control {
                target: self.owner,
                phase: Phase::Held,
                ..self
            }),
            (Phase::Held, true, _) => spare.map(|spare| self.handed(spare)),
            _ => None,
        }
    }

    /// Cancels an announced handover, for example because the target prepares itself too long; `None` where the owner
    /// may have yielded already.
    pub fn call_off(self) -> Option<Control> {
        (self.phase == Phase::Announced).then_some(Control {
            target: self.owner,
            phase: Phase::Held,
            ..self
        })
    }

    fn handed(self, slot: u8) -> Control {
        Control::held(slot, self.epoch.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Announce(u8),
        Ask(u8),
        Ready(u8),
        Yields(u8),
        Died(u8, Option<u8>),
        CallOff,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let slot = 0u8..4;
        let act = prop_oneof![
            slot.clone().prop_map(Act::Announce),
            slot.clone().prop_map(Act::Ask),
            slot.clone().prop_map(Act::Ready),
            slot.clone().prop_map(Act::Yields),
            (slot.clone(), prop::option::of(slot)).prop_map(|(slot, spare)| Act::Died(slot, spare)),
            Just(Act::CallOff),
        ];
        prop::collection::vec(act, 1..60)
    }

    fn apply(control: Control, act: Act) -> Option<Control> {
        match act {
            Act::Announce(slot) => control.announce(slot),
            Act::Ask(slot) => control.ask(slot),
            Act::Ready(slot) => control.ready(slot),
            Act::Yields(slot) => control.yields(slot),
            Act::Died(slot, spare) => control.died(slot, spare),
            Act::CallOff => control.call_off(),
        }
    }

    proptest! {
        #[test]
        fn the_stage_has_one_owner_and_each_owner_an_epoch(acts in acts()) {
            let mut now = Control::held(0, 65_530);
            for act in acts {
                let Some(next) = apply(now, act) else { continue };
                prop_assert_eq!(Control::of(next.word()), next);
                let new_owner = next.owner != now.owner || next.epoch != now.epoch;
                // An owner loses the stage by yielding or by dying only, and the next one has another epoch.
                let lost = matches!(act, Act::Yields(slot) | Act::Died(slot, _) if slot == now.owner);
                prop_assert_eq!(new_owner, lost, "{:?} at {:?}", act, now);
                prop_assert_eq!(next.epoch, now.epoch.wrapping_add(u16::from(new_owner)));
                prop_assert_eq!(next.phase == Phase::Held, next.target == next.owner);
                now = next;
            }
        }
    }

    #[test]
    fn whichever_of_two_processes_dies_the_other_one_has_the_stage() {
        let asked = Control::held(1, 4).announce(2).and_then(|it| it.ready(2)).unwrap();
        assert_eq!(asked.died(1, None), Some(Control::held(2, 5)));
        assert_eq!(asked.died(2, None), Some(Control::held(1, 4)));
        assert_eq!(asked.yields(1), Some(Control::held(2, 5)));
        assert_eq!(asked.call_off(), None, "the owner may be yielding right now");
        assert_eq!(
            Control::held(1, 4).died(1, None),
            None,
            "without a process, the stage waits"
        );
        assert_eq!(Control::held(1, 4).died(1, Some(3)), Some(Control::held(3, 5)));
    }
}

//! The life cycle of a stage's processes: which of them waits, prepares itself, executes steps or ends; and which
//! process continues the stage when one of them has ended.
//!
//! **Terms.** A *slot* is a place for a process of a stage, on one core. A stage runs one *version*: a program, and how
//! often the stage was replaced before. A process of another version is stale and ends, unless it is about to bring the
//! next version. **Method.** Values in, values out: the process, its worker and the caller of a handover each read the
//! same words ([`Control`], [`Slot`], [`Versions`]) and compute here what to do. They read at different times, so each
//! answer must be right even if the words change right after. The tests below play that out.

use crate::control::{Control, Phase};

/// Program that a process of a stage runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// How often the stage was replaced before; wraps after 65,535.
    pub number: u16,
    /// Index of the program among those of the pipeline; 0: the program that started the pipeline.
    pub program: u8,
}

impl Version {
    fn word(self) -> u64 {
        u64::from(self.number) | u64::from(self.program) << 16
    }

    fn of(word: u64) -> Version {
        Version {
            number: word as u16,
            program: (word >> 16) as u8,
        }
    }

    /// The version after this one, with that program.
    pub fn next(self, program: u8) -> Version {
        Version {
            number: self.number.wrapping_add(1),
            program,
        }
    }

    /// Whether this version is newer than `other`; right across a wrap, up to 32,767 versions apart.
    pub fn is_after(self, other: Version) -> bool {
        (self.number.wrapping_sub(other.number) as i16) > 0
    }
}

/// The current version of a stage, and its previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// The version in force.
    pub now: Version,
    /// The version to return to if the current one dies again and again before its first step.
    pub before: Version,
}

impl Versions {
    /// Packs both versions into one word.
    pub fn word(self) -> u64 {
        self.now.word() | self.before.word() << 24
    }

    /// Unpacks a word of versions.
    pub fn of(word: u64) -> Versions {
        Versions {
            now: Version::of(word),
            before: Version::of(word >> 24),
        }
    }

    /// The versions after a process of `version` has taken over the stage.
    pub fn taken_by(self, version: Version) -> Versions {
        // Two simultaneous replacements have the same number: the later takeover counts.
        if version == self.now || self.now.is_after(version) {
            return self;
        }
        Versions {
            now: version,
            before: self.now,
        }
    }

    /// Returns to the previous program under a new version number, so that processes of the failed version are stale.
    pub fn back(self) -> Versions {
        let now = self.now.next(self.before.program);
        Versions { now, before: now }
    }

    /// Whether there is a previous version to return to.
    pub fn can_go_back(self) -> bool {
        self.before != self.now
    }
}

/// Content of a slot's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Process in the slot; 0: none.
    pub pid: i32,
    /// Whether the slot should have a process.
    pub wanted: bool,
    /// Whether the process is started to replace the owner, as a newly executed program.
    pub fresh: bool,
    /// Version that the process runs.
    pub version: Version,
}

impl Slot {
    /// Unpacks a slot's word.
    pub fn of(word: u64) -> Slot {
        Slot {
            pid: word as u32 as i32,
            wanted: word >> 32 & 1 == 1,
            fresh: word >> 33 & 1 == 1,
            version: Version::of(word >> 34),
        }
    }

    /// Packs all fields into one word.
    pub fn word(self) -> u64 {
        let flags = u64::from(self.wanted) << 32 | u64::from(self.fresh) << 33;
        u64::from(self.pid as u32) | flags | self.version.word() << 34
    }

    /// Whether the slot's process is a newly executed program, rather than a fork of the worker.
    pub fn is_executed(self) -> bool {
        self.fresh || self.version.program != 0
    }

    /// Whether the slot's process may own the stage while `now` is in force: it has that version or a newer one.
    fn is_current(self, now: Version) -> bool {
        self.version == now || self.version.is_after(now)
    }
}

/// Next action of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Executes steps: it owns the stage.
    Steps,
    /// Yields the stage to the target.
    Yields,
    /// Reads ahead what it will need as the owner.
    Prepares,
    /// Sleeps until its slot's bell rings.
    Waits,
    /// Ends, because it is not needed.
    Ends,
}

/// Next action of the process in `slot`, whose slot word is `said`.
pub fn doing(control: Control, slot: u8, said: Slot, now: Version) -> Duty {
    if control.runs(slot) && !said.is_current(now) {
        // A newer version took over while this process was starting: the stage restarts with the newer one.
        Duty::Ends
    } else if control.runs(slot) {
        Duty::Steps
    } else if control.owner == slot {
        // Asked before it was awake: it owns the stage, but has done no step.
        Duty::Yields
    } else if control.target == slot {
        // A target is needed even if it was not wanted before: it has announced itself.
        match control.phase {
            Phase::Announced => Duty::Prepares,
            Phase::Asked | Phase::Held => Duty::Waits,
        }
    } else if said.wanted && said.is_current(now) {
        Duty::Waits
    } else {
        Duty::Ends
    }
}

/// Slot word of the process to start in `slot`; `None`: a process is there, or none is wanted.
///
/// An owner is always wanted: the process that yielded the stage may have died before it could record that.
pub fn starts(control: Control, slot: u8, said: Slot, now: Version) -> Option<Slot> {
    let wanted = said.wanted || control.owner == slot;
    let version = if said.is_current(now) { said.version } else { now };
    (wanted && said.pid == 0).then_some(Slot {
        wanted: true,
        version,
        ..said
    })
}

/// Slot word once the process that was begun with the word `start` is there: it runs that version, whatever was
/// requested while it was started.
pub fn started(said: Slot, start: Slot, pid: i32) -> Slot {
    Slot {
        pid,
        wanted: said.wanted,
        ..start
    }
}

/// Reason why a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Ended by itself as [not needed](Duty::Ends); a handover to it may have been requested since.
    NotNeeded,
    /// Ended because it cannot read the stage's state.
    Refused,
    /// Killed, crashed, or ended for any other reason.
    Died,
}

/// Control word after the process in `slot` has ended; `None`: unchanged. `spare` may own the stage. Write this before
/// the slot is marked empty: otherwise it would cancel a handover to the slot's next process.
pub fn buried(control: Control, slot: u8, how: Death, spare: u8) -> Option<Control> {
    // Requested after its last look: the next process in the slot takes over the stage.
    let asked_since = how == Death::NotNeeded && control.owner != slot;
    if asked_since {
        None
    } else {
        control.died(slot, Some(spare))
    }
}

/// Control word once the slot is empty, with the word `said`; `None`: unchanged. A handover announced between burial
/// and emptying meant the ended process; it is cancelled if no process follows.
pub fn emptied(control: Control, slot: u8, said: Slot) -> Option<Control> {
    let none_follows = control.target == slot && !said.wanted;
    if none_follows { control.call_off() } else { None }
}

/// Slot word after the slot's process has ended and was [`buried`]. `owned`: the process owned the stage.
pub fn after_end(said: Slot, owned: bool, how: Death, now: Version) -> Slot {
    // A process that was started to take over the stage, and failed to, is not tried again.
    let given_up = match how {
        Death::NotNeeded => false,
        Death::Refused => true,
        Death::Died => said.fresh && !owned,
    };
    let wanted = said.wanted && !given_up;
    Slot {
        pid: 0,
        wanted,
        // Requested again after its last look.
        fresh: said.fresh && wanted && how == Death::NotNeeded,
        version: if said.is_current(now) && how == Death::NotNeeded {
            said.version
        } else {
            now
        },
    }
}

/// Whether the process of a slot may continue a stage whose owner has died.
pub fn may_go_on(said: Slot, now: Version) -> bool {
    said.pid != 0 && said.version == now
}

/// Request for a handover to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Whether the target prepares itself before the owner yields.
    pub announced: bool,
    /// Whether a new process is started for this handover.
    pub fresh: bool,
    /// Version that the target must run.
    pub version: Version,
}

/// Answer to a request for a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The target owns the stage already, in the version that was wished for.
    Already,
    /// Another handover is under way, or has just given the stage to the target in another version: ask again.
    Busy,
    /// A process that sleeps in the slot must end first: write this slot word and ring its bell.
    Retire(Slot),
    /// The slot has no process: write this slot word and ring its worker.
    Start(Slot),
    /// Write this slot word, then this control word.
    Go(Slot, Control),
}

/// Answers the request that the process in `target` become the owner.
pub fn grant(control: Control, target: u8, said: Slot, wish: Wish) -> Grant {
    if control.phase != Phase::Held {
        return Grant::Busy;
    }
    if control.owner == target {
        return match said.version == wish.version {
            true => Grant::Already,
            false => Grant::Busy,
        };
    }
    let wanted = Slot {
        wanted: true,
        fresh: wish.fresh,
        version: wish.version,
        ..said
    };
    let there = said.pid != 0;
    // The yielding process starts the new one.
    let late = wish.fresh && !wish.announced;
    if there && (said.version != wish.version || late || wish.fresh && !said.fresh) {
        return Grant::Retire(Slot { wanted: false, ..said });
    }
    let to = match wish.announced {
        true => control.announce(target),
        false => control.ask(target),
    };
    match to {
        None => Grant::Busy,
        Some(to) if late => Grant::Go(
            Slot {
                wanted: false,
                ..wanted
            },
            to,
        ),
        Some(to) if there => Grant::Go(wanted, to),
        Some(_) => Grant::Start(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOTS: u8 = 4;

    /// What a process has read, and will act upon whatever has become of it meanwhile.
    #[derive(Clone, Copy, Debug)]
    struct Process {
        pid: i32,
        about_to: Option<Duty>,
        ended: Option<Death>,
        /// The control word knows; whether it had the stage.
        buried: Option<bool>,
    }

    /// What is wrong in a play.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        None,
        /// An owner's slot gets a process where one was wanted before only.
        OwnerForgotten,
        /// A slot is said to be empty before the control word knows.
        EmptyFirst,
    }

    /// All processes of one stage, with the words that they share.
    #[derive(Debug)]
    struct Play {
        control: Control,
        slots: [Slot; SLOTS as usize],
        versions: Versions,
        processes: Vec<(u8, Process)>,
        next_pid: i32,
        /// Versions of these programs refuse every state.
        broken: u8,
        planted: Fault,
        /// The epoch of a hand-over to a slot that was empty, and the least number of a process started after that.
        promised: Option<(u16, i32)>,
        /// Such a hand-over was called off by the death of a process that was there before.
        broken_promise: bool,
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        /// The process of that number among those that live reads the words.
        Looks(usize),
        /// It does what it found.
        Does(usize),
        Killed(usize),
        /// The worker hears of the end of a process.
        Reaps(usize),
        Starts,
        Moved {
            target: u8,
            announced: bool,
            fresh: bool,
        },
        Replaced {
            target: u8,
            program: u8,
        },
        CalledOff,
    }

    fn act() -> impl Strategy<Value = Act> {
        let which = 0..8usize;
        prop_oneof![
            6 => which.clone().prop_map(Act::Looks),
            6 => which.clone().prop_map(Act::Does),
            1 => which.clone().prop_map(Act::Killed),
            2 => which.prop_map(Act::Reaps),
            2 => Just(Act::Starts),
            2 => (0..SLOTS, any::<bool>(), any::<bool>())
                .prop_map(|(target, announced, fresh)| Act::Moved { target, announced, fresh }),
            2 => (0..SLOTS, 1..4u8).prop_map(|(target, program)| Act::Replaced { target, program }),
            1 => Just(Act::CalledOff),
        ]
    }

    impl Play {
        fn new(planted: Fault) -> Play {
            let mut play = Play {
                control: Control::held(0, 1),
                slots: [Slot::default(); SLOTS as usize],
                versions: Versions::default(),
                processes: Vec::new(),
                next_pid: 1,
                broken: 3,
                planted,
                promised: None,
                broken_promise: false,
            };
            play.start_all();
            play
        }

        fn start_all(&mut self) {
            for slot in 0..SLOTS {
                let said = &mut self.slots[usize::from(slot)];
                if self.planted == Fault::OwnerForgotten && !said.wanted && slot != 0 {
                    continue;
                }
                if let Some(start) = starts(self.control, slot, *said, self.versions.now) {
                    *said = Slot {
                        pid: self.next_pid,
                        ..start
                    };
                    let process = Process {
                        pid: self.next_pid,
                        about_to: None,
                        ended: None,
                        buried: None,
                    };
                    self.processes.push((slot, process));
                    self.next_pid += 1;
                }
            }
        }

        fn doing(&self, slot: u8) -> Duty {
            doing(self.control, slot, self.slots[usize::from(slot)], self.versions.now)
        }

        fn pick(&self, number: usize, ended: bool) -> Option<usize> {
            let mut which = (0..self.processes.len()).filter(|at| self.processes[*at].1.ended.is_some() == ended);
            let count = which.clone().count();
            (count > 0).then(|| which.nth(number % count))?
        }

        fn refuses(&self, slot: u8) -> bool {
            self.slots[usize::from(slot)].version.program == self.broken
        }

        fn does(&mut self, at: usize) {
            let (slot, Process { about_to, .. }) = self.processes[at];
            let ends = |play: &mut Play, refused| {
                let how = if refused { Death::Refused } else { Death::NotNeeded };
                play.processes[at].1.ended = Some(how);
            };
            match about_to {
                // A step, or the first look at the stage: by the words of now, as the commit word ensures.
                Some(Duty::Steps) if self.control.runs(slot) => {
                    let version = self.slots[usize::from(slot)].version;
                    if self.doing(slot) == Duty::Ends || self.refuses(slot) {
                        let refused = self.refuses(slot);
                        ends(self, refused);
                    } else {
                        self.versions = self.versions.taken_by(version);
                    }
                }
                Some(Duty::Yields) => self.control = self.control.yields(slot).unwrap_or(self.control),
                Some(Duty::Prepares) if self.refuses(slot) => {
                    self.control = self.control.call_off().unwrap_or(self.control);
                    ends(self, true);
                }
                Some(Duty::Prepares) => self.control = self.control.ready(slot).unwrap_or(self.control),
                Some(Duty::Ends) => ends(self, false),
                _ => {}
            }
            self.processes[at].1.about_to = None;
        }

        /// One of the two things that a worker does once a process has ended: others act between them.
        fn reap(&mut self, at: usize) {
            let (slot, Process { pid, ended, buried, .. }) = self.processes[at];
            let how = ended.unwrap_or(Death::Died);
            let owned = buried.unwrap_or(self.control.owner == slot);
            let empties = buried.is_some() != (self.planted == Fault::EmptyFirst);
            match empties {
                true => self.empty(slot, pid, owned, how),
                false => self.bury(slot, pid, how),
            }
            match buried {
                None => self.processes[at].1.buried = Some(owned),
                Some(_) => drop(self.processes.remove(at)),
            }
        }

        fn bury(&mut self, slot: u8, pid: i32, how: Death) {
            let others = (0..SLOTS).filter(|other| *other != slot);
            let spare = { others }.find(|other| may_go_on(self.slots[usize::from(*other)], self.versions.now));
            let Some(next) = buried(self.control, slot, how, spare.unwrap_or(slot)) else {
                return;
            };
            let (epoch, target) = (self.control.epoch, self.control.target);
            let called_off = target == slot && next.owner == self.control.owner;
            let promised = |(of, from)| of == epoch && pid < from;
            self.broken_promise |= called_off && self.promised.is_some_and(promised);
            self.control = next;
        }

        fn empty(&mut self, slot: u8, pid: i32, owned: bool, how: Death) {
            let said = &mut self.slots[usize::from(slot)];
            assert_eq!(said.pid, pid, "a slot has one process");
            *said = after_end(*said, owned, how, self.versions.now);
            self.control = emptied(self.control, slot, *said).unwrap_or(self.control);
        }

        fn ask(&mut self, target: u8, wish: Wish) {
            let said = &mut self.slots[usize::from(target)];
            match grant(self.control, target, *said, wish) {
                Grant::Already | Grant::Busy => {}
                Grant::Retire(slot) | Grant::Start(slot) => *said = slot,
                Grant::Go(slot, control) => {
                    self.promised = (said.pid == 0).then_some((control.epoch, self.next_pid));
                    (*said, self.control) = (slot, control);
                }
            }
        }

        fn play(&mut self, act: Act) {
            let pick = |play: &Play, number, ended| play.pick(number, ended);
            match act {
                Act::Looks(number) => {
                    if let Some(at) = pick(self, number, false) {
                        self.processes[at].1.about_to = Some(self.doing(self.processes[at].0));
                    }
                }
                Act::Does(number) => {
                    if let Some(at) = pick(self, number, false) {
                        self.does(at);
                    }
                }
                Act::Killed(number) => {
                    if let Some(at) = pick(self, number, false) {
                        self.processes[at].1.ended = Some(Death::Died);
                    }
                }
                Act::Reaps(number) => {
                    if let Some(at) = pick(self, number, true) {
                        self.reap(at);
                    }
                }
                Act::Starts => self.start_all(),
                Act::Moved {
                    target,
                    announced,
                    fresh,
                } => {
                    let version = self.versions.now;
                    self.ask(
                        target,
                        Wish {
                            announced,
                            fresh,
                            version,
                        },
                    );
                }
                Act::Replaced { target, program } => {
                    let version = self.versions.now.next(program);
                    self.ask(
                        target,
                        Wish {
                            announced: true,
                            fresh: true,
                            version,
                        },
                    );
                }
                Act::CalledOff => self.control = self.control.call_off().unwrap_or(self.control),
            }
        }

        /// Has each process and worker do what it does by itself, some times over; whether a process of the version in
        /// force has the stage then.
        fn comes_to_rest(&mut self) -> bool {
            for _ in 0..40 {
                for at in 0..self.processes.len() {
                    let slot = self.processes[at].0;
                    if self.processes[at].1.ended.is_none() {
                        self.processes[at].1.about_to = Some(self.doing(slot));
                        self.does(at);
                    }
                }
                while let Some(at) = self.pick(0, true) {
                    self.reap(at);
                }
                self.start_all();
            }
            let owner = self.control.owner;
            let has = |(slot, process): &(u8, Process)| *slot == owner && process.ended.is_none();
            self.control.phase == Phase::Held
                && self.slots[usize::from(owner)].version == self.versions.now
                && self.processes.iter().any(has)
        }
    }

    /// A schedule after which the stage has no process for ever, or in which a hand-over was lost.
    fn stuck(acts: &[Act], planted: Fault) -> Option<Play> {
        let mut play = Play::new(planted);
        for act in acts {
            play.play(*act);
        }
        (!play.comes_to_rest() || play.broken_promise).then_some(play)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100 * ProptestConfig::default().cases,
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_process_has_the_stage_in_the_end_whatever_dies_and_is_asked_for(
            acts in prop::collection::vec(act(), 1..120)
        ) {
            let stuck = stuck(&acts, Fault::None);
            prop_assert!(stuck.is_none(), "{stuck:?}");
        }
    }

    #[test]
    fn planted_faults_are_found() {
        use proptest::strategy::ValueTree;
        use proptest::test_runner::TestRunner;
        for planted in [Fault::OwnerForgotten, Fault::EmptyFirst] {
            let mut runner = TestRunner::deterministic();
            let acts = prop::collection::vec(act(), 120);
            let found = (0..4000).any(|_| {
                let acts = acts.new_tree(&mut runner).unwrap().current();
                stuck(&acts, planted).is_some()
            });
            assert!(found, "{planted:?}");
        }
    }

    #[test]
    fn a_process_is_of_the_version_with_which_it_was_begun_whatever_is_requested_meanwhile() {
        let (control, now) = (Control::held(0, 1), Version::default());
        let kept = Slot {
            wanted: true,
            ..Slot::default()
        };
        let begun = starts(control, 2, kept, now).unwrap();
        let wish = Wish {
            announced: true,
            fresh: true,
            version: now.next(1),
        };
        // Its worker has not recorded the new process yet.
        let Grant::Start(requested) = grant(control, 2, begun, wish) else {
            panic!("there is no process");
        };
        let there = started(requested, begun, 9);
        assert_eq!((there.pid, there.version, there.fresh), (9, now, false));
        assert!(matches!(grant(control, 2, there, wish), Grant::Retire(_)));
    }

    /// A replacement was aimed at the slot beside the owner's, which a handover gave the stage meanwhile.
    #[test]
    fn an_owner_of_another_version_than_wished_for_is_not_the_one() {
        let control = Control::held(2, 5);
        let owner = Slot {
            pid: 9,
            wanted: true,
            ..Slot::default()
        };
        let wish = |version| Wish {
            announced: true,
            fresh: true,
            version,
        };
        assert_eq!(grant(control, 2, owner, wish(owner.version)), Grant::Already);
        assert_eq!(grant(control, 2, owner, wish(owner.version.next(1))), Grant::Busy);
    }

    #[test]
    fn words_say_what_was_said() {
        let version = Version {
            number: 65_535,
            program: 200,
        };
        let slot = Slot {
            pid: 4_194_304,
            wanted: true,
            fresh: true,
            version,
        };
        assert_eq!(Slot::of(slot.word()), slot);
        let versions = Versions {
            now: version.next(3),
            before: version,
        };
        assert_eq!(Versions::of(versions.word()), versions);
        assert!(version.next(3).is_after(version), "numbers begin again");
    }

    #[test]
    fn a_version_that_fails_gives_way_to_the_one_before() {
        let old = Versions::default();
        let new = old.taken_by(old.now.next(1));
        assert_eq!((new.now.program, new.before.program), (1, 0));
        assert!(new.can_go_back() && new.back().now.is_after(new.now));
        assert_eq!((new.back().now.program, new.back().can_go_back()), (0, false));
    }
}

//! The life of a stage's processes: which of them waits, prepares itself, carries out steps or ends; and what becomes
//! of the stage when one of them has ended.
//!
//! **Terms.** A *slot* is a place for a process of a stage, on one core. A stage is of one *version*: a program, and
//! how often the stage was replaced before. A process of another version is stale and ends, but for the one that is
//! about to bring the next version. **Method.** Values in, values out: the process, its worker and the caller of a
//! hand-over each read the same words ([`Control`], [`Slot`], [`Versions`]) and find here what to do. They read at
//! different times, so each of these answers must be right for words that change right after. The tests below play that
//! out.

use crate::control::{Control, Phase};

/// Which program a process of a stage runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// How often the stage was replaced until then; begins again after 65,535.
    pub number: u16,
    /// The program, by its number among those of the pipeline; 0: the one that started the pipeline.
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

    /// The version after this one.
    pub fn next(self, program: u8) -> Version {
        Version {
            number: self.number.wrapping_add(1),
            program,
        }
    }

    /// Whether this one comes after `other`.
    pub fn is_after(self, other: Version) -> bool {
        (self.number.wrapping_sub(other.number) as i16) > 0
    }
}

/// The version of a stage, and the one that it had before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// In force.
    pub now: Version,
    /// Goes on where the one in force dies again and again before its first step.
    pub before: Version,
}

impl Versions {
    /// The word that says so.
    pub fn word(self) -> u64 {
        self.now.word() | self.before.word() << 24
    }

    /// What the word says.
    pub fn of(word: u64) -> Versions {
        Versions {
            now: Version::of(word),
            before: Version::of(word >> 24),
        }
    }

    /// A process of `version` has taken the stage.
    pub fn taken_by(self, version: Version) -> Versions {
        // Of two replacements at the same time both have the same number: the last one counts.
        if version == self.now || self.now.is_after(version) {
            return self;
        }
        Versions {
            now: version,
            before: self.now,
        }
    }

    /// The one before again, as a version of its own: processes of the one that failed are stale.
    pub fn back(self) -> Versions {
        let now = self.now.next(self.before.program);
        Versions { now, before: now }
    }

    /// Whether there is one to go back to.
    pub fn can_go_back(self) -> bool {
        self.before != self.now
    }
}

/// What is said of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Its process; 0: none.
    pub pid: i32,
    /// There is to be one.
    pub wanted: bool,
    /// It is started to take the place of the process that has the stage, as a program that is executed.
    pub fresh: bool,
    /// What it runs.
    pub version: Version,
}

impl Slot {
    /// What the word says.
    pub fn of(word: u64) -> Slot {
        Slot {
            pid: word as u32 as i32,
            wanted: word >> 32 & 1 == 1,
            fresh: word >> 33 & 1 == 1,
            version: Version::of(word >> 34),
        }
    }

    /// The word that says so.
    pub fn word(self) -> u64 {
        let flags = u64::from(self.wanted) << 32 | u64::from(self.fresh) << 33;
        u64::from(self.pid as u32) | flags | self.version.word() << 34
    }

    /// Whether its process is a program that is executed, in place of a fork of the worker.
    pub fn is_executed(self) -> bool {
        self.fresh || self.version.program != 0
    }

    /// Whether its process may have the stage, where `now` is in force: it is of that version, or brings the next one.
    fn is_current(self, now: Version) -> bool {
        self.version == now || self.version.is_after(now)
    }
}

/// What a process does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It has the stage.
    Steps,
    /// It gives the stage away.
    Yields,
    /// It reads what it will need.
    Prepares,
    /// It sleeps until its bell rings.
    Waits,
    /// It is not needed.
    Ends,
}

/// What the process in `slot` does next.
pub fn doing(control: Control, slot: u8, said: Slot, now: Version) -> Doing {
    if control.runs(slot) && !said.is_current(now) {
        // The next version came while this one was on its way: the stage starts again as that one.
        Doing::Ends
    } else if control.runs(slot) {
        Doing::Steps
    } else if control.owner == slot {
        // Asked before it was awake: it has the stage, and has done no step of it.
        Doing::Yields
    } else if control.target == slot {
        // A target is needed, whether it was wanted before or not: it has said that it is there.
        match control.phase {
            Phase::Announced => Doing::Prepares,
            Phase::Asked | Phase::Held => Doing::Waits,
        }
    } else if said.wanted && said.is_current(now) {
        Doing::Waits
    } else {
        Doing::Ends
    }
}

/// How a process is to be started in `slot`; `None`: there is one, or none is wanted.
///
/// The owner is wanted always: the process that gave the stage away may have died before it could say so.
pub fn starts(control: Control, slot: u8, said: Slot, now: Version) -> Option<Slot> {
    let wanted = said.wanted || control.owner == slot;
    let version = if said.is_current(now) { said.version } else { now };
    (wanted && said.pid == 0).then_some(Slot {
        wanted: true,
        version,
        ..said
    })
}

/// Why a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// It found that it is [not needed](Doing::Ends), and may have been asked for since.
    NotNeeded,
    /// It does not read the stage's state.
    Refused,
    /// Anything else.
    Died,
}

/// The control word once the process in `slot` has ended; `None`: it stays. To be written before the slot is said to
/// be empty: else it would call off a hand-over to the process that comes next. `spare` may have the stage.
pub fn buried(control: Control, slot: u8, how: Death, spare: u8) -> Option<Control> {
    // Asked for after it had looked for the last time: the next process in the slot takes the stage.
    let asked_since = how == Death::NotNeeded && control.owner != slot;
    if asked_since {
        None
    } else {
        control.died(slot, Some(spare))
    }
}

/// The control word once `said` is said of the slot, which is empty; `None`: it stays. A process that was announced
/// between that and the burial was the one that has ended. Where none follows, the hand-over is called off.
pub fn emptied(control: Control, slot: u8, said: Slot) -> Option<Control> {
    let none_follows = control.target == slot && !said.wanted;
    if none_follows { control.call_off() } else { None }
}

/// What is said of a slot once its process has ended, and was [`buried`]. `owned`: it had the stage.
pub fn after_end(said: Slot, owned: bool, how: Death, now: Version) -> Slot {
    // One that was started to take the stage over, and has not, is not tried again.
    let given_up = match how {
        Death::NotNeeded => false,
        Death::Refused => true,
        Death::Died => said.fresh && !owned,
    };
    let wanted = said.wanted && !given_up;
    Slot {
        pid: 0,
        wanted,
        // Asked for again after it had looked for the last time.
        fresh: said.fresh && wanted && how == Death::NotNeeded,
        version: if said.is_current(now) && how == Death::NotNeeded {
            said.version
        } else {
            now
        },
    }
}

/// Whether the process of a slot may go on with a stage whose process has died.
pub fn may_go_on(said: Slot, now: Version) -> bool {
    said.pid != 0 && said.version == now
}

/// How a stage is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The process that takes it prepares itself first.
    pub announced: bool,
    /// It is started for this.
    pub fresh: bool,
    /// What it runs.
    pub version: Version,
}

/// What comes of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// The target has the stage.
    Already,
    /// Another hand-over is under way.
    Busy,
    /// A process has to end first that sleeps in the slot: say this of it, and ring.
    Retire(Slot),
    /// No process is in the slot: say this of it, and ring its worker.
    Start(Slot),
    /// Say this of the slot, and change the control word so.
    Go(Slot, Control),
}

/// What comes of the wish that the process in `target` has the stage.
pub fn grant(control: Control, target: u8, said: Slot, wish: Wish) -> Granted {
    if control.phase != Phase::Held {
        return Granted::Busy;
    }
    if control.owner == target {
        return Granted::Already;
    }
    let wanted = Slot {
        wanted: true,
        fresh: wish.fresh,
        version: wish.version,
        ..said
    };
    let there = said.pid != 0;
    // Started by the process that yields.
    let late = wish.fresh && !wish.announced;
    if there && (said.version != wish.version || late || wish.fresh && !said.fresh) {
        return Granted::Retire(Slot { wanted: false, ..said });
    }
    let to = match wish.announced {
        true => control.announce(target),
        false => control.ask(target),
    };
    match to {
        None => Granted::Busy,
        Some(to) if late => Granted::Go(
            Slot {
                wanted: false,
                ..wanted
            },
            to,
        ),
        Some(to) if there => Granted::Go(wanted, to),
        Some(_) => Granted::Start(wanted),
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
        about_to: Option<Doing>,
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

        fn doing(&self, slot: u8) -> Doing {
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
                Some(Doing::Steps) if self.control.runs(slot) => {
                    let version = self.slots[usize::from(slot)].version;
                    if self.doing(slot) == Doing::Ends || self.refuses(slot) {
                        let refused = self.refuses(slot);
                        ends(self, refused);
                    } else {
                        self.versions = self.versions.taken_by(version);
                    }
                }
                Some(Doing::Yields) => self.control = self.control.yields(slot).unwrap_or(self.control),
                Some(Doing::Prepares) if self.refuses(slot) => {
                    self.control = self.control.call_off().unwrap_or(self.control);
                    ends(self, true);
                }
                Some(Doing::Prepares) => self.control = self.control.ready(slot).unwrap_or(self.control),
                Some(Doing::Ends) => ends(self, false),
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
                Granted::Already | Granted::Busy => {}
                Granted::Retire(slot) | Granted::Start(slot) => *said = slot,
                Granted::Go(slot, control) => {
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
        #![proptest_config(ProptestConfig::with_cases(20_000))]

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

//! Turns the ways and the bandwidth of cores: a group of ours for each class, with the cores that have it.
//!
//! **Method.** Each core with a setting gets a group `punctual-PROCESS-NUMBER`; while there are fewer classes than such
//! cores, those with equal settings share one. Threads are never moved: one that another program has put into a group
//! keeps its class. All groups are made before any setting changes, so that a lack of classes changes nothing. Each
//! write is read back, since the kernel rounds, and a write that changes nothing is not made. The journal records a
//! group before it is made; removing it gives its cores back to the default group, which is never changed.
//!
//! All accesses go through one function, so that a model of the kernel can stand in for it in tests, and a list of what
//! would be done for a dry run. [`Partitions::check`] compares the groups with what was read back last; once another
//! program has changed them, or resctrl was unmounted, every setting is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use punctual_custody::journal::Journal;
use punctual_custody::tree::{folders_in, read_trimmed, writable, write_existing};
use punctual_units::CoreId;

use super::super::cores::parse_list;
use super::super::{KernelTree, refused};
use super::layout::ids;
use super::{CORES, MOUNT, PREFIX, ResctrlLayout, SCHEMATA, STATUS};
use crate::{KnobId, KnobOffer, Plan, Provenance, Range, Refusal, Value};

/// Subject of refusals.
const WHAT: &str = "dividing caches and memory bandwidth (resctrl)";

/// An access to resctrl; paths are relative to its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResctrlAccess<'a> {
    /// Lists the groups but the default one, a name in each line.
    List,
    /// Makes a group, which the journal records before.
    Make(&'a str),
    /// Removes a group that was just made.
    Remove(&'a str),
    /// Reads a file, without white space at its end.
    Read(&'a str),
    /// Writes a text into a file.
    Write(&'a str, &'a str),
}

/// Function that carries accesses out.
type Carry<'c> = dyn FnMut(ResctrlAccess<'_>) -> Result<String, Refusal> + 'c;

/// Ways and bandwidth of cores.
#[derive(Debug)]
pub struct Partitions {
    layout: ResctrlLayout,
    process: u32,
    /// Settings of the cores that have some.
    wishes: BTreeMap<CoreId, Wish>,
    classes: Vec<Class>,
    /// Why nothing is set any more.
    lost: Option<Refusal>,
}

/// Setting of a core; `None`: everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    ways: Option<u64>,
    parts: Option<u8>,
}

/// A group of ours.
#[derive(Debug, Default)]
struct Class {
    name: String,
    cores: Vec<CoreId>,
    /// The text that was written last; empty: none.
    asked: String,
    /// Text of `schemata` and `cpus_list`, read after the last write.
    shown: [String; 2],
}

impl Class {
    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }
}

impl Partitions {
    /// The knobs of the resctrl that is mounted in `tree`, for this user to turn. Changes nothing.
    ///
    /// # Errors
    /// Those of [`seen`](Partitions::seen), and a [`Refusal`] if this user may not make groups or is in one.
    pub fn open(tree: &KernelTree) -> Result<Partitions, Refusal> {
        let partitions = Partitions::seen(tree)?;
        writable(&tree.path(MOUNT)).map_err(|why| {
            let remedy = match why.raw_os_error() {
                Some(libc::EROFS) => "mount it writable: containers see /sys read-only unless told otherwise",
                _ => "run as root",
            };
            refused(WHAT, why, remedy)
        })?;
        // A thread in a group of its own has that group's class, whatever its core has.
        let own = tree.text("/proc/self/cpu_resctrl_groups");
        let own = own.lines().find_map(|line| line.strip_prefix("res:"));
        let own = own.unwrap_or_default();
        if !own.trim_matches('/').is_empty() {
            let why = format!("this process is in the group {own}, so it has the ways of that group");
            let remedy = format!("move it to the default group: echo PID > {MOUNT}/tasks");
            return Err(refused(WHAT, why, remedy));
        }
        Ok(partitions)
    }

    /// The knobs of the resctrl that is mounted in `tree`, which any user may look at.
    ///
    /// # Errors
    /// [`Refusal`] if it is not mounted, or divides nothing.
    pub fn seen(tree: &KernelTree) -> Result<Partitions, Refusal> {
        super::look(tree).map_err(|lack| refused(WHAT, &lack, lack.remedy()))?;
        Ok(Partitions::of(ResctrlLayout::read(tree)?))
    }

    /// The knobs of such a resctrl.
    pub(super) fn of(layout: ResctrlLayout) -> Partitions {
        Partitions {
            layout,
            process: std::process::id(),
            wishes: BTreeMap::new(),
            classes: Vec::new(),
            lost: None,
        }
    }

    /// Resources that are divided, and in which units.
    pub fn layout(&self) -> &ResctrlLayout {
        &self.layout
    }

    /// The knobs of `cores`.
    pub fn offers(&self, cores: &[CoreId]) -> Vec<KnobOffer> {
        let (ways, bandwidth) = (self.layout.ways.as_ref(), self.layout.bandwidth.as_ref().ok());
        let of_core = |core: &CoreId| {
            let ways = ways.filter(|ways| ways.domains.contains_key(core));
            let ways = ways.map(|ways| (KnobId::Ways(*core), Range::Ways(ways.count(), Provenance::Real)));
            let bandwidth = bandwidth.filter(|bandwidth| bandwidth.domains.contains_key(core));
            let parts = |parts| (KnobId::Bandwidth(*core), Range::Parts(parts, Provenance::Real));
            let offers = ways
                .into_iter()
                .chain(bandwidth.map(|bandwidth| parts(bandwidth.parts())));
            offers.map(|(knob, range)| KnobOffer { knob, range })
        };
        cores.iter().flat_map(of_core).collect()
    }

    /// Sets the ways and bandwidths of `plan`, and returns the value read back for each, or its refusal; other knobs of
    /// the plan are passed over.
    pub fn apply(&mut self, plan: &Plan, carry: &mut Carry<'_>) -> Vec<(KnobId, Result<Value, Refusal>)> {
        let mut wishes = self.wishes.clone();
        let mut results: Vec<(KnobId, Result<CoreId, Refusal>)> = Vec::new();
        for (knob, value) in plan.iter() {
            let (KnobId::Ways(core) | KnobId::Bandwidth(core)) = knob else {
                continue;
            };
            let wish = self.wished(core, wishes.get(&core).copied().unwrap_or_default(), knob, value);
            let taken = wish.map(|wish| {
                wishes.insert(core, wish);
                core
            });
            results.push((knob, taken));
        }
        let failures = match &self.lost {
            _ if !results.iter().any(|(_, result)| result.is_ok()) => BTreeMap::new(),
            Some(lost) => wishes.keys().map(|core| (*core, lost.clone())).collect(),
            None => self.carry_out(&wishes, carry),
        };
        let obtained = |(knob, result): (KnobId, Result<CoreId, Refusal>)| {
            let value = result.and_then(|core| match failures.get(&core) {
                Some(refusal) => Err(refusal.clone()),
                None => Ok(self.obtained(knob, core)),
            });
            (knob, value)
        };
        results.into_iter().map(obtained).collect()
    }

    /// The setting of `core` with `value` for `knob`. The kernel itself refuses masks that it does not take.
    fn wished(&self, core: CoreId, now: Wish, knob: KnobId, value: Value) -> Result<Wish, Refusal> {
        let refuse = |why: String| refused(format!("setting the {knob} to {value}"), why, "ask for what is offered");
        let none = || refuse("this machine has no such knob".into());
        match (knob, value, &self.layout.ways, &self.layout.bandwidth) {
            (KnobId::Ways(_), Value::Ways(ways), Some(cache), _) if cache.domains.contains_key(&core) => {
                if ways == 0 || ways > cache.ways(cache.usable) {
                    return Err(refuse(format!("there are {} ways", cache.count())));
                }
                Ok(Wish {
                    ways: Some(ways),
                    ..now
                })
            }
            (KnobId::Bandwidth(_), Value::Parts(parts), _, Ok(bandwidth)) if bandwidth.domains.contains_key(&core) => {
                if !(1..=bandwidth.parts()).contains(&parts) {
                    return Err(refuse(format!("there are 1 to {} partitions", bandwidth.parts())));
                }
                let parts = Some(parts);
                Ok(Wish { parts, ..now })
            }
            (KnobId::Bandwidth(_), Value::Parts(_), _, Err(refusal)) => Err(refusal.clone()),
            _ => Err(none()),
        }
    }

    /// Brings the groups to `wishes`; returns the cores that keep their former setting, with the reason.
    fn carry_out(&mut self, wishes: &BTreeMap<CoreId, Wish>, carry: &mut Carry<'_>) -> BTreeMap<CoreId, Refusal> {
        let for_all = |refusal: Refusal| wishes.keys().map(|core| (*core, refusal.clone())).collect();
        let targets = match self.make_classes(wishes, carry) {
            Ok(targets) => targets,
            Err(refusal) => return for_all(refusal),
        };
        let former: Vec<String> = self.classes.iter().map(|class| class.asked.clone()).collect();
        let shares = |cores: &[CoreId]| cores.len() > 1;
        let is_shared = targets.iter().any(|(_, (_, cores))| shares(cores));
        let is_shared = is_shared || self.classes.iter().any(|class| shares(&class.cores));
        let mut failures = BTreeMap::new();
        let mut set = Vec::new();
        for (place, (wish, cores)) in targets {
            let text = self.text(wish, &cores);
            let done = self.refuse_cores_of_others(place, &cores, carry);
            match done.and_then(|()| self.set_values(place, text, carry)) {
                Ok(()) => set.push((place, wish, cores)),
                // Cores change classes below: none may be left without the one that it had.
                Err(refusal) if is_shared => {
                    for (place, text) in former.into_iter().enumerate().filter(|(_, text)| !text.is_empty()) {
                        // The kernel has taken this text before; a failure shows at the next check.
                        let _ = self.set_values(place, text, carry);
                    }
                    return for_all(refusal);
                }
                Err(refusal) => failures.extend(cores.iter().map(|core| (*core, refusal.clone()))),
            }
        }
        for (place, wish, cores) in set {
            match self.set_cores(place, &cores, carry) {
                Ok(()) => self.wishes.extend(cores.iter().map(|core| (*core, wish))),
                Err(refusal) => failures.extend(cores.iter().map(|core| (*core, refusal.clone()))),
            }
        }
        failures
    }

    /// Makes the groups that are missing, and returns for each wanted class the index of its group. If one cannot be
    /// made, none is.
    fn make_classes(&mut self, wishes: &BTreeMap<CoreId, Wish>, carry: &mut Carry<'_>) -> Result<Targets, Refusal> {
        let made = self.classes.len();
        let mut others = Vec::new();
        let mut room = made;
        if wishes.len() > made {
            let listed = carry(ResctrlAccess::List)?;
            let is_ours = |name: &&str| self.classes.iter().any(|class| class.name == **name);
            others = listed
                .lines()
                .filter(|name| !is_ours(name))
                .map(str::to_owned)
                .collect();
            let taken = others.len() + 1; // and the default one
            room = (self.layout.classes as usize).saturating_sub(taken).max(made);
        }
        let wanted = clustered(wishes, room);
        while self.classes.len() < wanted.len() {
            let names = (0..).map(|number| format!("{PREFIX}{}-{number}", self.process));
            let is_free =
                |name: &String| !others.contains(name) && self.classes.iter().all(|class| class.name != *name);
            let name = { names }.find(is_free).unwrap_or_default();
            if let Err(refusal) = tried(carry, ResctrlAccess::Make(&name)) {
                for class in self.classes.drain(made..) {
                    // A group that stays is in the ledger, and is removed at the end.
                    let _ = carry(ResctrlAccess::Remove(&class.name));
                }
                return Err(with_remedy(refusal, &others));
            }
            self.classes.push(Class {
                name,
                ..Class::default()
            });
        }
        let mut free: BTreeSet<usize> = (0..self.classes.len()).collect();
        let mut targets = Vec::new();
        // A class keeps the group that has one of its cores, so that few cores change groups.
        let (mut kept, mut rest) = (Vec::new(), Vec::new());
        for (wish, cores) in wanted {
            let has_one = |place: &&usize| self.classes[**place].cores.iter().any(|core| cores.contains(core));
            match free.iter().find(has_one).copied() {
                Some(place) => {
                    free.remove(&place);
                    kept.push((place, (wish, cores)));
                }
                None => rest.push((wish, cores)),
            }
        }
        targets.append(&mut kept);
        targets.extend(free.into_iter().zip(rest));
        Ok(targets)
    }

    /// Gives the group at `place` these values, unless it has them, and reads them back.
    fn set_values(&mut self, place: usize, text: String, carry: &mut Carry<'_>) -> Result<(), Refusal> {
        if self.classes[place].asked != text {
            let schemata = self.classes[place].file(SCHEMATA);
            tried(carry, ResctrlAccess::Write(&schemata, &text))?;
            self.classes[place].asked = text;
            self.classes[place].shown[0] = carry(ResctrlAccess::Read(&schemata))?;
        }
        Ok(())
    }

    /// Gives the group at `place` these cores, unless it has them, and reads the cores of all groups back.
    fn set_cores(&mut self, place: usize, cores: &[CoreId], carry: &mut Carry<'_>) -> Result<(), Refusal> {
        if self.classes[place].cores != cores {
            let list = self.classes[place].file(CORES);
            let numbers: Vec<String> = cores.iter().map(CoreId::to_string).collect();
            tried(carry, ResctrlAccess::Write(&list, &(numbers.join(",") + "\n")))?;
            // The kernel has taken them out of the groups where they were.
            for class in &mut self.classes {
                class.cores.retain(|core| !cores.contains(core));
            }
            self.classes[place].cores = cores.to_vec();
            self.show(carry)?;
        }
        Ok(())
    }

    /// Reads the cores of all groups of ours.
    fn show(&mut self, carry: &mut Carry<'_>) -> Result<(), Refusal> {
        for class in &mut self.classes {
            class.shown[1] = carry(ResctrlAccess::Read(&class.file(CORES)))?;
        }
        Ok(())
    }

    /// Refuses cores that are in groups of other programs: the kernel would take them away from there.
    fn refuse_cores_of_others(&self, place: usize, cores: &[CoreId], carry: &mut Carry<'_>) -> Result<(), Refusal> {
        if self.classes[place].cores == cores {
            return Ok(());
        }
        for name in carry(ResctrlAccess::List)?.lines() {
            if self.classes.iter().any(|class| class.name == name) {
                continue;
            }
            let its = parse_list(&carry(ResctrlAccess::Read(&format!("{name}/{CORES}"))).unwrap_or_default());
            if let Some(core) = cores.iter().find(|core| its.contains(core)) {
                let why = format!("the core is in the group {name} of another program");
                let remedy = format!("end that program, or if it has ended: rmdir {MOUNT}/{name}");
                return Err(refused(format!("a class for core {core} (resctrl)"), why, remedy));
            }
        }
        Ok(())
    }

    /// The lines of `schemata` for `wish`, in the domains of `cores`.
    fn text(&self, wish: Wish, cores: &[CoreId]) -> String {
        let mut text = String::new();
        let mut add = |line: &str, domains: &BTreeMap<CoreId, u32>, value: &str| {
            let ids: BTreeSet<u32> = cores.iter().filter_map(|core| domains.get(core).copied()).collect();
            let settings: Vec<String> = ids.iter().map(|id| format!("{id}={value}")).collect();
            if !settings.is_empty() {
                text.push_str(&format!("{line}:{}\n", settings.join(";")));
            }
        };
        if let Some(ways) = &self.layout.ways {
            let mask = format!("{:x}", ways.mask(wish.ways));
            { ways.lines.iter() }.for_each(|line| add(line, &ways.domains, &mask));
        }
        if let Ok(bandwidth) = &self.layout.bandwidth {
            let units = bandwidth.units(wish.parts).to_string();
            add(bandwidth.line, &bandwidth.domains, &units);
        }
        text
    }

    /// The value of `knob` that was read back last.
    fn obtained(&self, knob: KnobId, core: CoreId) -> Value {
        let class = self.classes.iter().find(|class| class.cores.contains(&core));
        let shown = class.map_or("", |class| class.shown[0].as_str());
        let value = |line: &str, domains: &BTreeMap<CoreId, u32>| {
            let mut found = ids(shown, line).into_iter();
            found
                .find(|(id, _)| domains.get(&core) == Some(id))
                .map(|(_, value)| value)
        };
        match (knob, &self.layout.ways, &self.layout.bandwidth) {
            (KnobId::Ways(_), Some(ways), _) => {
                let mask = value(ways.lines[0], &ways.domains);
                let mask = mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
                Value::Ways(mask.map_or(0, |mask| ways.ways(mask)))
            }
            (_, _, Ok(bandwidth)) => {
                let units = value(bandwidth.line, &bandwidth.domains).and_then(|units| units.parse().ok());
                Value::Parts(units.map_or(0, |units| bandwidth.of_units(units)))
            }
            _ => Value::Parts(0),
        }
    }

    /// Compares the groups with what was read back last. Once another program has changed or removed one, or resctrl
    /// was unmounted, returns the reason, and every setting is refused from then on: remove the groups that are left.
    pub fn check(&mut self, carry: &mut Carry<'_>) -> Option<Refusal> {
        if self.lost.is_some() {
            return None;
        }
        let differs = |class: &Class, carry: &mut Carry<'_>| {
            let files = [SCHEMATA, CORES].into_iter().zip(&class.shown);
            for (file, shown) in files.filter(|_| !class.asked.is_empty()) {
                let path = class.file(file);
                match carry(ResctrlAccess::Read(&path)) {
                    Ok(now) if now == *shown => {}
                    Ok(now) => {
                        let now = one_line(&now);
                        return Some(match (file, now.is_empty()) {
                            (CORES, true) => {
                                format!("{MOUNT}/{path} has no core any more: they went offline, or elsewhere")
                            }
                            _ => {
                                format!("another program, or a core that went offline, changed {MOUNT}/{path} to {now}")
                            }
                        });
                    }
                    Err(refusal) => return Some(format!("{MOUNT}/{path} is gone: {}", refusal.why)),
                }
            }
            None
        };
        let why = self.classes.iter().find_map(|class| differs(class, carry))?;
        let remedy = "all cores are in the default group again; keep cores online, stop the other program, then start \
            this one again";
        let refusal = refused(WHAT, why, remedy);
        self.forget();
        self.lost = Some(refusal.clone());
        Some(refusal)
    }

    /// Why nothing is set any more; `None`: it is.
    pub fn lost(&self) -> Option<&Refusal> {
        self.lost.as_ref()
    }

    /// States that the groups were removed.
    pub fn forget(&mut self) {
        self.wishes.clear();
        self.classes.clear();
    }
}

/// The index of the group of each class, with the setting and the cores of the class.
type Targets = Vec<(usize, (Wish, Vec<CoreId>))>;

/// The classes for `wishes`: one for each core, or for each setting if there is room for fewer only.
fn clustered(wishes: &BTreeMap<CoreId, Wish>, room: usize) -> Vec<(Wish, Vec<CoreId>)> {
    if wishes.len() <= room {
        return wishes.iter().map(|(core, wish)| (*wish, vec![*core])).collect();
    }
    let mut classes: BTreeMap<Wish, Vec<CoreId>> = BTreeMap::new();
    for (core, wish) in wishes {
        classes.entry(*wish).or_default().push(*core);
    }
    classes.into_iter().collect()
}

/// Carries an access out. A refusal gets the kernel's words: all lines of `last_cmd_status` that this access has added,
/// because only writes to `schemata` clear it.
pub(super) fn tried(carry: &mut Carry<'_>, access: ResctrlAccess<'_>) -> Result<String, Refusal> {
    let status = |carry: &mut Carry<'_>| match carry(ResctrlAccess::Read(STATUS)) {
        Ok(words) if words.trim() != "ok" => words,
        _ => String::new(),
    };
    let clears = matches!(access, ResctrlAccess::Write(file, _) if file.ends_with(SCHEMATA));
    let before = if clears { String::new() } else { status(carry) };
    carry(access).map_err(|refusal| {
        let after = status(carry);
        let words = one_line(after.strip_prefix(&before).unwrap_or(&after));
        let why = match words.is_empty() {
            true => refusal.why,
            false => format!("{words} ({})", refusal.why),
        };
        Refusal { why, ..refusal }
    })
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(", ")
}

/// The refusal of a group, with the groups of others that may be removed.
fn with_remedy(refusal: Refusal, others: &[String]) -> Refusal {
    if others.is_empty() {
        return refusal;
    }
    let remedy = format!(
        "ask for fewer different settings, or free a class: punctual doctor lists the owners of {}",
        others.join(", ")
    );
    Refusal { remedy, ..refusal }
}

/// Carries accesses out on the resctrl in `tree`; `journal` records each group before it is made.
pub(in super::super) fn carry<'c>(
    tree: &'c KernelTree,
    journal: &'c Journal,
) -> impl FnMut(ResctrlAccess<'_>) -> Result<String, Refusal> + 'c {
    move |access| {
        let place = |path: &str| tree.path(MOUNT).join(path);
        let refuse = |what: String, why: io::Error| {
            let remedy = match why.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => "run as root",
                Some(libc::ENOENT) => "mount resctrl again, and start this program again",
                _ => "ask for what is offered: punctual doctor",
            };
            refused(what, why, remedy)
        };
        match access {
            ResctrlAccess::List => Ok(names(tree).join("\n")),
            // The journal would take another program's over.
            ResctrlAccess::Make(name) if place(name).exists() => {
                let why = io::Error::from_raw_os_error(libc::EEXIST);
                Err(refuse(format!("making {MOUNT}/{name}"), why))
            }
            ResctrlAccess::Make(name) => journal.make_own_dir(&place(name)).map(|()| String::new()),
            ResctrlAccess::Remove(name) => {
                let left = journal.restore_below(&place(name)).into_iter().next();
                left.map_or(Ok(String::new()), Err)
            }
            ResctrlAccess::Read(path) => {
                read_trimmed(&place(path)).map_err(|why| refuse(format!("reading {MOUNT}/{path}"), why))
            }
            ResctrlAccess::Write(path, text) => {
                let what = || format!("writing '{}' to {MOUNT}/{path}", one_line(text));
                let written = write_existing(&place(path), text);
                written.map(|()| String::new()).map_err(|why| refuse(what(), why))
            }
        }
    }
}

/// Removes the groups that `journal` has made. One that cannot be removed stays recorded and is tried again at the end.
pub(in super::super) fn remove(tree: &KernelTree, journal: &Journal) {
    let _ = journal.restore_below(&tree.path(MOUNT));
}

/// Names of the groups but the default one.
pub(super) fn names(tree: &KernelTree) -> Vec<String> {
    let folders = folders_in(&tree.path(MOUNT));
    let names = folders.filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
    let mut names: Vec<String> = names
        .filter(|name| !["info", "mon_groups", "mon_data"].contains(&name.as_str()))
        .collect();
    names.sort_unstable();
    names
}

/// Accesses that write, as commands for a person, in place of carrying them out. Reading shows what would be there.
#[derive(Debug, Default)]
pub struct Rehearsal {
    /// The commands, in order.
    pub commands: Vec<String>,
    written: BTreeMap<String, String>,
}

impl Rehearsal {
    /// Notes an access; what exists is read from `tree`.
    ///
    /// # Errors
    /// Never: the kernel alone knows what it would refuse.
    pub fn note(&mut self, tree: &KernelTree, access: ResctrlAccess<'_>) -> Result<String, Refusal> {
        match access {
            ResctrlAccess::List => return Ok(names(tree).join("\n")),
            ResctrlAccess::Make(name) => self.commands.push(format!("mkdir {MOUNT}/{name}")),
            ResctrlAccess::Remove(name) => self.commands.push(format!("rmdir {MOUNT}/{name}")),
            ResctrlAccess::Read(path) => {
                let written = self.written.get(path).cloned();
                return Ok(written.unwrap_or_else(|| tree.text(format!("{MOUNT}/{path}"))));
            }
            ResctrlAccess::Write(path, text) => {
                self.written.insert(path.into(), text.into());
                let shown = text.trim_end().replace('\n', "\\n");
                self.commands.push(format!("printf '{shown}\\n' > {MOUNT}/{path}"));
            }
        }
        Ok(String::new())
    }
}

//! The table against a model: any number of holders that come, claim, change, leave and die, in any order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use punctual_units::{CoreId, Nanos};

use super::super::core_mask::CoreMask;
use super::super::undo::Errno;
use super::*;

/// Cores of the machine of the model.
const MACHINE: u32 = 6;
/// Its things: lists of cores, masks of cores, plain values, lists to which cores are added, groups.
const LISTS: usize = 3;
const WORDS: usize = 2;
const PLAIN: usize = 2;

/// An empty table.
fn table() -> Box<Table> {
    // SAFETY: all zeros is an empty table.
    unsafe { zeroed() }
}

fn mask(cores: impl IntoIterator<Item = u32>) -> CoreMask {
    cores.into_iter().map(CoreId).collect()
}

fn machine() -> CoreMask {
    mask(0..MACHINE)
}

fn enter(table: &mut Table, pid: i32) -> HolderId {
    let entrant = Entrant {
        pid,
        started: 1,
        name: b"model",
    };
    table.enter(entrant).unwrap()
}

/// The machine of the model: its files, by path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Files(BTreeMap<String, String>);

impl Files {
    fn new() -> Files {
        let lists = (0..LISTS).map(|number| {
            let cores = ["0-5", "1-2", "0,3-5"][number % 3];
            (format!("/list{number}"), cores.to_owned())
        });
        let words = (0..WORDS).map(|number| (format!("/words{number}"), ["3f", "6"][number % 2].to_owned()));
        let plain = (0..PLAIN).map(|number| (format!("/plain{number}"), "found".to_owned()));
        let on = [("/on".to_owned(), "\n".to_owned())];
        Files(lists.chain(words).chain(plain).chain(on).collect())
    }

    fn act(&mut self, step: LedgerAction<'_>) -> Result<(), Errno> {
        match step {
            LedgerAction::Keep => {}
            LedgerAction::Write { path, text, .. } => {
                let text = String::from_utf8(text.to_vec()).unwrap();
                let file = self.0.get_mut(path.to_str().unwrap());
                *file.ok_or(libc::ENOENT)? = text;
            }
            LedgerAction::RemoveDir { path } => {
                self.0.remove(path.to_str().unwrap()).ok_or(libc::ENOENT)?;
            }
            other => panic!("{other:?} was never asked for"),
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Enter,
    /// A holder takes a core and keeps everything off it.
    Take(usize, u32),
    Write(usize, usize, u8),
    MakeDir(usize),
    /// A holder leaves; so many of its things are given back before it dies, and the next one recovers.
    Leave(usize, usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let holder = 0..8usize;
    let deed = prop_oneof![
        2 => Just(Deed::Enter),
        4 => (holder.clone(), 0..MACHINE).prop_map(|(id, core)| Deed::Take(id, core)),
        4 => (holder.clone(), 0..PLAIN, 0..4u8).prop_map(|(id, file, value)| Deed::Write(id, file, value)),
        1 => holder.clone().prop_map(Deed::MakeDir),
        3 => (holder, 0..12usize).prop_map(|(id, steps)| Deed::Leave(id, steps)),
    ];
    prop::collection::vec(deed, 1..60)
}

/// A holder as the model knows it.
#[derive(Default)]
struct ModelHolder {
    cores: BTreeSet<u32>,
    /// By file: when it was wished for, and the value.
    wishes: BTreeMap<usize, (usize, String)>,
    group: bool,
}

/// The ledger and the model, side by side.
struct Pair {
    table: Box<Table>,
    files: Files,
    holders: Vec<(HolderId, ModelHolder)>,
    time: usize,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            table: table(),
            files: Files::new(),
            holders: Vec::new(),
            time: 0,
        }
    }

    fn join(&mut self, id: HolderId, kind: Kind, path: &str, wish: Option<&str>) {
        let original = self.files.0.get(path).cloned().unwrap_or_default();
        let change = { &mut self.table }.join(id, kind, path.as_bytes(), original.as_bytes());
        let change = change.unwrap();
        if let Some(wish) = wish {
            assert!(self.table.wish(id, change, wish.as_bytes()));
        }
        let files = &mut self.files;
        self.table.carry_out(change, &mut |step| files.act(step)).unwrap();
    }

    fn take(&mut self, place: usize, core: u32) {
        let id = self.holders[place].0;
        let free = !self.holders.iter().any(|(_, holder)| holder.cores.contains(&core));
        let claimed: BTreeSet<u32> = self.holders.iter().flat_map(|(_, it)| it.cores.clone()).collect();
        let own = self.holders[place].1.cores.contains(&core);
        let left = claimed.len() + usize::from(free) < MACHINE as usize;
        let answer = self.table.claim(id, &mask([core]), &machine());
        assert_eq!(answer.is_ok(), (free || own) && left, "{answer:?}");
        if answer.is_err() {
            return;
        }
        self.holders[place].1.cores.insert(core);
        let original = Files::new();
        for (path, found) in &original.0 {
            // As `Journal::keep_off` does: what has the core, or would have it without us.
            let has = |content: &str| cores_in(path, content).is_some_and(|cores| cores.contains(&core));
            let kind = if path.starts_with("/words") {
                Kind::OffWords
            } else {
                Kind::OffList
            };
            if path == "/on" {
                self.join(id, Kind::OnList, path, None);
            } else if has(found) || has(&self.files.0[path]) {
                self.join(id, kind, path, None);
            }
        }
    }

    fn carry_out(&mut self, deed: &Deed) {
        self.time += 1;
        let at = |place: &usize, holders: usize| (holders > 0).then(|| place % holders.max(1));
        let holders = self.holders.len();
        match deed {
            Deed::Enter if holders + 1 < HOLDERS => {
                let id = enter(&mut self.table, self.time as i32);
                self.holders.push((id, ModelHolder::default()));
            }
            Deed::Enter => {}
            Deed::Take(place, core) => {
                if let Some(place) = at(place, holders) {
                    self.take(place, *core);
                }
            }
            Deed::Write(place, file, value) => {
                if let Some(place) = at(place, holders) {
                    let value = format!("value {value}");
                    let (id, path) = (self.holders[place].0, format!("/plain{file}"));
                    self.join(id, Kind::Write, &path, Some(&value));
                    let time = self.time;
                    self.holders[place].1.wishes.insert(*file, (time, value));
                }
            }
            Deed::MakeDir(place) => {
                if let Some(place) = at(place, holders) {
                    let id = self.holders[place].0;
                    self.join(id, Kind::MakeDir, "/group", None);
                    self.files.0.insert("/group".into(), String::new());
                    self.holders[place].1.group = true;
                }
            }
            Deed::Leave(place, steps) => {
                if let Some(place) = at(place, holders) {
                    let (id, _) = self.holders.swap_remove(place);
                    self.leave(id, *steps);
                }
            }
        }
    }

    /// Dies after so many steps of giving back; another process goes on from there.
    fn leave(&mut self, id: HolderId, steps: usize) {
        let files = &mut self.files;
        let mut left = steps;
        let mut dying = |step: LedgerAction<'_>| {
            left = left.checked_sub(1).ok_or(libc::EINTR)?;
            files.act(step)
        };
        self.table.release_all(id.place);
        self.table
            .give_back(id.place, &|_, _| true, &mut dying, &mut |_, _, _| {});
        assert!(self.table.knows(id));
        let mut recovering = |step: LedgerAction<'_>| files.act(step);
        let mut failed = |_: &Table, _, errno| panic!("{errno}");
        self.table
            .give_back(id.place, &|_, _| true, &mut recovering, &mut failed);
        self.table.strike(id.place);
    }

    /// What of the machine is not as the model says.
    fn differences(&self) -> Vec<String> {
        let claimed: BTreeSet<u32> = self.holders.iter().flat_map(|(_, it)| it.cores.clone()).collect();
        let original = Files::new();
        let right = |path: &str, content: &str| {
            let found = original.0.get(path).map_or("", String::as_str);
            if let Some(file) = path.strip_prefix("/plain") {
                let file: usize = file.parse().unwrap();
                let wishes = self.holders.iter().filter_map(|(_, it)| it.wishes.get(&file));
                return content == wishes.max_by_key(|(time, _)| *time).map_or(found, |(_, value)| value);
            }
            let (Some(now), Some(mut kept)) = (cores_in(path, content), cores_in(path, found)) else {
                return self.holders.iter().any(|(_, it)| it.group) && path == "/group";
            };
            if path == "/on" {
                return now == claimed;
            }
            kept.retain(|core| !claimed.contains(core));
            // Where no core is left, any will do that no holder claims.
            match kept.is_empty() {
                true => !now.is_empty() && now.is_disjoint(&claimed) && now.iter().all(|core| *core < MACHINE),
                false => now == kept,
            }
        };
        let files = self.files.0.iter().filter(|(path, content)| !right(path, content));
        files.map(|(path, content)| format!("{path}: {content}")).collect()
    }
}

/// The cores in a file of the model that has any.
fn cores_in(path: &str, content: &str) -> Option<BTreeSet<u32>> {
    if path.starts_with("/words") {
        let word = u32::from_str_radix(content, 16).unwrap();
        return Some((0..32).filter(|core| word >> core & 1 == 1).collect());
    }
    let list = path.starts_with("/list") || path == "/on";
    list.then(|| {
        punctual_platform::linux::cores::parse_list(content)
            .iter()
            .map(|core| core.0)
            .collect()
    })
}

proptest! {
    #[test]
    fn the_machine_is_what_the_living_want_and_in_the_end_as_it_was_found(deeds in deeds()) {
        let mut pair = Pair::new();
        for deed in &deeds {
            pair.carry_out(deed);
            prop_assert_eq!(pair.differences(), Vec::<String>::new(), "after {:?}", deed);
        }
        while let Some((id, _)) = pair.holders.pop() {
            pair.leave(id, usize::MAX);
        }
        prop_assert_eq!(&pair.files, &Files::new());
        prop_assert_eq!(pair.table.holders().count() + pair.table.all_changes().count(), 0);
    }

    #[test]
    fn planted_faults_the_model_sees_a_holder_that_puts_back_what_others_want(order in any::<bool>()) {
        // As it was before there was one ledger: each process has a table of its own, and takes what it finds for the
        // original.
        let (mut one, mut two, mut files) = (table(), table(), Files::new());
        let first = enter(&mut one, 1);
        let second = enter(&mut two, 2);
        for (table, id, core) in [(&mut one, first, 1), (&mut two, second, 2)] {
            table.claim(id, &mask([core]), &machine()).unwrap();
            let found = files.0["/list0"].clone();
            let change = table.join(id, Kind::OffList, b"/list0", found.as_bytes()).unwrap();
            table.carry_out(change, &mut |step| files.act(step)).unwrap();
        }
        let ends = if order { [(&mut one, first), (&mut two, second)] } else { [(&mut two, second), (&mut one, first)] };
        for (table, id) in ends {
            table.give_back(id.place, &|_, _| true, &mut |step| files.act(step), &mut |_, _, _| {});
        }
        prop_assert_eq!(files == Files::new(), !order);
    }
}

#[test]
fn a_program_that_starts_and_stops_for_a_year_never_fills_the_table() {
    let mut table = table();
    for round in 0..3 * CHANGES {
        let id = enter(&mut table, round as i32);
        assert_eq!(id.place, 1);
        let path = format!("/file of round {round}");
        let change = table.join(id, Kind::Write, path.as_bytes(), b"found").unwrap();
        assert!(table.wish(id, change, b"changed"));
        table.give_back(id.place, &|_, _| true, &mut |_| Ok(()), &mut |_, _, _| {});
        table.strike(id.place);
    }
}

#[test]
fn what_cannot_be_undone_has_no_holder_and_is_tried_again() {
    let mut table = table();
    let id = enter(&mut table, 1);
    for path in [b"/a", b"/b"] {
        table.join(id, Kind::MakeDir, path, b"").unwrap();
    }
    let mut refusals = Vec::new();
    let mut busy = |step: LedgerAction<'_>| match step {
        LedgerAction::RemoveDir { path } if path == c"/a" => Err(libc::EBUSY),
        _ => Ok(()),
    };
    table.give_back(id.place, &|_, _| true, &mut busy, &mut |_, change, errno| {
        refusals.push((change, errno))
    });
    assert_eq!(refusals, [(0, libc::EBUSY)]);
    table.strike(id.place);
    assert_eq!(table.changes_of(LEFT).collect::<Vec<_>>(), [0]);
    assert_eq!(table.holders().count(), 0);
    // A holder that wants it has it, and no longer leaves it behind.
    let next = enter(&mut table, 2);
    assert_eq!(table.join(next, Kind::MakeDir, b"/a", b""), Some(0));
    for place in [LEFT, next.place] {
        table.give_back(place, &|_, _| true, &mut |_| Ok(()), &mut |_, _, _| {});
    }
    assert_eq!(table.all_changes().count(), 0);
}

#[test]
fn claims_that_contradict_each_other_are_refused() {
    let mut table = table();
    let (one, two) = (enter(&mut table, 1), enter(&mut table, 2));
    table.claim(one, &mask([1]), &machine()).unwrap();
    let clash = |core, by: HolderId| {
        Err(Conflict::Claimed {
            core: CoreId(core),
            by: by.place,
        })
    };
    assert_eq!(table.claim(two, &mask([0, 1]), &machine()), clash(1, one));
    table.claim(one, &mask([0]), &machine()).unwrap();
    assert_eq!(table.claim(two, &mask([0]), &machine()), clash(0, one));
    table.release(one, &mask(0..MACHINE));
    table.claim(two, &mask([1]), &machine()).unwrap();
    assert_eq!(table.claim(two, &mask(0..MACHINE), &machine()), Err(Conflict::NoneLeft));
    table.strike(two.place);
    assert_eq!(table.claim(two, &mask([1]), &machine()), Err(Conflict::Gone));
}

#[test]
fn announced_tasks_bar_exclusive_claims_of_other_processes_until_their_holder_leaves() {
    let task = |core, execution| AnnouncedTask {
        core: CoreId(core),
        execution,
        deadline: Nanos(50),
        period: Nanos(100),
    };
    let mut table = table();
    let (one, same, two) = (enter(&mut table, 1), enter(&mut table, 1), enter(&mut table, 2));
    assert!(table.announce(one, &[task(2, Some(Nanos(20))), task(3, None)]));
    assert_eq!(
        table.tasks_of_others(1).count(),
        0,
        "another runtime of the same process"
    );
    let seen: Vec<_> = table.tasks_of_others(2).collect();
    assert_eq!(
        seen,
        [(one.place, task(2, Some(Nanos(20)))), (one.place, task(3, None))]
    );
    let occupied = Conflict::Occupied {
        core: CoreId(3),
        by: one.place,
    };
    assert_eq!(table.claim(two, &mask([3]), &machine()), Err(occupied));
    table.claim(same, &mask([3]), &machine()).unwrap();
    // Announcing again replaces the tasks; the first one learns which process joined it.
    assert!(table.announce(one, &[task(2, None)]) && table.announce(two, &[task(2, None)]));
    let joined = |table: &Table, id: HolderId| table.holder_at(id.place).unwrap().joined().map(|(_, pid, _)| pid);
    assert!(
        table.announce(one, &[task(2, None), task(2, None)]),
        "one more, on the same core"
    );
    assert_eq!((joined(&table, one), joined(&table, two)), (Some(2), None));
    // Whatever finds no room is reported, and what did is announced.
    assert!(!table.announce(two, &vec![task(4, None); TASKS]));
    assert_eq!(table.tasks().count(), TASKS);
    table.strike(two.place);
    table.release_all(one.place);
    assert_eq!(table.tasks().count(), 0);
}

#[test]
fn a_holder_keeps_its_precedence_on_a_core_when_it_announces_again() {
    let task = |core| AnnouncedTask {
        core: CoreId(core),
        execution: None,
        deadline: Nanos(50),
        period: Nanos(100),
    };
    let mut table = table();
    let (one, two) = (enter(&mut table, 1), enter(&mut table, 2));
    table.announce(one, &[task(3)]);
    table.announce(two, &[task(3), task(2)]);
    for again in [&[task(3)][..], &[task(3), task(3), task(2)]] {
        table.announce(one, again);
        let later = |theirs: HolderId, own, core| table.came_later(theirs.place, own, CoreId(core));
        assert!(later(two, one, 3) && !later(one, two, 3));
        // On a core where it had no work it comes after the one that had some.
        assert!(!later(two, one, 2));
    }
    assert!(table.came_later(one.place, two, CoreId(2)));
    table.announce(one, &[]);
    table.announce(one, &[task(3)]);
    assert!(table.came_later(one.place, two, CoreId(3)), "it had left");
}

#[test]
fn a_program_that_went_elsewhere_before_it_began_has_joined_none() {
    let task = |core| AnnouncedTask {
        core: CoreId(core),
        execution: None,
        deadline: Nanos(50),
        period: Nanos(100),
    };
    let mut table = table();
    let (one, two) = (enter(&mut table, 1), enter(&mut table, 2));
    table.announce(one, &[task(3)]);
    for (moved, expected) in [(&[task(3)][..], true), (&[task(2)], false), (&[], false)] {
        table.announce(two, &[task(3)]);
        table.announce(two, moved);
        table.unjoin(two);
        assert_eq!(table.holder_at(one.place).unwrap().joined().is_some(), expected);
    }
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    let refused = || {
        let of_read = Ledger::read(folder.path()).map(|_| ()).unwrap_err();
        let of_open = Ledger::open(folder.path()).map(|_| ()).unwrap_err();
        for refusal in [of_read, of_open] {
            let said = refusal.to_string();
            assert!(said.contains("no regular file") && said.contains("remove it"), "{said}");
        }
    };
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    refused();
    fs::remove_file(&path).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    refused();
    drop(socket);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused();
}

#[test]
fn a_ledger_of_another_boot_is_emptied_and_one_of_another_layout_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Ledger::open(folder.path());
    let ledger = open().unwrap();
    enter(&mut ledger.lock().unwrap(), 1);
    assert_eq!(open().unwrap().lock().unwrap().holders().count(), 1);
    let edit = |edit: fn(&mut Header)| {
        let _lock = ledger.lock().unwrap();
        // SAFETY: mapped and locked.
        edit(unsafe { &mut (*ledger.image().as_ptr()).header });
    };
    edit(|header| header.layout += 1);
    let refusal = open().unwrap_err();
    assert!(refusal.why.contains(&format!("layout {}, ", LAYOUT + 1)), "{refusal}");
    assert!(refusal.remedy.contains("punctual doctor --restore"), "{refusal}");
    edit(|header| header.boot[0] = b'?');
    assert_eq!(open().unwrap().lock().unwrap().holders().count(), 0);
}

#[test]
fn the_lock_keeps_others_out_for_a_bounded_time() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (
        Ledger::open(folder.path()).unwrap(),
        Ledger::open(folder.path()).unwrap(),
    );
    let held = one.lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| two.lock().map(drop));
        assert!(waiting.join().unwrap().is_err());
    });
    drop(held);
    two.lock().unwrap();
}

#[test]
fn one_that_waits_gives_up_on_a_holder_that_does_nothing_and_waits_for_one_that_goes_on() {
    let pauses = |shows: &dyn Fn(u64) -> u64| {
        let mut waits = Waits::new(shows(0));
        1 + (1..).take_while(|pause| waits.wait_on(shows(*pause))).count() as u64
    };
    let (nothing, in_all) = (LOCK_WAIT.0 / LOCK_PAUSE.0, LOCK_WAIT_MAX.0 / LOCK_PAUSE.0);
    assert_eq!(pauses(&|_| 7), nothing);
    assert_eq!(
        pauses(&|pause| pause / (nothing - 1)),
        in_all,
        "the holder does something, at long intervals"
    );
    assert_eq!(
        pauses(&|pause| pause.min(100)),
        100 + nothing,
        "it is stopped after a while"
    );
}

#[test]
fn each_holder_and_each_thing_that_is_put_back_shows() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path()).unwrap();
    let shows = || shown(File::open(folder.path().join(NAME)).unwrap().as_raw_fd());
    let before = shows();
    let mut table = ledger.lock().unwrap();
    let held = shows();
    assert!(held > before, "{before}, {held}");
    let id = enter(&mut table, 1);
    assert!(table.join(id, Kind::Write, b"/a", b"1").is_some());
    let entered = shows();
    table.give_back(id.place, &|_, _| true, &mut |_| Ok(()), &mut |_, _, _| {});
    assert!(shows() > entered && entered > held);
}

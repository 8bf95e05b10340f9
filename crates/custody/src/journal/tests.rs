//! Changes to ordinary files, and to helper programs of ours.

use std::os::unix::fs::MetadataExt;

use super::super::core_mask::affinity_of;
use super::super::ledger::WISHES;
use super::*;
use proptest::prelude::*;

fn unguarded() -> Journal {
    Journal::alone().unwrap()
}

/// How many things the journal has changed.
fn changed(journal: &Journal) -> usize {
    let table = journal.0.ledger.lock().unwrap();
    table.changes_of(journal.0.holder.place).count()
}

fn record(journal: &Journal, kind: Kind, path: &Path, original: &[u8]) {
    let mut table = journal.0.ledger.lock().unwrap();
    journal.join(&mut table, kind, path, original).unwrap();
}

proptest! {
    #[test]
    fn whatever_was_written_restore_puts_every_file_back(
        found in prop::collection::vec("[a-z0-9 ]{0,20}[a-z0-9]", 1..6),
        writes in prop::collection::vec((any::<prop::sample::Index>(), "[a-z0-9]{1,20}"), 0..30),
        restore_after in any::<prop::sample::Index>(),
    ) {
        let folder = punctual_testing::shared_folder();
        let paths: Vec<_> = (0..found.len()).map(|i| folder.path().join(i.to_string())).collect();
        for (path, content) in paths.iter().zip(&found) {
            fs::write(path, format!("{content}\n")).unwrap();
        }
        let journal = unguarded();
        let restore_after = restore_after.index(writes.len() + 1);
        for (step, (file, content)) in writes.iter().enumerate() {
            if step == restore_after {
                prop_assert_eq!(journal.restore(), []);
            }
            let path = file.get(&paths);
            journal.write(path, content).unwrap();
            prop_assert_eq!(&fs::read_to_string(path).unwrap(), content);
        }
        drop(journal);
        for (path, content) in paths.iter().zip(&found) {
            prop_assert_eq!(read_trimmed(path).unwrap(), content.trim_end());
        }
    }
}

#[test]
fn a_file_written_for_ever_takes_one_record() {
    let folder = punctual_testing::shared_folder();
    let path = folder.path().join("scaling_setspeed");
    fs::write(&path, "1400000\n").unwrap();
    let journal = unguarded();
    for step in 0..2 * CHANGES {
        journal.write(&path, &step.to_string()).unwrap();
    }
    assert_eq!(journal.restore(), []);
    assert_eq!(read_trimmed(&path).unwrap(), "1400000");
}

#[test]
fn a_file_written_before_is_written_while_another_program_has_the_ledger() {
    let folder = punctual_testing::shared_folder();
    let path = folder.path().join("scaling_setspeed");
    fs::write(&path, "1400000\n").unwrap();
    let open = || Journal::open_in(&folder.path().join("ledger"), false).unwrap();
    let (journal, other) = (open(), open());
    journal.write(&path, "900000").unwrap();
    {
        let _held = other.0.ledger.lock().unwrap();
        // Without the way round the ledger this would wait for `_held`, and then be refused.
        journal.write(&path, "1100000").unwrap();
        assert_eq!(read_trimmed(&path).unwrap(), "1100000");
    }
    assert_eq!(journal.restore(), []);
    assert_eq!(read_trimmed(&path).unwrap(), "1400000");
    assert!(
        journal.written().is_empty(),
        "after restoring, the original must be recorded again"
    );
}

#[test]
fn a_failed_write_leaves_no_record_and_says_what_to_do() {
    let folder = punctual_testing::shared_folder();
    let journal = unguarded();
    let refusal = journal.write(&folder.path().join("absent"), "1").unwrap_err();
    assert!(refusal.remedy.contains("no such knob"), "{refusal}");
    assert_eq!(changed(&journal), 0);
}

#[test]
fn a_full_ledger_refuses_before_anything_is_changed() {
    let folder = punctual_testing::shared_folder();
    let journal = unguarded();
    let file = |i: usize| folder.path().join(i.to_string());
    for i in 0..=WISHES {
        fs::write(file(i), "found").unwrap();
        assert_eq!(journal.write(&file(i), "changed").is_ok(), i < WISHES);
    }
    assert_eq!(read_trimmed(&file(WISHES)).unwrap(), "found");
    for i in WISHES..=CHANGES {
        fs::write(file(i), "found").unwrap();
        assert_eq!(journal.switch(&file(i), "on", "off").is_ok(), i < CHANGES);
    }
    assert_eq!(read_trimmed(&file(CHANGES)).unwrap(), "found");
    assert_eq!(journal.restore(), []);
    assert_eq!(changed(&journal), 0);
    let long = folder
        .path()
        .join("x".repeat(200))
        .join("y".repeat(200))
        .join("z".repeat(200));
    assert!(unguarded().make_dir(&long).unwrap_err().remedy.contains("shorten"));
}

#[test]
fn a_temporary_folder_goes_with_all_that_is_in_it_but_follows_no_link_out() {
    let outside = punctual_testing::shared_folder();
    fs::write(outside.path().join("kept"), "").unwrap();
    let journal = unguarded();
    let folder = journal.temporary_dir(&std::env::temp_dir()).unwrap();
    let mut deep = folder.clone();
    for level in 0..10 {
        deep.push(format!("level{level}"));
        fs::create_dir(&deep).unwrap();
        for file in 0..50 {
            fs::write(deep.join(format!("a file with a long name, number {file}")), "content").unwrap();
        }
    }
    std::os::unix::fs::symlink(outside.path(), deep.join("link")).unwrap();
    assert_eq!(journal.restore(), []);
    assert!(!folder.exists());
    assert!(outside.path().join("kept").exists());
}

#[test]
fn what_cannot_be_put_back_is_named_and_stays_recorded() {
    let folder = punctual_testing::shared_folder();
    let group = folder.path().join("group");
    let journal = unguarded();
    journal.make_dir(&group).unwrap();
    fs::write(group.join("ordinary file"), "").unwrap(); // so that rmdir fails
    let left_over = journal.restore();
    assert_eq!(left_over.len(), 1);
    assert!(left_over[0].remedy.contains("rmdir"), "{}", left_over[0]);
    assert!(!changed_since(&left_over[0]));
    fs::remove_file(group.join("ordinary file")).unwrap();
    assert_eq!(journal.restore(), []);
    assert!(!group.exists());
}

#[test]
fn a_word_that_stands_for_a_process_is_cleared_unless_another_one_has_the_file_locked() {
    let folder = punctual_testing::shared_folder();
    let path = folder.path().join("page");
    let user = fs::metadata(folder.path()).unwrap().uid();
    let cleared = |locked: bool| {
        fs::write(&path, "head-seen-tail").unwrap();
        let journal = unguarded();
        journal.clears_word(&path, user, 5).unwrap();
        let other = fs::File::open(&path).unwrap();
        if locked {
            other.lock().unwrap();
        }
        assert_eq!(journal.restore(), []);
        fs::read(&path).unwrap()
    };
    assert_eq!(cleared(false), b"head-\0\0\0\0-tail");
    assert_eq!(cleared(true), b"head-seen-tail");
    let journal = unguarded();
    journal.clears_word(&path, user, 5).unwrap();
    journal.word_is_clear(&path);
    assert_eq!(journal.restore(), []);
    assert_eq!(fs::read(&path).unwrap(), b"head-seen-tail", "no longer recorded");
    fs::remove_file(&path).unwrap();
    journal.clears_word(&path, user, 5).unwrap();
    assert_eq!(journal.restore(), [], "nothing is left to clear");
    std::os::unix::fs::symlink("elsewhere", &path).unwrap();
    journal.clears_word(&path, user, 5).unwrap();
    assert_eq!(journal.restore(), [], "a link has no word");
}

#[test]
fn a_directory_of_another_program_is_not_taken_over_where_it_must_be_new() {
    let folder = punctual_testing::shared_folder();
    let group = folder.path().join("group");
    fs::create_dir(&group).unwrap();
    let journal = unguarded();
    assert!(journal.make_own_dir(&group).is_err());
    assert_eq!(journal.restore(), []);
    assert!(group.exists());
}

#[test]
fn a_write_that_must_wait_for_an_older_change_is_put_back_after_it() {
    let folder = punctual_testing::shared_folder();
    let path = folder.path().join("group");
    let journal = unguarded();
    journal.make_dir(&path).unwrap();
    // A folder takes no writing. The newer change is undone first, in vain until the folder is gone.
    record(&journal, Kind::Write, &path, b"found");
    assert_eq!(journal.restore(), []);
    assert!(!path.exists());
}

#[test]
fn what_is_gone_needs_no_putting_back() {
    let folder = punctual_testing::shared_folder();
    let path = folder.path().join("hot-unplugged");
    fs::write(&path, "found").unwrap();
    let journal = unguarded();
    journal.write(&path, "changed").unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(journal.restore(), []);
    assert!(!path.exists());
}

#[test]
fn tasks_are_moved_back_one_by_one() {
    let folder = punctual_testing::shared_folder();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, "12\n34\n").unwrap();
    fs::write(&to, "").unwrap();
    let journal = unguarded();
    journal.move_tasks_back(&from, &to).unwrap();
    assert_eq!(journal.restore(), []);
    assert_eq!(read_trimmed(&to).unwrap(), "34"); // an ordinary file keeps the last of the two writes
}

#[test]
fn what_was_changed_since_a_mark_is_put_back_alone() {
    let folder = punctual_testing::shared_folder();
    let file = |name: &str| folder.path().join(name);
    for name in ["before", "after", "both"] {
        fs::write(file(name), "found").unwrap();
    }
    let journal = unguarded();
    journal.write(&file("before"), "changed").unwrap();
    journal.write(&file("both"), "changed").unwrap();
    let mark = journal.mark();
    journal.write(&file("after"), "changed").unwrap();
    journal.write(&file("both"), "changed again").unwrap();
    assert_eq!(journal.restore_since(mark), []);
    let content = |name: &str| read_trimmed(&file(name)).unwrap();
    assert_eq!(
        (content("before"), content("after"), content("both")),
        ("changed".into(), "found".into(), "changed again".into())
    );
    assert_eq!(journal.restore(), []);
    assert_eq!((content("before"), content("both")), ("found".into(), "found".into()));
}

/// A helper program of ours, ended with the test.
struct Helper(std::process::Child);

impl Helper {
    fn start() -> Helper {
        Helper(std::process::Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn tid(&self) -> Tid {
        Tid(self.0.id() as i32)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_record_of_a_thread_that_has_ended_is_not_taken_for_a_later_one_of_its_number() {
    let helper = Helper::start();
    let journal = unguarded();
    let stat = PathBuf::from(format!("/proc/{}/stat", helper.tid()));
    // As if this number had been another thread's, which started at another time and might run nowhere.
    record(&journal, Kind::Affinity, &stat, b"1 00");
    let found = allowed_to(&KernelTree::default(), helper.tid()).unwrap();
    let mut narrow = CoreMask::default();
    narrow.set(affinity_of(Tid::current()).unwrap().cores()[0], true);
    journal.confine(helper.tid(), &found, &narrow).unwrap();
    assert_eq!(allowed_to(&KernelTree::default(), helper.tid()).unwrap(), narrow);
    assert_eq!(journal.restore(), []);
    assert_eq!(allowed_to(&KernelTree::default(), helper.tid()).unwrap(), found);
    assert_eq!(changed(&journal), 0);
}

#[test]
fn threads_that_have_ended_make_room_for_others() {
    let helper = Helper::start();
    let journal = unguarded();
    for number in 0..CHANGES {
        let stat = PathBuf::from(format!("/proc/{}/stat", 5_000_000 + number)); // beyond the kernel's largest pid
        record(&journal, Kind::Affinity, &stat, b"1 00");
    }
    journal.remember_affinity(helper.tid()).unwrap();
    assert_eq!(changed(&journal), 1);
}

#[test]
fn what_cannot_be_confined_leaves_no_record() {
    let helper = Helper::start();
    let journal = unguarded();
    let found = allowed_to(&KernelTree::default(), helper.tid()).unwrap();
    let nowhere = journal.confine(helper.tid(), &found, &CoreMask::default());
    assert_eq!(nowhere.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    let ended = journal.confine(Tid(i32::MAX), &found, &found);
    assert_eq!(ended.unwrap_err().raw_os_error(), Some(libc::ESRCH));
    assert_eq!(changed(&journal), 0);
}

#[test]
fn a_forked_process_puts_nothing_back() {
    let folder = punctual_testing::shared_folder();
    let path = folder.path().join("knob");
    fs::write(&path, "found").unwrap();
    let journal = unguarded();
    journal.write(&path, "changed").unwrap();
    // SAFETY: the forked process looks at memory and exits.
    let forked = unsafe {
        let forked = libc::fork();
        if forked == 0 {
            let left_over = journal.restore();
            libc::_exit(left_over.len() as i32);
        }
        forked
    };
    let mut status = 0;
    // SAFETY: `status` is valid; the child is ours.
    unsafe { libc::waitpid(forked, &mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(read_trimmed(&path).unwrap(), "changed");
}

#[test]
fn a_guardian_watches_while_the_journal_lives() {
    let folder = punctual_testing::shared_folder();
    let journal = Journal::open_in(folder.path(), true).unwrap();
    assert!(journal.guarded());
    assert!(!unguarded().guarded());
}

#[test]
fn a_journal_that_does_not_get_the_ledger_leaves_its_changes_to_the_guardian() {
    let folder = punctual_testing::shared_folder();
    let path = folder.path().join("knob");
    fs::write(&path, "found").unwrap();
    let open = |guardian| Journal::open_in(&folder.path().join("ledger"), guardian).unwrap();
    let (journal, other) = (open(true), open(false));
    journal.write(&path, "changed").unwrap();
    let held = other.0.ledger.lock().unwrap();
    drop(journal);
    drop(held);
    punctual_testing::wait_until("the guardian has restored the file", || {
        read_trimmed(&path).unwrap() == "found"
    });
}

/// Enters the parent of this process, or one that has ended, with a task on `core`, in that ledger.
fn another_process(ledger: &Ledger, alive: bool, core: CoreId) {
    let pid = std::os::unix::process::parent_id() as i32;
    let started = stat::started(&fs::read(format!("/proc/{pid}/stat")).unwrap()).unwrap();
    let mut table = ledger.lock().unwrap();
    let entrant = Entrant {
        pid,
        started: if alive { started } else { started + 1 },
        name: b"other",
    };
    let id = table.enter(entrant).unwrap();
    assert!(table.announce(id, &[task_on(core)]));
}

fn task_on(core: CoreId) -> ledger::AnnouncedTask {
    ledger::AnnouncedTask {
        core,
        execution: None,
        deadline: punctual_units::Nanos(1),
        period: punctual_units::Nanos(1),
    }
}

#[test]
fn a_program_decides_by_what_living_processes_have_announced_and_is_announced_itself() {
    let (own, system) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    another_process(&Ledger::open(system.path()).unwrap(), true, CoreId(1));
    let journal = Journal::open_in(own.path(), false).unwrap();
    another_process(&journal.0.ledger, true, CoreId(2));
    another_process(&journal.0.ledger, false, CoreId(3));
    let seen = |others: &Others| others.tasks.iter().map(|(task, _)| task.core).collect::<Vec<_>>();
    let decide = |others: &Others| Ok::<_, ()>((vec![task_on(CoreId(2))], seen(others)));
    assert_eq!(journal.announce_beside(None, decide), Ok((vec![CoreId(2)], None)));
    let both = journal.announce_beside(Some(system.path()), decide);
    assert_eq!(both, Ok((vec![CoreId(1), CoreId(2)], None)));
    assert_eq!(Journal::open_in(own.path(), false).unwrap().joined(), None);
    assert_eq!(
        journal.0.ledger.lock().unwrap().tasks().count(),
        2,
        "the dead one is gone"
    );
    // A decision against the run leaves nothing announced.
    assert_eq!(journal.announce_beside(None, |_| Err::<(_, ()), _>("no")), Err("no"));
    assert_eq!(journal.0.ledger.lock().unwrap().tasks().count(), 1);
}

#[test]
fn a_ledger_that_cannot_be_read_is_named_once_and_hinders_nothing() {
    let (own, system) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = Journal::open_in(own.path(), false).unwrap();
    let unseen = |others: &Others| Ok::<_, ()>((Vec::new(), others.unseen.is_some()));
    assert_eq!(
        journal.announce_beside(Some(system.path()), unseen),
        Ok((false, None)),
        "none there"
    );
    drop(Ledger::open(system.path()).unwrap());
    let path = system.path().join("ledger");
    let mut of_another_layout = fs::read(&path).unwrap();
    of_another_layout[0] ^= 0xff;
    fs::write(&path, of_another_layout).unwrap();
    assert_eq!(journal.announce_beside(Some(system.path()), unseen), Ok((true, None)));
}

#[test]
fn what_another_program_has_changed_meanwhile_is_left_and_restoring_reports_it_once() {
    let folder = punctual_testing::shared_folder();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let [list, words, plain, on] =
        [("list", "0-3\n"), ("words", "f\n"), ("plain", "found\n"), ("on", "\n")].map(|(name, text)| file(name, text));
    let machine: Vec<CoreId> = (0..4).map(CoreId).collect();
    for (made, ours) in [("2\n", "0-2"), ("0-2\n", "0-2")] {
        let journal = unguarded();
        journal.claim(&[CoreId(3)], &machine).unwrap();
        assert_eq!(journal.keep_off_list(&list, CoreId(3)).ok(), Some(true));
        journal.keep_off_words(&words, CoreId(3)).unwrap();
        journal.write(&plain, "ours").unwrap();
        journal.add_to_list(&on).unwrap();
        assert_eq!(read_trimmed(&list).unwrap(), ours);
        // Another way to write the same is no change.
        fs::write(&words, "00000007\n").unwrap();
        fs::write(&list, made).unwrap();
        let is_changed = made.trim_end() != ours;
        let left = journal.restore();
        assert_eq!(left.len(), usize::from(is_changed), "{left:?}");
        assert!(left.iter().all(changed_since), "{left:?}");
        let now = [&list, &words, &plain, &on].map(|path| read_trimmed(path).unwrap());
        assert_eq!(now, [if is_changed { "2" } else { "0-3" }, "f", "found", ""]);
        assert_eq!((journal.restore(), changed(&journal)), (Vec::new(), 0), "reported once");
        fs::write(&list, "0-3\n").unwrap();
    }
}

#[test]
fn a_value_that_the_ledger_does_not_know_is_restored_whatever_it_is() {
    let folder = punctual_testing::shared_folder();
    let [unlocked, itself] = ["unlocked", "itself"].map(|name| folder.path().join(name));
    [&unlocked, &itself]
        .into_iter()
        .for_each(|path| fs::write(path, "found\n").unwrap());
    let journal = unguarded();
    [&unlocked, &itself]
        .into_iter()
        .for_each(|path| journal.write(path, "ours").unwrap());
    {
        // A real-time thread that does not wait for the ledger.
        let _table = journal.0.ledger.lock().unwrap();
        std::thread::scope(|scope| scope.spawn(|| journal.write(&unlocked, "next")).join().unwrap()).unwrap();
    }
    journal.writes_itself(&itself);
    fs::write(&itself, "lent\n").unwrap();
    assert_eq!(journal.restore(), []);
    assert_eq!(
        [&unlocked, &itself].map(|path| read_trimmed(path).unwrap()),
        ["found", "found"]
    );
}

#[test]
fn a_clock_limit_that_the_kernel_has_lowered_to_cool_is_restored() {
    let found = [
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "2000000"),
        ("/sys/class/thermal/cooling_device3/cur_state", "0"),
    ];
    for (now, cools, expected) in [
        ("1000000", "1", "2000000"),
        ("1000000", "0", "1000000"),
        ("1800000", "1", "1800000"),
    ] {
        let folder = punctual_testing::kernel_files(&found);
        let [limit, state] = found.map(|(path, _)| folder.path().join(&path[1..]));
        let journal = unguarded();
        journal.write(&limit, "1400000").unwrap();
        fs::write(&limit, now).unwrap();
        fs::write(&state, cools).unwrap();
        assert_eq!(journal.restore().is_empty(), expected == "2000000");
        assert_eq!(read_trimmed(&limit).unwrap(), expected);
    }
}

#[test]
fn a_clock_limit_that_was_lowered_when_it_was_written_and_is_ours_now_is_restored() {
    let folder = punctual_testing::shared_folder();
    let limit = folder.path().join("scaling_max_freq");
    for (now, expected) in [("1400000", "2000000"), ("1800000", "1800000")] {
        fs::write(&limit, "2000000\n").unwrap();
        let journal = unguarded();
        journal.write(&limit, "1000000").unwrap();
        {
            // The wish changes, the value read after the write does not.
            let mut table = journal.0.ledger.lock().unwrap();
            let change = find(&table, Kind::Write, &limit).unwrap();
            assert!(table.wish(journal.0.holder, change, b"1400000"));
        }
        fs::write(&limit, format!("{now}\n")).unwrap();
        assert_eq!(journal.restore().is_empty(), expected == "2000000");
        assert_eq!(read_trimmed(&limit).unwrap(), expected);
    }
}

#[test]
fn a_thread_that_another_program_has_moved_stays_there() {
    let all = affinity_of(Tid::current()).unwrap();
    let one: CoreMask = all.cores().into_iter().take(1).collect();
    let last: CoreMask = all.cores().into_iter().rev().take(1).collect();
    if one == last {
        return eprintln!("skipped: this process may use one core only");
    }
    // A group that is narrowed leaves a thread some of its cores.
    for (given, moved, expected) in [(one, one, all), (one, last, last), (all, one, all)] {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(Tid::current()).unwrap();
            let _ = ended.recv();
        });
        let tid = told.recv().unwrap();
        let journal = unguarded();
        journal.confine(tid, &all, &given).unwrap();
        set_affinity(tid, &moved).unwrap();
        assert_eq!(journal.restore().is_empty(), expected == all);
        assert_eq!(affinity_of(tid).unwrap(), expected);
        drop(end);
        thread.join().unwrap();
    }
}

#[test]
fn a_thread_gets_its_scheduling_back_unless_another_program_has_changed_it() {
    let helper = Helper::start();
    let journal = unguarded();
    let found = policy_of(helper.tid()).unwrap();
    if let Err(refusal) = journal.run_in_real_time(helper.tid(), 5) {
        return eprintln!("skipped: {refusal}");
    }
    journal.run_in_real_time(helper.tid(), 7).unwrap();
    let fifo = (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 7);
    assert_eq!((policy_of(helper.tid()), changed(&journal)), (Ok(fifo), 1));
    assert_eq!(journal.restore(), []);
    assert_eq!((policy_of(helper.tid()), changed(&journal)), (Ok(found), 0));
    journal.run_in_real_time(helper.tid(), 5).unwrap();
    set_policy(helper.tid(), (libc::SCHED_RR, 3)).unwrap();
    let left = journal.restore();
    assert!(changed_since(&left[0]), "{left:?}");
    assert_eq!(
        (policy_of(helper.tid()), changed(&journal)),
        (Ok((libc::SCHED_RR, 3)), 0)
    );
}

/// Takes a capability from the calling thread (capset(2)).
fn drop_capability(bit: u32) {
    let (header, mut data) = ([0x2008_0522u32, 0], [[0u32; 3]; 2]); // version 3: effective, permitted, inheritable
    // SAFETY: both arguments are laid out as the kernel reads and fills them.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()), 0);
        data[0][0] &= !(1 << bit);
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()), 0);
    }
}

#[test]
fn a_thread_loses_real_time_though_its_flag_may_not_be_cleared() {
    const CAP_SYS_NICE: u32 = 23;
    let helper = Helper::start();
    let journal = unguarded();
    let (policy, priority) = policy_of(helper.tid()).unwrap();
    if let Err(refusal) = journal.run_in_real_time(helper.tid(), 5) {
        return eprintln!("skipped: {refusal}");
    }
    let failed = std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            drop_capability(CAP_SYS_NICE);
            journal.restore()
        });
        user.join().unwrap()
    });
    assert_eq!(failed, []);
    let now = policy_of(helper.tid()).unwrap();
    assert_eq!(
        (now, changed(&journal)),
        ((policy | libc::SCHED_RESET_ON_FORK, priority), 0)
    );
}

#[test]
fn children_of_a_pinned_thread_get_its_cores_back_and_others_on_that_core_do_not() {
    let pinned = affinity_of(Tid::current()).unwrap();
    if pinned.cores().len() < 2 {
        return eprintln!("skipped: needs two cores");
    }
    let narrow: CoreMask = pinned.cores().into_iter().take(1).collect();
    let journal = unguarded();
    // A shell, which starts a program once it reads a line.
    let mut shell = { std::process::Command::new("sh") }
        .args(["-c", "read line; sleep 60 & echo $!; wait"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (parent, other) = (Tid(shell.id() as i32), Helper::start());
    set_affinity(other.tid(), &narrow).unwrap();
    journal.confine(parent, &pinned, &narrow).unwrap();
    use std::io::{BufRead, Write};
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut line = String::new();
    std::io::BufReader::new(shell.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let child = Tid(line.trim().parse().unwrap());
    assert_eq!(affinity_of(child).unwrap(), narrow);
    assert_eq!(journal.restore_below(Path::new(&format!("/proc/{parent}"))), []);
    let now = [parent, child, other.tid()].map(|thread| affinity_of(thread).unwrap());
    // SAFETY: a child of our child, which it waits for.
    unsafe { libc::kill(child.0, libc::SIGKILL) };
    shell.wait().unwrap();
    assert_eq!(now, [pinned, pinned, narrow]);
}

#[test]
fn each_record_of_the_ledger_is_a_change_that_stands() {
    let folder = punctual_testing::shared_folder();
    let (cgroup, cpufreq) = (folder.path().join("cgroup/cpu/bg"), folder.path().join("cpufreq"));
    [&cgroup, &cpufreq]
        .iter()
        .for_each(|it| fs::create_dir_all(it).unwrap());
    let files = [
        (cgroup.join("cpu.cfs_quota_us"), "-1"),
        (cpufreq.join("scaling_max_freq"), "1400000"),
        (folder.path().join("smp_affinity_list"), "0-1"),
        (cgroup.join("cgroup.subtree_control"), ""),
    ];
    files.iter().for_each(|(path, text)| fs::write(path, text).unwrap());
    let [quota, clock, interrupt, control] = files.each_ref().map(|(path, _)| path.as_path());
    let (journal, helper) = (unguarded(), Helper::start());
    assert_eq!(journal.standing(), Some(Vec::new()));
    journal.claim(&[CoreId(1)], &[CoreId(0), CoreId(1)]).unwrap();
    journal.write(quota, "12000").unwrap();
    journal.write(clock, "900000").unwrap();
    assert!(journal.keep_off_list(interrupt, CoreId(1)).unwrap());
    journal.switch(control, "+cpu", "-cpu").unwrap();
    journal.make_dir(&cgroup.join("made.1")).unwrap();
    journal
        .move_tasks_back(&cgroup.join("made.1/tasks"), &cgroup.join("tasks"))
        .unwrap();
    let found = affinity_of(helper.tid()).unwrap();
    journal.confine(helper.tid(), &found, &found).unwrap();
    // Where it is refused, no record is left.
    let _ = journal.run_in_real_time(helper.tid(), 5);
    let standing = journal.standing().unwrap();
    assert_eq!(standing.len(), changed(&journal) + 1, "and the claim: {standing:?}");
    let has = |property, of: &str, before: &str, now: &str| {
        let is_it = |it: &StandingChange| (it.property, it.of.as_str()) == (property, of);
        let it = standing
            .iter()
            .find(|it| is_it(it))
            .unwrap_or_else(|| panic!("{of:?} in {standing:?}"));
        assert_eq!((it.before.as_str(), it.now.as_str()), (before, now));
    };
    has(Property::Core, "1", "any thread", "this run");
    has(Property::CpuTime, "group cpu/bg (cpu.cfs_quota_us)", "-1", "12000");
    has(Property::Clock, &clock.to_string_lossy(), "1400000", "900000");
    has(Property::Cores, &interrupt.to_string_lossy(), "0-1", "0");
    has(
        Property::Switch,
        "group cpu/bg (cgroup.subtree_control)",
        "-cpu",
        "+cpu",
    );
    has(Property::Group, "group cpu/bg/made.1", "none", "made");
    has(
        Property::Threads,
        "group cpu/bg/made.1 (tasks)",
        "group cpu/bg (tasks)",
        "moved here",
    );
    let of_helper = |it: &&StandingChange| it.thread == Some(helper.tid()) && it.property == Property::Cores;
    let cores = standing.iter().find(of_helper).unwrap();
    assert_eq!(ledger::parse_list(cores.now.as_bytes()), Some(found));
    assert_eq!(cores.before, cores.now);
    assert!(cores.of.ends_with(&format!("(thread {})", helper.tid())), "{cores:?}");
    let table = journal.0.ledger.lock().unwrap();
    assert_eq!(journal.standing(), None, "another thread has the ledger");
    drop((table, helper));
    let of_threads = journal
        .standing()
        .into_iter()
        .flatten()
        .filter(|it| it.thread.is_some());
    assert_eq!(of_threads.count(), 0, "it has ended");
    drop(journal.restore());
}

//! On an emulated cpuset tree with a group to lend to, whose `cpuset.cpus` holds what the kernel was asked for.

use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;

use punctual_loop::replay;
use punctual_platform::Neighbours;
use punctual_platform::linux::KernelTree;
use punctual_platform::linux::journal::Journal;
use punctual_units::{CoreId, Share};

use super::*;

const MS: Nanos = Nanos::from_millis(1);

/// Core 1 of two, kept by a cpuset that is ordinary files, and lent to the group at `cpus`.
struct EmulatedCore {
    _folder: tempfile::TempDir,
    _journal: Journal,
    cpus: PathBuf,
    /// The descriptor of `cpus` that the core keeps open.
    kept: RawFd,
    core: ExclusiveCore,
}

/// The descriptor of this process that `file` is open at.
fn descriptor_of(file: &std::path::Path) -> RawFd {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let its = open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == file));
    let mut numbers = its.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.next().expect("the core keeps it open")
}

impl EmulatedCore {
    fn new() -> EmulatedCore {
        let folder = tempfile::tempdir().unwrap();
        let group = "cpuset/punctual-pen";
        let mount = "30 24 0:27 / /cpuset rw - cgroup cgroup rw,cpuset";
        for (path, text) in [
            ("sys/devices/system/cpu/online", "0-1"),
            ("proc/self/mountinfo", mount),
            ("cpuset/cpuset.mems", "0"),
            ("cpuset/tasks", ""),
            (&format!("{group}/cpuset.mems"), ""),
            (&format!("{group}/cpuset.cpus"), ""),
            (&format!("{group}/cpuset.sched_load_balance"), "1"),
            (&format!("{group}/tasks"), ""),
            ("cpuset/render/cpuset.cpus", "0-1"),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let journal = Journal::alone().unwrap();
        let neighbours = Neighbours {
            lend_to: vec!["/render".into()],
            ..Neighbours::default()
        };
        let core = ExclusiveCore::take(&KernelTree::at(folder.path()), &journal, CoreId(1), &neighbours).unwrap();
        EmulatedCore {
            cpus: folder.path().join("cpuset/render/cpuset.cpus"),
            kept: descriptor_of(&folder.path().join("cpuset/render/cpuset.cpus")),
            _folder: folder,
            _journal: journal,
            core,
        }
    }

    /// The cores of the group: what was written last, which the kernel takes as a whole.
    fn others(&self) -> String {
        let text = std::fs::read_to_string(&self.cpus).unwrap();
        text.lines().next().unwrap_or_default().to_owned()
    }

    /// From here on the group's file takes no writes: the descriptor that is kept open is one of a full device.
    fn refuse(&self) {
        self.point_to(std::path::Path::new("/dev/full"));
    }

    /// It takes writes again.
    fn grant(&self) {
        self.point_to(&self.cpus);
    }

    fn point_to(&self, file: &std::path::Path) {
        let file = std::fs::File::options().write(true).open(file).unwrap();
        // SAFETY: both descriptors are open ones of this process.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), self.kept) } >= 0);
    }
}

fn free() -> LearntCosts {
    LearntCosts::new(&[], &[], Share::clamped(0.99), 200)
}

/// Time enough to lend, however slow the machine is; no thread really waits for it.
fn far() -> Time {
    LinuxOs.now() + Nanos::from_secs(3600)
}

#[test]
fn a_core_that_lendees_leave_idle_is_lent_no_more_and_tried_again() {
    let emulated = EmulatedCore::new();
    let mut tenancy = Tenancy::new(emulated.core.clone(), free());
    let accountant = tenancy.accountant();
    accountant.record();
    let (mut idle, mut unused, mut now) = (Nanos::ZERO, Nanos::ZERO, Time(0));
    // A window of at least 5 ms, in which the core is lent and all of that idle, or none of it.
    let mut window = |used: bool| {
        let before = accountant.account();
        tenancy.wait(far(), |_| {
            LinuxOs.sleep_until(LinuxOs.now() + MS * 5);
            true
        });
        let lent = accountant.account().lent.saturating_sub(before.lent);
        if !used {
            idle += lent + MS;
            unused += lent;
        }
        now = LinuxOs.now();
        accountant.observe(idle, now);
        accountant.account().leases > before.leases
    };
    window(true);
    window(true);
    assert!(window(true) && window(false), "lent, and used or not");
    assert!(!window(false), "not lent for a window");
    assert!(window(true), "then tried again");
    assert!(window(true) && window(true), "and lent on, because it was used");
    let account = accountant.account();
    assert_eq!(account.watched.saturating_sub(account.used), unused);
    assert!(account.used > Nanos::ZERO && unused > Nanos::ZERO, "{account:?}");
    let log = accountant.log();
    let useless = DeciderEvent::Lending(0, TenantEvent::Useful(false));
    assert!(log.decisions.iter().any(|it| it.event == useless));
    assert_eq!(replay(&log), Ok(Vec::new()));
}

/// Sleeps through it in no time.
fn at_once(_: Time) -> bool {
    true
}

#[test]
fn the_core_is_lent_while_its_occupant_waits_and_is_back_when_it_works() {
    let emulated = EmulatedCore::new();
    let mut tenancy = Tenancy::new(emulated.core.clone(), free());
    let accountant = tenancy.accountant();
    assert_eq!(emulated.others(), "0");
    let mut seen = Vec::new();
    assert!(tenancy.wait(far(), |_| {
        seen.push(emulated.others());
        true
    }));
    assert_eq!(seen, ["0,1", "0"], "until it is called back, and until the release");
    assert_eq!(emulated.others(), "0");
    let account = accountant.account();
    assert_eq!((account.leases, account.take_back.len(), account.beside), (1, 1, 0));
    assert!(account.lent > Nanos::ZERO);
    assert_eq!(accountant.trouble(), None);
    assert!(!tenancy.wait(far(), |_| false), "the run is over");
    assert_eq!(emulated.others(), "0", "and the core is back");
}

#[test]
fn a_release_too_soon_is_waited_for_without_lending() {
    let emulated = EmulatedCore::new();
    let hours = [Nanos::from_secs(7200)];
    let costs = LearntCosts::new(&hours, &hours, Share::clamped(0.99), 200);
    let mut tenancy = Tenancy::new(emulated.core.clone(), costs);
    assert!(tenancy.wait(far(), |_| {
        assert_eq!(emulated.others(), "0");
        true
    }));
    let account = tenancy.accountant().account();
    assert_eq!((account.leases, account.lent), (0, Nanos::ZERO));
}

#[test]
fn what_taking_back_takes_in_use_is_reckoned_with_at_the_next_release() {
    let emulated = EmulatedCore::new();
    let mut tenancy = Tenancy::new(emulated.core.clone(), free());
    let mut calls = Vec::new();
    // The second release is far away, whatever the machine adds to the cost that is learnt first.
    for release in [LinuxOs.now() + Nanos::from_secs(5), far()] {
        let mut asked = None;
        // The first sleep until the core is called back ends 20 ms late.
        tenancy.wait(release, |until| {
            if asked.is_none() && calls.is_empty() {
                LinuxOs.sleep_until(until + MS * 20);
            }
            asked.get_or_insert(release.since(until));
            true
        });
        calls.extend(asked);
    }
    assert_eq!(calls[0], Nanos::ZERO, "nothing was known");
    assert!(calls[1] >= MS * 20, "called back {} before the release", calls[1]);
    assert!(tenancy.accountant().account().late >= 1);
}

#[test]
fn a_core_that_does_not_come_back_is_asked_for_before_every_job_and_told() {
    let emulated = EmulatedCore::new();
    let mut tenancy = Tenancy::new(emulated.core.clone(), free());
    let accountant = tenancy.accountant();
    let mut refuse = Some(());
    tenancy.wait(far(), |_| {
        if refuse.take().is_some() {
            emulated.refuse();
        }
        true
    });
    let account = accountant.account();
    assert_eq!((account.leases, account.beside), (1, 1));
    let told = accountant.trouble().unwrap();
    assert!(
        told.contains("taking back core 1") && told.contains("1 releases"),
        "{told}"
    );
    tenancy.wait(far(), at_once);
    assert_eq!(accountant.account().beside, 2);
    emulated.grant();
    tenancy.wait(far(), at_once);
    assert_eq!(emulated.others(), "0", "it has come back");
    tenancy.wait(far(), |_| {
        assert_eq!(emulated.others(), "0", "and is not lent again");
        true
    });
    assert_eq!((accountant.account().leases, accountant.account().beside), (1, 2));
}

#[test]
fn a_core_that_is_not_lent_counts_as_not_lent_and_is_asked_for() {
    let emulated = EmulatedCore::new();
    let mut tenancy = Tenancy::new(emulated.core.clone(), free());
    let accountant = tenancy.accountant();
    emulated.refuse();
    let mut grant = Some(());
    tenancy.wait(far(), |_| {
        if grant.take().is_some() {
            emulated.grant();
        }
        true
    });
    let account = accountant.account();
    assert_eq!((account.leases, account.lent, account.beside), (0, Nanos::ZERO, 0));
    assert!(accountant.trouble().unwrap().contains("lending core 1"));
    assert_eq!(emulated.others(), "0", "half of it may have been done");
}

#[test]
fn of_two_occupants_the_one_that_is_released_first_gets_the_core_back() {
    let emulated = EmulatedCore::new();
    let mut both = Tenancy::shared(emulated.core.clone(), free(), 2);
    let (mut late, mut early) = (both.pop().unwrap(), both.pop().unwrap());
    let accountant = early.accountant();
    accountant.record();
    let mut seen = Vec::new();
    late.wait(far() + MS, |_| {
        if seen.is_empty() {
            seen.push(emulated.others());
            early.wait(far(), |_| {
                seen.push(emulated.others());
                true
            });
            seen.push(emulated.others());
        }
        true
    });
    assert_eq!(seen, ["0", "0,1", "0", "0"]);
    assert_eq!(early.accountant().account().leases, 1);

    // Every decision is in the log, and taken again; one that was tampered with is found.
    let mut log = accountant.log();
    let differing = |log: &EventLog| replay(log).expect("tenants").len();
    assert_eq!((log.decisions.len(), log.lost, differing(&log)), (4, 0, 0), "{log:?}");
    let was = std::mem::take(&mut log.decisions[1].answer);
    log.decisions[1].answer = (was == false.into()).into();
    assert_eq!(differing(&log), 1);
}

//! Both sides of a folder in one process, and children of it.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use punctual_jobs::wire::{BYTES, RECORDS};
use punctual_jobs::{Arrival, JobReporter, Listener, ReportedJob, Reporter, note};
use punctual_os::{LinuxOs, Tid};
use punctual_units::{Clock, Nanos, Time};
use tempfile::TempDir;

fn reporters(listener: &mut Listener) -> Vec<Reporter> {
    let reporter = |arrival| match arrival {
        Arrival::Reporter(reporter) => Some(reporter),
        Arrival::Note { .. } => None,
    };
    listener.arrivals(&|_| true).into_iter().filter_map(reporter).collect()
}

fn jobs(reporter: &mut Reporter) -> Vec<ReportedJob> {
    reporter.source.jobs()
}

#[test]
fn jobs_arrive_in_order_with_their_times_at_listeners_that_come_later_and_again() {
    let folder = TempDir::new().unwrap();
    let mut control = JobReporter::open_in(folder.path(), "control")
        .unwrap()
        .due_in(Nanos(5))
        .every(Nanos(7));
    control.job(); // no one listens
    for _ in 0..2 {
        let mut listener = Listener::start(folder.path()).unwrap();
        assert!(reporters(&mut listener).is_empty());
        let before = LinuxOs.now();
        control.begin_released(before);
        control.end();
        control.job();
        control.begin();
        let mut came = reporters(&mut listener);
        let [reporter] = &mut came[..] else { panic!("{came:?}") };
        assert_eq!(
            (reporter.name.as_str(), reporter.process),
            ("control", std::process::id() as i32)
        );
        assert_eq!(reporter.thread, Some(Tid::current()));
        assert_eq!((reporter.deadline, reporter.period), (Some(Nanos(5)), Some(Nanos(7))));
        let taken = jobs(reporter);
        assert_eq!(
            taken.iter().map(|job| job.released).collect::<Vec<_>>(),
            [Some(before), None]
        );
        assert!(before <= taken[0].begun && taken[0].ended <= taken[1].begun && taken[1].ended <= LinuxOs.now());
        assert!(
            reporter
                .source
                .open_job()
                .is_some_and(|(released, begun)| released.is_none() && begun >= taken[1].ended)
        );
        control.end();
        assert_eq!(
            (
                jobs(reporter).len(),
                reporter.source.open_job(),
                reporter.source.is_closed()
            ),
            (1, None, false)
        );
    }
    let mut listener = Listener::start(folder.path()).unwrap();
    control.job();
    let mut came = reporters(&mut listener);
    drop(control);
    assert!(came[0].source.is_closed() && jobs(&mut came[0]).len() == 1);
}

#[test]
fn a_ring_that_is_not_read_drops_and_counts_and_misuse_is_counted() {
    let folder = TempDir::new().unwrap();
    let mut listener = Listener::start(folder.path()).unwrap();
    let mut control = JobReporter::open_in(folder.path(), "control").unwrap();
    (0..RECORDS + 5).for_each(|_| drop(control.job()));
    control.end();
    control.begin();
    control.begin();
    let mut came = reporters(&mut listener);
    assert_eq!((came[0].source.dropped(), came[0].source.misused()), (5, 2));
    assert_eq!(jobs(&mut came[0]).len(), RECORDS);
    control.end();
    assert_eq!(jobs(&mut came[0]).len(), 1);
}

#[test]
fn a_second_listener_is_refused_and_names_are_bounded() {
    let folder = TempDir::new().unwrap();
    let listener = Listener::start(folder.path()).unwrap();
    let refusal = Listener::start(folder.path()).unwrap_err();
    assert!(
        refusal.why.contains(&format!("process {}", std::process::id())),
        "{refusal}"
    );
    drop(listener);
    Listener::start(folder.path()).unwrap();
    for wrong in ["", &"x".repeat(64), &"x".repeat(1 << 20), "a\0b"] {
        let refusal = JobReporter::open_in(folder.path(), wrong).unwrap_err();
        assert!(
            refusal.to_string().len() < 300 && refusal.why.contains("63"),
            "{refusal}"
        );
    }
    assert!(JobReporter::open_in(folder.path(), &"x".repeat(63)).is_ok());
}

#[test]
fn ten_thousand_names_are_bounded_and_unwanted_ones_leave_nothing() {
    let folder = TempDir::new().unwrap();
    let mut listener = Listener::start(folder.path()).unwrap();
    // Tests beside this one open other files, and a few rings, for which there is room below.
    let own = fs::canonicalize(folder.path()).unwrap();
    let open = || {
        let targets = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = targets.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        let is_own = |target: &std::path::PathBuf| {
            target.starts_with(&own) || target.to_string_lossy().contains("punctual jobs")
        };
        targets.filter(is_own).count()
    };
    let before = open();
    let mut came = 0;
    for number in 0..10_000 {
        let mut reporter = JobReporter::open_in(folder.path(), &format!("task {number}")).unwrap();
        drop(reporter.job());
        came += listener.arrivals(&|name| name == "task 77").len();
    }
    assert_eq!(came, 1);
    assert!(open() < before + 20, "{} descriptors before, {} now", before, open());
}

#[test]
fn a_forked_child_reports_nothing_by_its_parents_reporter() {
    let folder = TempDir::new().unwrap();
    let mut listener = Listener::start(folder.path()).unwrap();
    let mut control = JobReporter::open_in(folder.path(), "control").unwrap();
    control.begin();
    // SAFETY: the child makes system calls and touches memory of its own only.
    let child = unsafe { libc_fork() };
    if child == 0 {
        control.end();
        control.begin();
        // SAFETY: ends the child at once.
        unsafe { _exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for our child, with a valid place for the status.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    let mut came = reporters(&mut listener);
    assert!(came[0].source.open_job().is_some() && came[0].source.misused() == 0);
    control.end();
    assert_eq!(jobs(&mut came[0]).len(), 1);
}

unsafe extern "C" {
    #[link_name = "fork"]
    fn libc_fork() -> i32;
    fn _exit(code: i32) -> !;
    fn waitpid(process: i32, status: &mut i32, options: i32) -> i32;
}

#[test]
fn scripts_report_by_messages_and_other_words_are_refused() {
    let folder = TempDir::new().unwrap();
    note(folder.path(), "backup", true).unwrap(); // no one listens
    let mut listener = Listener::start(folder.path()).unwrap();
    let before = LinuxOs.now();
    note(folder.path(), "backup", true).unwrap();
    note(folder.path(), "backup", false).unwrap();
    assert!(note(folder.path(), "a b", true).is_err());
    let came = listener.arrivals(&|_| true);
    let [
        Arrival::Note {
            name, begins: true, at, ..
        },
        Arrival::Note { begins: false, .. },
    ] = &came[..]
    else {
        panic!("{came:?}");
    };
    assert!(name == "backup" && *at >= before);
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    for wrong in [
        &b"begin"[..],
        b"begin a b c",
        b"stop a",
        b"ring",
        b"\xff\xff",
        b"begin a -1",
    ] {
        socket.send_to(wrong, folder.path().join("jobs.socket")).unwrap();
    }
    assert_eq!((listener.arrivals(&|_| true).len(), listener.refused()), (0, 6));
    // More than the kernel keeps for a listener that is stopped.
    (0..2000).for_each(|_| note(folder.path(), "backup", true).unwrap());
}

/// A message `ring` with a descriptor, from a program of its own mind.
fn hand_over(folder: &std::path::Path, file: std::os::fd::RawFd) {
    let script = "import array, os, socket, sys\n\
        plug = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))]\n\
        plug.sendmsg([b'ring'], rights, 0, sys.argv[1])\n";
    // SAFETY: the caller's descriptor is open.
    let ring = unsafe { std::os::fd::BorrowedFd::borrow_raw(file) }
        .try_clone_to_owned()
        .unwrap();
    let sent = { std::process::Command::new("python3") }
        .args(["-c", script])
        .arg(folder.join("jobs.socket"))
        .stdin(ring)
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn python_names_the_wrong_argument_and_its_range() {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");
    for (call, said) in [
        ("Job('x', deadline=-1)", "ValueError: deadline=-1: give"),
        ("Job('x', period=float('nan'))", "ValueError: period=nan: give"),
    ] {
        let script = format!("import punctual_job; punctual_job.{call}");
        let ended = { std::process::Command::new("python3") }
            .args(["-B", "-c", &script])
            .env("PYTHONPATH", module)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn a_regular_file_is_no_ring() {
    let folder = TempDir::new().unwrap();
    let mut listener = Listener::start(folder.path()).unwrap();
    let control = JobReporter::open_in(folder.path(), "control").unwrap();
    let path = folder.path().join("file");
    // SAFETY: the ring is as large, and lives longer.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(control.ring()).cast::<u8>(), BYTES) };
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    hand_over(folder.path(), file.as_raw_fd());
    assert_eq!((listener.arrivals(&|_| true).len(), listener.refused()), (0, 1));
}

#[test]
fn a_thread_of_another_process_is_not_taken_for_the_reporters() {
    let folder = TempDir::new().unwrap();
    let mut listener = Listener::start(folder.path()).unwrap();
    let mut control = JobReporter::open_in(folder.path(), "control").unwrap();
    control.job();
    let ours = reporters(&mut listener);
    assert_eq!(
        (ours[0].thread, ours[0].thread_is_missing),
        (Some(Tid::current()), false)
    );
    let mut control = JobReporter::open_in(folder.path(), "control").unwrap();
    control.begin();
    control.ring().thread.store(1, Relaxed);
    let came = reporters(&mut listener);
    assert_eq!((came[0].thread, came[0].thread_is_missing), (None, true));
}

#[test]
fn a_ring_whose_head_runs_away_is_read_in_portions() {
    let folder = TempDir::new().unwrap();
    let mut listener = Listener::start(folder.path()).unwrap();
    let mut control = JobReporter::open_in(folder.path(), "control").unwrap();
    control.job();
    let mut came = reporters(&mut listener);
    let (ring, stop) = (control.ring(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                ring.head.store(ring.tail.load(Relaxed) + 100, Relaxed);
            }
        });
        (0..100).for_each(|_| assert!(came[0].source.jobs().len() <= RECORDS));
        stop.store(true, Relaxed);
    });
}

#[test]
fn the_superuser_listens_in_a_users_folder_with_that_users_rights() {
    const OTHER: u32 = 65534;
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    if std::os::unix::fs::chown(folder.path(), Some(OTHER), None).is_err() {
        return eprintln!("skipped: needs the superuser");
    }
    let (page, socket) = (folder.path().join("jobs"), folder.path().join("jobs.socket"));
    let secret = other.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let untouched = || {
        let found = secret.metadata().unwrap();
        assert_eq!((found.uid(), found.len()), (0, 6));
    };
    std::os::unix::fs::symlink(&secret, &page).unwrap();
    assert!(Listener::start(folder.path()).is_err());
    untouched();
    std::fs::remove_file(&page).unwrap();
    std::os::unix::fs::symlink(&secret, &socket).unwrap();
    let listener = Listener::start(folder.path()).unwrap();
    untouched();
    let found = socket.symlink_metadata().unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (OTHER, 0o700));
    assert_eq!(page.metadata().unwrap().uid(), OTHER);
    // Its user takes the page away, and puts a link in the socket's place.
    std::fs::File::options()
        .write(true)
        .open(&page)
        .unwrap()
        .set_len(0)
        .unwrap();
    drop(listener);
    let refusal = JobReporter::open_in(folder.path(), "control").unwrap_err();
    assert!(refusal.why.contains("belongs to user 65534"), "{refusal}");
    let missing = other.path().join("missing");
    let refusal = Listener::start(&missing).unwrap_err();
    assert!(refusal.remedy.contains("as its user") && !missing.exists(), "{refusal}");
}

#[test]
fn a_link_is_no_folder_and_no_page() {
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let link = other.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    assert!(JobReporter::open_in(&link, "control").is_err() && Listener::start(&link).is_err());
    let victim = other.path().join("victim");
    std::fs::write(&victim, "short").unwrap();
    std::os::unix::fs::symlink(&victim, folder.path().join("jobs")).unwrap();
    assert!(JobReporter::open_in(folder.path(), "control").is_err());
    assert_eq!(victim.metadata().unwrap().len(), 5);
}

proptest! {
    /// Whatever a program writes into its ring, the reader takes at most as many jobs as fit, with times in order.
    #[test]
    fn any_ring_is_read(head: u64, fields: [u64; 4], open: [u64; 2]) {
        let folder = TempDir::new().unwrap();
        let mut listener = Listener::start(folder.path()).unwrap();
        let mut control = JobReporter::open_in(folder.path(), "control").unwrap();
        control.job();
        let mut came = reporters(&mut listener);
        let ring = control.ring();
        ring.head.store(head, Relaxed);
        for record in &ring.records {
            let of = [&record.number, &record.released, &record.begun, &record.ended];
            of.iter().zip(fields).for_each(|(field, value)| field.store(value, Relaxed));
        }
        ring.open_released.store(open[0], Relaxed);
        ring.open_begun.store(open[1], Relaxed);
        let now = LinuxOs.now();
        let taken = jobs(&mut came[0]);
        prop_assert!(taken.len() <= RECORDS);
        for job in taken {
            prop_assert!(job.released.unwrap_or(job.begun) <= job.begun && job.begun <= job.ended);
            prop_assert!(job.ended <= now.max(LinuxOs.now()));
        }
        if let Some((released, begun)) = came[0].source.open_job() {
            prop_assert!(released.unwrap_or(begun) <= begun && begun > Time::ZERO);
        }
    }
}

/// As of a program that another thread starts, between fork(2) and execve(2).
#[test]
fn a_listener_that_ends_leaves_no_lock_in_a_copy_of_its_descriptors() {
    let folder = TempDir::new().unwrap();
    let listener = Listener::start(folder.path()).unwrap();
    let is_locked = |descriptor: &fs::DirEntry| {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        target.starts_with(folder.path()) && !target.to_string_lossy().contains("socket")
    };
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_locked);
    let copies: Vec<OwnedFd> = open
        .map(|descriptor| {
            let number = descriptor.file_name().to_string_lossy().parse().unwrap();
            // SAFETY: the listener has the descriptor open.
            unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().unwrap()
        })
        .collect();
    assert_eq!(copies.len(), 1);
    drop(listener);
    drop(Listener::start(folder.path()).unwrap());
}

//! Each cause is injected into real runs and found by its name among the late jobs, with the thread that is to blame.
//! A busy machine makes more jobs late, for reasons of its own: nothing here depends on there being none.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Write as _;
use std::ops::Bound;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use punctual_engines::Memory;
use punctual_os::{LinuxOs, Scheduling};
use punctual_platform::linux::switches::Switches;
use punctual_platform::linux::thread::{current_core, pin, real_time, thread_cpu_time};
use punctual_runtime::linux::{Job, Runtime};
use punctual_runtime::report::{Activity, CauseReport, Culprit, TaskReport};
use punctual_store::engine::{
    EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, SnapshotId, Space, Table, Write,
};
use punctual_store::{Deadline, Store, StoreError, StoreOptions};
use punctual_testing::{machine, wait_ok, wait_until};
use punctual_units::{CoreId, Nanos};
use punctual_workload::{Cause, Durability};

/// What a commit takes that writes the key [`SLOW`].
const SYNC: Duration = Duration::from_millis(40);
const SLOW: &[u8] = b"slow";

/// Least mean, in us, that tells an injected cause of 30 ms and more. The job behind has it for 10 ms and more, so the
/// mean of both is 20 ms.
const INJECTED_US: f64 = 10_000.0;

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A durable engine whose medium is slow at times.
#[derive(Default)]
struct SlowMedium(Memory);

struct SlowWrite<'e> {
    inner: <Memory as Engine>::Write<'e>,
    slow: bool,
}

impl Engine for SlowMedium {
    type Snapshot<'e> = <Memory as Engine>::Snapshot<'e>;
    type Write<'e> = SlowWrite<'e>;

    fn snapshot_for(&self, reader: Reader) -> Result<Self::Snapshot<'_>, EngineError> {
        self.0.snapshot_for(reader)
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        self.0.snapshots()
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        self.0.end(snapshot, age, why)
    }

    fn space(&self) -> Result<Space, EngineError> {
        self.0.space()
    }

    fn write(&self) -> Result<SlowWrite<'_>, EngineError> {
        Ok(SlowWrite {
            inner: self.0.write()?,
            slow: false,
        })
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn durability(&self) -> Durability {
        Durability::Durable
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl<'e> Read for SlowWrite<'e> {
    type Cursor<'t>
        = <<Memory as Engine>::Write<'e> as Read>::Cursor<'t>
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        self.inner.get_with(table, key, look)
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Self::Cursor<'_>, EngineError> {
        self.inner.cursor(table, range, back)
    }
}

impl Write for SlowWrite<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.slow |= key == SLOW;
        self.inner.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        self.inner.delete(table, key)
    }

    fn commit(self) -> Result<(), EngineError> {
        if self.slow {
            // The injected cause.
            std::thread::sleep(SYNC);
        }
        self.inner.commit()
    }
}

type Here = Store<SlowMedium, LinuxOs>;

/// What a thread beside the task does, until it is over.
type SideWork = Box<dyn Fn(&Here, &AtomicBool) + Send>;

fn store() -> Arc<Here> {
    let options = StoreOptions {
        lock_wait_max: Nanos::from_secs(60),
        ..StoreOptions::default()
    };
    Arc::new(Store::open(SlowMedium::default(), LinuxOs, options).unwrap())
}

/// Uses the core for so long, however often others have it.
fn work(span: Nanos) {
    let before = thread_cpu_time();
    while thread_cpu_time().saturating_sub(before) < span {}
}

/// Runs a task every 20 ms that is due in 10 ms until `found` in its causes; beside it runs `thread`, if there is one.
fn finds(
    cause: Cause,
    job: impl FnMut(&mut Job<'_, SlowMedium>) -> Result<(), StoreError> + Send + 'static,
    thread: Option<(&str, SideWork)>,
    found: impl Fn(&CauseReport) -> bool,
) -> TaskReport {
    finds_in(job, thread, |causes| {
        causes.iter().any(|it| it.cause == cause && found(it))
    })
}

/// The same, of all its causes. Each injects load that would be another test's cause.
fn finds_in(
    mut job: impl FnMut(&mut Job<'_, SlowMedium>) -> Result<(), StoreError> + Send + 'static,
    thread: Option<(&str, SideWork)>,
    found: impl Fn(&[CauseReport]) -> bool,
) -> TaskReport {
    let _machine = machine();
    let store = store();
    let runtime = Runtime::start(Arc::clone(&store)).unwrap();
    let steer = runtime.task("steer").every(ms(20)).due_in(ms(10));
    steer.run(move |it| job(it)).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let beside = thread.map(|(name, body)| {
        let (store, over) = (Arc::clone(&store), Arc::clone(&over));
        let thread = std::thread::Builder::new().name(name.into());
        thread.spawn(move || body(&store, &over)).unwrap()
    });
    wait_ok("causes as injected", || {
        let figures = runtime.figures().unwrap();
        let causes = figures.task("steer").map_or(&[][..], |task| &task.causes);
        if found(causes) { Ok(()) } else { Err(causes.to_vec()) }
    });
    over.store(true, Ordering::Relaxed);
    if let Some(beside) = beside {
        beside.join().unwrap();
    }
    let report = runtime.stop().unwrap().report.tasks.remove(0);
    // Each late job has one cause, and what is told of one adds up.
    assert_eq!(report.causes.iter().map(|it| it.jobs).sum::<u64>(), report.late);
    for late in &report.late_jobs {
        let sum: f64 = late.spans_us.values().sum();
        assert!((sum - late.late_us - 10_000.0).abs() < 1.0, "{late:?}");
        let by: f64 = late.by.iter().map(|it| it.us).sum();
        assert!(by <= late.us + 1.0 || late.cause == Cause::Lock, "{late:?}");
    }
    report
}

fn by<'c>(it: &'c CauseReport, name: &str) -> Option<&'c Culprit> {
    it.by.iter().find(|culprit| culprit.name == name)
}

/// Each fourth job does it.
fn at_times(job: &Job<'_, SlowMedium>) -> bool {
    job.number() % 4 == 3
}

#[test]
fn a_lock_is_told_with_the_thread_that_held_it_and_what_that_did() {
    let writes = |job: &mut Job<'_, SlowMedium>| job.write(|store| store.put(b"a", b"1"));
    let logger: SideWork = Box::new(|store, over| {
        while !over.load(Ordering::Relaxed) {
            let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
            transaction.put(b"log", b"line").unwrap();
            // The injected cause, and time for jobs without it.
            std::thread::sleep(SYNC);
            transaction.commit().unwrap();
            std::thread::sleep(SYNC);
        }
    });
    finds(Cause::Lock, writes, Some(("logger", logger)), |it| {
        by(it, "logger").is_some_and(|it| it.doing == Some(Activity::Working) && it.thread.is_some())
    });
    let syncer: SideWork = Box::new(|store, over| {
        while !over.load(Ordering::Relaxed) {
            store.put(SLOW, b"line").unwrap();
            // Time for jobs without the injected cause.
            std::thread::sleep(SYNC);
        }
    });
    finds(Cause::Lock, writes, Some(("syncer", syncer)), |it| {
        by(it, "syncer").is_some_and(|it| it.doing == Some(Activity::Syncing))
    });
}

#[test]
fn a_sync_of_its_own_is_told() {
    let syncs = |job: &mut Job<'_, SlowMedium>| {
        let key = if at_times(job) { SLOW } else { b"fast" };
        job.write(|store| store.put(key, b"1"))
    };
    finds(Cause::Sync, syncs, None, |it| it.us_mean >= INJECTED_US);
}

#[test]
fn a_longer_computation_is_told_and_the_jobs_behind_it() {
    let computes = |job: &mut Job<'_, SlowMedium>| {
        work(if job.number() % 8 == 3 { ms(60) } else { ms(1) });
        Ok(())
    };
    let is_long = |it: &CauseReport| {
        let is_usual_less = it.usual_us.is_some_and(|usual| usual < it.us_mean);
        it.cause == Cause::Computation && it.us_mean >= INJECTED_US && is_usual_less
    };
    finds_in(computes, None, |causes| {
        causes.iter().any(|it| is_long(it) && it.behind > 0)
    });
}

#[test]
fn releases_that_are_skipped_behind_a_long_job_have_its_cause() {
    let blocks = |job: &mut Job<'_, SlowMedium>| {
        work(if job.number() % 64 == 3 { ms(1_000) } else { Nanos::ZERO });
        Ok(())
    };
    let told = finds(Cause::Computation, blocks, None, |it| it.behind > 8);
    assert!(told.skipped > 0, "{told:#?}");
}

#[test]
fn sleep_is_told() {
    let sleeps = |job: &mut Job<'_, SlowMedium>| {
        if at_times(job) {
            // The injected cause.
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(())
    };
    finds(Cause::Asleep, sleeps, None, |it| it.us_mean >= INJECTED_US);
}

#[test]
fn a_slow_call_of_the_store_is_told() {
    let reads = |job: &mut Job<'_, SlowMedium>| {
        let span = if at_times(job) { ms(30) } else { Nanos::ZERO };
        job.read(|store| {
            let all = (Bound::Unbounded, Bound::Unbounded);
            store.scan(all, |_, _| {
                work(span);
                std::ops::ControlFlow::Break(())
            })
        })
    };
    let put: SideWork = Box::new(|store, _| store.put(b"a", b"1").unwrap());
    finds(Cause::Data, reads, Some(("put", put)), |it| it.us_mean >= INJECTED_US);
}

#[test]
fn a_thread_that_takes_the_core_is_told_by_its_name() {
    const HOG: u8 = 90;
    static CORE: AtomicU32 = AtomicU32::new(u32::MAX);
    let allowed = std::thread::spawn(|| {
        let core = current_core().unwrap_or(CoreId(0));
        Switches::of(core).map(drop).and_then(|()| real_time(HOG))
    });
    if let Err(refusal) = allowed.join().unwrap() {
        return eprintln!("skipped: {refusal}");
    }
    let computes = |_: &mut Job<'_, SlowMedium>| {
        CORE.store(current_core().map_or(u32::MAX, |core| core.0), Ordering::Relaxed);
        work(ms(2));
        Ok(())
    };
    let hog: SideWork = Box::new(|_, over| {
        wait_until("the task runs on a core", || CORE.load(Ordering::Relaxed) != u32::MAX);
        pin(CoreId(CORE.load(Ordering::Relaxed))).unwrap();
        real_time(HOG).unwrap();
        while !over.load(Ordering::Relaxed) {
            work(ms(30));
            // Time for jobs without the injected cause.
            std::thread::sleep(Duration::from_millis(70));
        }
    });
    finds(Cause::Preempted, computes, Some(("hog", hog)), |it| {
        by(it, "hog")
            .is_some_and(|it| it.scheduling == Some(Scheduling::Fifo(HOG)) && it.process.is_none() && it.us > 5_000.0)
    });
}

/// A file of which no page is in memory.
struct Cold {
    file: File,
    bytes: usize,
    mapped: *const u8,
}

// SAFETY: the mapping is only read, and lives as long as this value.
unsafe impl Send for Cold {}

impl Cold {
    const PAGES: usize = 600;
    /// Far enough apart that none is read with another.
    const APART: usize = 64 << 10;

    fn new(folder: &Path) -> Cold {
        let bytes = Self::PAGES * Self::APART;
        let path = folder.join("cold");
        let mut file = File::create_new(&path).unwrap();
        file.write_all(&vec![1; bytes]).unwrap();
        file.sync_all().unwrap();
        let file = File::open(path).unwrap();
        // SAFETY: a new mapping of a file that is open; the kernel chooses the place.
        let mapped = unsafe {
            let fd = file.as_raw_fd();
            let mapped = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
            assert_ne!(mapped, libc::MAP_FAILED);
            assert_eq!(libc::madvise(mapped, bytes, libc::MADV_RANDOM), 0);
            mapped.cast()
        };
        Cold { file, bytes, mapped }
    }

    /// Drops all pages; false where the file system keeps them.
    fn drop_pages(&self) -> bool {
        let at = self.mapped.cast_mut().cast();
        let mut resident = vec![0u8; self.bytes.div_ceil(4096)];
        // SAFETY: all calls are on the mapping that this value has, and only drop what the file has.
        unsafe {
            // The runtime locks all memory.
            libc::munlock(at, self.bytes);
            libc::madvise(at, self.bytes, libc::MADV_DONTNEED);
            libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
            libc::mincore(at, self.bytes, resident.as_mut_ptr());
        }
        resident.iter().filter(|page| **page & 1 == 1).count() < resident.len() / 2
    }

    /// Reads a byte of each of many pages.
    fn touch(&self) {
        for page in 0..Self::PAGES {
            // SAFETY: within the mapping.
            std::hint::black_box(unsafe { self.mapped.add(page * Self::APART).read_volatile() });
        }
    }
}

#[test]
fn page_faults_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let cold = Cold::new(folder.path());
    if !cold.drop_pages() {
        return eprintln!("skipped: {} keeps its pages in memory", folder.path().display());
    }
    let waited = || {
        cold.drop_pages();
        let (began, used) = (std::time::Instant::now(), thread_cpu_time());
        cold.touch();
        Nanos::from(began.elapsed()).saturating_sub(thread_cpu_time().saturating_sub(used))
    };
    if let Some(quickest) = (0..3).map(|_| waited()).min().filter(|wait| *wait < ms(20)) {
        return eprintln!("skipped: pages are read in {quickest}, too soon to be late");
    }
    let reads = move |job: &mut Job<'_, SlowMedium>| {
        match job.number() % 4 {
            2 => drop(cold.drop_pages()),
            3 => cold.touch(),
            _ => {}
        }
        Ok(())
    };
    let report = finds(Cause::PageFault, reads, None, |it| it.us_mean >= 1_000.0);
    // The worst jobs are kept one by one, which on a busy machine may be others; one of this cause has read pages, or
    // waited behind one that has, and a job that has read none has another cause.
    for late in &report.late_jobs {
        let has_read = late.behind || late.major_faults > 0;
        assert!(late.cause != Cause::PageFault || has_read, "{late:#?}");
        assert!(
            late.major_faults > 0 || !late.spans_us.contains_key(&Cause::PageFault),
            "{late:#?}"
        );
    }
}

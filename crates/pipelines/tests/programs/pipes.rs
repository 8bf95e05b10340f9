//! Programs with pipes, and files, as the ends and in the middle of a pipeline.

use std::alloc::{GlobalAlloc, System};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use punctual_pipelines::linux::*;
use punctual_pipelines::*;
use punctual_testing::{WAIT_MAX, wait_until};
use punctual_units::Nanos;

const FRAME: usize = 1000;

/// Hands each frame on, every byte one higher.
struct Add;

impl Stage for Add {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
        for number in 0..frames.count(0) {
            let (input, head) = (frames.input(0, number), frames.head(0, number));
            let output = &mut frames.output(0)[..input.len()];
            output
                .iter_mut()
                .zip(input)
                .for_each(|(out, byte)| *out = byte.wrapping_add(1));
            frames.make(0, input.len(), head);
        }
        Ok(())
    }
}

/// `source` to `add` to `sink`; of the tag "middle" with a program between.
fn graph(tag: &str) -> Graph {
    let edge = EdgeSpec {
        slots: 4,
        frame_bytes: FRAME,
        full: WhenFull::Wait,
    };
    let graph = Graph::builder("pipes")
        .stage(StageSpec::new("source").makes(&[1]).pinned())
        .stage(StageSpec::new("add").takes(&[1]).makes(&[1]))
        .stage(StageSpec::new("sink").takes(&[1]).pinned())
        .edge(("source", 0), ("add", 0), edge);
    let graph = match tag {
        "middle" => graph
            .stage(StageSpec::new("in").takes(&[1]).pinned())
            .stage(StageSpec::new("out").makes(&[1]).pinned())
            .edge(("add", 0), ("in", 0), edge)
            .edge(("out", 0), ("sink", 0), edge),
        _ => graph.edge(("add", 0), ("sink", 0), edge),
    };
    graph.build().unwrap()
}

fn started(tag: &str) -> Pipeline {
    let options = PipelineOptions {
        tag: tag.into(),
        ..PipelineOptions::default()
    };
    Pipeline::start(
        graph(tag),
        &options,
        Arc::new(|name| (name == "add").then(|| erase(Add))),
    )
    .unwrap()
}

fn shell(script: &str) -> Peer {
    Peer::Program(vec!["sh".into(), "-c".into(), script.into()])
}

fn piped(name: &str, peer: Peer) -> PipeSpec {
    PipeSpec {
        name: name.into(),
        takes: (name != "source").then(|| if name == "sink" { "sink" } else { "in" }.into()),
        makes: (name != "sink").then(|| if name == "source" { "source" } else { "out" }.into()),
        peer,
        period: None,
        deadline: Some(Nanos::from_secs(100)),
        restart: false,
    }
}

/// Runs to its end, or until `stop` says so; what became of each, and why it was slow.
fn run(pipeline: &Pipeline, pipes: Pipes, stop: impl Fn(&Pipes, Duration)) -> Vec<PipeReport> {
    let begun = Instant::now();
    while !pipes.are_over() {
        assert!(begun.elapsed() < WAIT_MAX, "not over after {WAIT_MAX:?}");
        assert!(pipeline.supervisor().runs(), "the pipeline has ended by itself");
        stop(&pipes, begun.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    pipes.finish()
}

fn good(reports: &[PipeReport]) {
    for report in reports {
        assert!(report.failure.is_none(), "{report:?}");
        assert!(!report.killed, "{report:?}");
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * at / 7) as u8).collect()
}

fn raised(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte.wrapping_add(1)).collect()
}

/// What goes in comes out, whatever the length, from and to programs and files.
fn all_of_it(folder: &Path) {
    for length in [0, 1, FRAME, 50 * FRAME + 17] {
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::write(&from, bytes(length)).unwrap();
        let pipeline = started("");
        let source = piped("source", shell(&format!("cat {}", from.display())));
        let sink = piped("sink", shell(&format!("cat > {}", to.display())));
        let pipes = Pipes::start(&pipeline, vec![source, sink]).unwrap();
        good(&run(&pipeline, pipes, |_, _| {}));
        assert_eq!(fs::read(&to).unwrap(), raised(&bytes(length)), "{length} bytes");
        let told = pipeline.tardiness("sink").unwrap();
        assert_eq!(told.frames, length.div_ceil(FRAME) as u64, "{length} bytes");
        assert_eq!((told.timed, told.late), (told.frames, 0), "{told:?}");
        pipeline.end().unwrap();

        let pipeline = started("");
        let source = piped("source", Peer::From(Box::new(fs::File::open(&from).unwrap())));
        let sink = piped("sink", Peer::To(Box::new(fs::File::create(&to).unwrap())));
        let pipes = Pipes::start(&pipeline, vec![source, sink]).unwrap();
        good(&run(&pipeline, pipes, |_, _| {}));
        assert_eq!(
            fs::read(&to).unwrap(),
            raised(&bytes(length)),
            "a file of {length} bytes"
        );
    }
}

/// Programs in the middle, one that passes bytes on and one that holds all of them back until its input ends.
fn in_the_middle(folder: &Path) {
    let (from, to) = (folder.join("from"), folder.join("to"));
    let length = 200 * FRAME + 3;
    fs::write(&from, bytes(length)).unwrap();
    for program in [
        "cat",
        "gzip -c | gunzip -c",
        "cat > /dev/null; echo all",
        "exec 1>&-; cat > /dev/null",
    ] {
        let pipeline = started("middle");
        let source = piped("source", shell(&format!("cat {}", from.display())));
        let sink = piped("sink", shell(&format!("cat > {}", to.display())));
        let pipes = Pipes::start(&pipeline, vec![source, piped("middle", shell(program)), sink]).unwrap();
        good(&run(&pipeline, pipes, |_, _| {}));
        let expected = match program {
            program if program.contains("all") => b"all\n".to_vec(),
            program if program.contains("&-") => Vec::new(),
            _ => raised(&bytes(length)),
        };
        assert_eq!(fs::read(&to).unwrap(), expected, "through {program}");
        pipeline.end().unwrap();
    }
}

/// A program that takes no more ends the pipeline in order, and sources that never end with it.
fn enough(folder: &Path) {
    let to = folder.join("to");
    let pipeline = started("");
    let source = piped("source", shell("while :; do echo 0123456789; done"));
    let sink = piped("sink", shell(&format!("head -c 5000 > {}", to.display())));
    let pipes = Pipes::start(&pipeline, vec![source, sink]).unwrap();
    let ended = |pipes: &Pipes, _| {
        if pipeline.sinks_have_ended() {
            pipes.end_sources();
        }
    };
    let reports = run(&pipeline, pipes, ended);
    good(&reports);
    assert_eq!(fs::metadata(&to).unwrap().len(), 5000);
    pipeline.end().unwrap();
}

/// A file without an end ends when it is told to, and what was read goes through.
fn told_to_end() {
    for period in [None, Some(Nanos::from_millis(1)), Some(Nanos::from_secs(1000))] {
        let pipeline = started("");
        let mut source = piped("source", Peer::From(Box::new(std::io::repeat(7))));
        source.period = period;
        let sink = piped("sink", Peer::To(Box::new(std::io::sink())));
        let pipes = Pipes::start(&pipeline, vec![source, sink]).unwrap();
        let taken = || pipeline.tardiness("sink").unwrap().frames;
        let begun = |pipes: &Pipes, _| {
            if taken() > 0 {
                pipes.end_sources();
            }
        };
        good(&run(&pipeline, pipes, begun));
        assert_eq!(pipeline.counts().made("source"), taken(), "{period:?}");
    }
}

fn failing(source: Peer, middle: Option<Peer>, sink: Peer) -> String {
    let pipeline = started(if middle.is_some() { "middle" } else { "" });
    let mut all = vec![piped("source", source)];
    all.extend(middle.map(|middle| piped("middle", middle)));
    all.push(piped("sink", sink));
    let pipes = Pipes::start(&pipeline, all).unwrap();
    let reports = run(&pipeline, pipes, |_, _| {});
    let failures: Vec<String> = { reports.iter() }
        .filter_map(|report| Some(report.failure.as_ref()?.to_string()))
        .collect();
    failures.join("; ")
}

/// Programs that fail are named with their exit status; what came before is handed on.
fn failures(folder: &Path) {
    let to = folder.join("to");
    let sink = || shell(&format!("cat > {}", to.display()));
    let endless = || shell("while :; do echo 0123456789; done");
    let told = failing(shell("printf 0123; exit 7"), None, sink());
    assert!(told.starts_with("stage \"source\": "), "{told}");
    assert!(
        told.contains("`sh -c printf 0123; exit 7`") && told.ends_with("exit status 7"),
        "{told}"
    );
    assert_eq!(fs::read(&to).unwrap(), b"1234");
    let told = failing(endless(), None, shell("exit 3"));
    assert!(
        told.contains("stage \"sink\"") && told.contains("exit status 3"),
        "{told}"
    );
    let told = failing(endless(), None, shell("head -c 3000 > /dev/null; kill -9 $$"));
    assert!(
        told.contains("stage \"sink\"") && told.contains("was killed by signal 9"),
        "{told}"
    );
    let told = failing(endless(), Some(shell("head -c 3000; exit 5")), sink());
    assert!(
        told.contains("stage \"middle\"") && told.contains("exit status 5"),
        "{told}"
    );
    assert_eq!(fs::metadata(&to).unwrap().len(), 3000);
}

fn not_there() {
    let pipeline = started("");
    let sink = || piped("sink", shell("cat > /dev/null"));
    let missing = piped("source", Peer::Program(vec!["no-such-program".into()]));
    let told = Pipes::start(&pipeline, vec![sink(), missing]).unwrap_err().to_string();
    assert!(
        told.starts_with("stage \"source\": ") && told.contains("`no-such-program` does not start"),
        "{told}"
    );
    pipeline.end().unwrap();
    let pipeline = started("");
    let mut other = sink();
    other.takes = Some("add".into());
    assert!(
        Pipes::start(&pipeline, vec![other])
            .unwrap_err()
            .to_string()
            .contains("\"add\"")
    );
}

/// A program that does not read makes the stages before it wait, and the workers go on.
fn not_reading(folder: &Path) {
    let go = folder.join("go");
    let pipeline = started("");
    let source = piped("source", shell("head -c 400000 /dev/zero"));
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.01; done; wc -c > {}",
        go.display(),
        folder.join("to").display()
    );
    let pipes = Pipes::start(&pipeline, vec![source, piped("sink", shell(&script))]).unwrap();
    let begun = Instant::now();
    let mut last = (0, Instant::now());
    // Until no stage makes a step any more.
    while last.1.elapsed() < Duration::from_millis(300) {
        let steps = pipeline.supervisor().stages().iter().map(|stage| stage.steps).sum();
        if steps != last.0 {
            last = (steps, Instant::now());
        }
        assert!(begun.elapsed() < WAIT_MAX);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(last.0 < 3 * 400, "{} steps, and the program reads nothing", last.0);
    fs::write(&go, "").unwrap();
    good(&run(&pipeline, pipes, |_, _| {}));
    assert_eq!(fs::read_to_string(folder.join("to")).unwrap().trim(), "400000");
}

/// A program that never ends is killed at the end, with what it has started.
fn never_ends(folder: &Path) {
    let number = folder.join("number");
    let pipeline = started("");
    let script = format!("sleep 1000 & echo $! > {}; cat > /dev/null; wait", number.display());
    let source = piped("source", shell("printf abc; exec sleep 1000"));
    let pipes = Pipes::start(&pipeline, vec![source, piped("sink", shell(&script))]).unwrap();
    // The shell makes the file before it writes to it.
    wait_until("a number", || {
        fs::read_to_string(&number).is_ok_and(|text| text.ends_with('\n'))
    });
    let reports = pipes.finish();
    assert!(reports.iter().all(|report| report.failure.is_none()), "{reports:?}");
    let left: i32 = fs::read_to_string(&number).unwrap().trim().parse().unwrap();
    wait_until("the process that the program has started is gone", || {
        fs::read_link(format!("/proc/{left}/exe")).is_err()
    });
}

/// A source that fails goes on as another process, and so does a sink; the gap is told.
fn again(folder: &Path) {
    let (count, to) = (folder.join("count"), folder.join("to"));
    fs::write(&count, "").unwrap();
    let _ = fs::remove_file(&to);
    let pipeline = started("");
    // Three processes, the last of which ends well.
    let script = format!("printf x >> {0}; printf abc; [ $(wc -c < {0}) = 3 ]", count.display());
    let mut source = piped("source", shell(&script));
    source.restart = true;
    let sink = piped("sink", shell(&format!("cat > {}", to.display())));
    let pipes = Pipes::start(&pipeline, vec![source, sink]).unwrap();
    let reports = run(&pipeline, pipes, |_, _| {});
    good(&reports);
    assert_eq!(reports[0].restarts, 2);
    assert_eq!(fs::read(&to).unwrap(), b"bcdbcdbcd");
    pipeline.end().unwrap();

    let pipeline = started("");
    let mut sink = piped("sink", shell(&format!("head -c 2500 >> {}; exit 1", to.display())));
    sink.restart = true;
    let source = piped("source", shell("head -c 100000 /dev/zero"));
    fs::write(&to, "").unwrap();
    let pipes = Pipes::start(&pipeline, vec![source, sink]).unwrap();
    let mut reports = run(&pipeline, pipes, |_, _| {});
    // The last one fails when nothing is left for it.
    let sink = reports.pop().unwrap();
    assert!(sink.restarts > 0, "{sink:?}");
    let taken = pipeline.tardiness("sink").unwrap().frames;
    assert_eq!(taken, 100, "{sink:?}");
    assert!(sink.refused < 100, "{sink:?}");

    // One that always fails is given up.
    let pipeline = started("");
    let mut source = piped("source", shell("exit 9"));
    source.restart = true;
    let pipes = Pipes::start(&pipeline, vec![source, piped("sink", shell("cat > /dev/null"))]).unwrap();
    let reports = run(&pipeline, pipes, |_, _| {});
    assert!(
        reports[0]
            .failure
            .as_ref()
            .unwrap()
            .to_string()
            .contains("exit status 9")
    );
}

/// Counts what the threads of programs allocate.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator, and a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        let pipe = PIPE.with(Cell::get);
        ALLOCATIONS.fetch_add(u64::from(pipe), Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// Whether this thread is the end of a pipe whose steps are counted.
    static PIPE: Cell<bool> = const { Cell::new(false) };
}

/// Zeros without end, until `frames` of them were read; its thread is counted from the hundredth on.
struct Zeros {
    bytes: usize,
    last: usize,
}

impl std::io::Read for Zeros {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        PIPE.with(|pipe| pipe.set((100 * FRAME..self.last - FRAME).contains(&self.bytes)));
        let read = room.len().min(self.last - self.bytes);
        room[..read].fill(0);
        self.bytes += read;
        Ok(read)
    }
}

/// Likewise for what is written.
struct Nowhere(usize);

impl std::io::Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        PIPE.with(|pipe| pipe.set((100 * FRAME..3000 * FRAME).contains(&self.0)));
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn steps_allocate_nothing() {
    // What is counted is seen.
    PIPE.with(|pipe| pipe.set(true));
    drop(std::hint::black_box(Box::new(1)));
    PIPE.with(|pipe| pipe.set(false));
    assert_eq!(ALLOCATIONS.swap(0, Ordering::Relaxed), 1, "a planted allocation");
    let pipeline = started("");
    let last = 4000 * FRAME;
    let source = piped("source", Peer::From(Box::new(Zeros { bytes: 0, last })));
    let sink = piped("sink", Peer::To(Box::new(Nowhere(0))));
    let pipes = Pipes::start(&pipeline, vec![source, sink]).unwrap();
    good(&run(&pipeline, pipes, |_, _| {}));
    assert_eq!(pipeline.tardiness("sink").unwrap().frames, 4000);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0, "allocations in 3000 steps");
}

pub fn main() {
    if let Some(tag) = told() {
        drop(started(&tag));
    }
    let folder = tempfile::tempdir().unwrap();
    let case = |name: &str, case: &dyn Fn(&Path)| {
        let begun = Instant::now();
        case(folder.path());
        println!("{name}: ok, {:.1} s", begun.elapsed().as_secs_f64());
    };
    case("steps allocate nothing", &|_| steps_allocate_nothing());
    case("all bytes come out", &all_of_it);
    case("programs in the middle", &in_the_middle);
    case("a sink that has enough", &enough);
    case("sources that are told to end", &|_| told_to_end());
    case("programs that fail", &failures);
    case("programs that are not there", &|_| not_there());
    case("a program that does not read", &not_reading);
    case("programs that never end", &never_ends);
    case("programs that are started again", &again);
}

//! A pipeline with a real-time priority and a program with real-time tasks, on one machine: each learns of the other.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use punctual_pipelines::linux::*;
use punctual_pipelines::*;
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::{AnnouncedTask, KernelTree, cores, recovery};
use punctual_units::{CoreId, Nanos};

/// Makes a process of this case the program with the pipeline.
const PLAYS: &str = "PUNCTUAL_TEST_PLAYS";

struct Rest;

impl Stage for Rest {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), _: &mut Frames<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

fn plays() {
    let edge = EdgeSpec {
        slots: 2,
        frame_bytes: 8,
        full: WhenFull::Wait,
    };
    let graph = Graph::builder("announced")
        .stage(StageSpec::new("source").makes(&[1]).pinned())
        .stage(StageSpec::new("rest").takes(&[1]))
        .edge(("source", 0), ("rest", 0), edge);
    let options = PipelineOptions {
        priority: Some(20),
        ..PipelineOptions::default()
    };
    let bodies: Bodies = Arc::new(|name| (name == "rest").then(|| erase(Rest)));
    let pipeline = Pipeline::start(graph.build().unwrap(), &options, bodies).unwrap();
    let told = || {
        println!(
            "{}",
            pipeline
                .beside()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")
        )
    };
    told();
    for line in std::io::stdin().lines() {
        line.unwrap();
        told();
    }
    pipeline.end().unwrap();
}

pub fn main() {
    if std::env::var_os(PLAYS).is_some() {
        return plays();
    }
    let usable = cores::usable(&KernelTree::default());
    if usable.len() < 2 {
        return eprintln!("skipped: one core");
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open_in(folder.path(), false).unwrap();
    let announce = |cores: &[CoreId]| {
        let task = |core: &CoreId| AnnouncedTask {
            core: *core,
            execution: Some(Nanos::from_millis(1)),
            deadline: Nanos::from_millis(10),
            period: Nanos::from_millis(10),
        };
        let tasks: Vec<AnnouncedTask> = cores.iter().map(task).collect();
        assert!(journal.announce_now(&tasks).unwrap());
    };
    let (last, rest) = usable.split_last().unwrap();
    announce(&[*last]);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(PLAYS, "1")
        .env(recovery::FOLDER, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = child.stdin.take().unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "", "it shares no core");
    let theirs: Vec<CoreId> = journal.others().tasks.iter().map(|(task, _)| task.core).collect();
    let expected: Vec<CoreId> = rest.iter().copied().take(CORES_MAX).collect();
    assert_eq!(theirs, expected, "each core where a stage may run");
    let refused = journal.claim(&rest[..1], &usable).unwrap_err();
    assert!(refused.why.contains(&format!("process {}", child.id())), "{refused}");
    announce(&usable);
    writeln!(ask).unwrap();
    let told = said.next().unwrap().unwrap();
    assert!(told.contains(&format!("process {}", std::process::id())), "{told}");
    drop(ask);
    assert!(child.wait().unwrap().success());
    assert!(journal.others().tasks.is_empty(), "they have ended");
}

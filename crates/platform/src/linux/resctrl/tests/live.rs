//! On the kernel's own resctrl, in the virtual machine of `.ci/vm --rdt`, which names the processor in the environment.
//! Elsewhere these tests do nothing: they would change the machine.

use std::path::Path;

use super::*;
use crate::linux::{ClockPreference, LinuxMachine, LinuxOptions};
use crate::{Machine, Range};

const PROCESSOR: &str = "PUNCTUAL_TEST_RESCTRL";

/// The emulated processor; `None` elsewhere.
fn processor() -> Option<String> {
    std::env::var(PROCESSOR).ok()
}

fn machine() -> LinuxMachine {
    let options = LinuxOptions {
        clock: ClockPreference::None,
        ..LinuxOptions::default()
    };
    LinuxMachine::open(options).unwrap().with_partitions().unwrap()
}

/// Name of the cache that is divided.
fn machine_cache() -> &'static str {
    if processor().as_deref() == Some("l2only") {
        "L2"
    } else {
        "L3"
    }
}

/// Every group with its settings and cores.
fn state() -> Vec<String> {
    let tree = KernelTree::default();
    let groups = std::iter::once(String::new()).chain(knob::names(&tree));
    let file = |group: &str, file: &str| tree.text(Path::new(MOUNT).join(group).join(file));
    groups
        .map(|group| {
            format!(
                "{group}: {} {}",
                file(&group, SCHEMATA),
                file(&group, super::super::CORES)
            )
        })
        .collect()
}

#[test]
fn what_is_offered_is_obtained_and_put_back() {
    let Some(processor) = processor() else { return };
    let before = state();
    let mut machine = machine();
    println!("seen {:?}", machine.refusals());
    let ways = machine.offers().range(KnobId::Ways(CoreId(0))).cloned();
    let parts = machine.offers().range(KnobId::Bandwidth(CoreId(0))).cloned();
    let (wanted_ways, wanted_parts) = match processor.as_str() {
        "ways12" => (12, Some(10)),
        "holes16" => (16, Some(10)),
        _ => (8, None),
    };
    assert!(
        matches!(ways, Some(Range::Ways(count, _)) if count == wanted_ways),
        "{ways:?}"
    );
    assert_eq!(
        parts.map(|parts| matches!(parts, Range::Parts(10, _))),
        wanted_parts.map(|_| true)
    );
    let violations = unobtained(&mut machine);
    assert!(violations.is_empty(), "{violations:#?}");
    drop(machine);
    assert_eq!(state(), before);
}

/// Turns each knob to several values; returns what was not obtained.
fn unobtained(machine: &mut LinuxMachine) -> Vec<String> {
    let offers = machine.offers().clone();
    let mut violations = Vec::new();
    for offer in &offers.knobs {
        let values: Vec<Value> = match offer.range {
            Range::Ways(count, _) => [1, 0b110, (1 << count) - 1].map(Value::Ways).into(),
            Range::Parts(parts, _) => (1..=parts).map(Value::Parts).collect(),
            _ => continue,
        };
        for value in values {
            let applied = machine.apply(&Plan::of(offer.knob, value));
            if applied.obtained.get(offer.knob) != Some(value) {
                violations.push(format!("{} at {value}: {applied:?}", offer.knob));
            }
        }
    }
    violations
}

fn carried(access: ResctrlAccess<'_>) -> Result<String, Refusal> {
    let (tree, journal) = (KernelTree::default(), testing::journal());
    knob::tried(&mut knob::carry(&tree, &journal), access)
}

/// Groups of a test, made without the knob and removed with this.
struct Groups(Vec<&'static str>);

impl Groups {
    fn make(names: &[&'static str]) -> Groups {
        for name in names {
            std::fs::create_dir(Path::new(MOUNT).join(name)).unwrap();
        }
        Groups(names.to_vec())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for name in self.0.iter().rev() {
            let _ = std::fs::remove_dir(Path::new(MOUNT).join(name));
        }
    }
}

/// Each row of the kernel's table of errors that this processor can be brought to: its words reach the refusal, and
/// nothing changes.
#[test]
fn every_refusal_has_the_kernels_words() {
    let Some(processor) = processor() else { return };
    let _groups = Groups::make(&["a", "b", "a/mon_groups/m"]);
    let cache = machine_cache();
    let older = KernelTree::default().release() < Some((6, 12));
    let mut rows = vec![
        ("a/schemata", format!("{cache} 0=1\n"), "Missing ':'"),
        (
            "a/schemata",
            format!("{cache}:0\n"),
            "Missing '=' or non-numeric domain",
        ),
        ("a/schemata", format!("{cache}:0=1;0=1\n"), "Duplicate domain 0"),
        (
            "a/schemata",
            "XX:0=1\n".into(),
            "Unknown or unsupported resource name 'XX'",
        ),
        (
            "a/schemata",
            format!("{cache}:0=xyz\n"),
            "Non-hex character in the mask xyz",
        ),
        ("a/schemata", format!("{cache}:0=0\n"), "Mask out of range"),
        ("a/schemata", format!("{cache}:0=fffff\n"), "Mask out of range"),
        ("a/mode", "loud\n".into(), "Unknown or unsupported mode"),
        ("a/mode", "exclusive\n".into(), "Schemata overlaps"),
        ("a/tasks", "999999\n".into(), "No task 999999"),
        ("a/cpus_list", "zz\n".into(), "Bad CPU list/mask"),
        ("a/cpus_list", "77\n".into(), "Bad CPU list/mask"),
        ("cpus_list", "0\n".into(), "Can't drop CPUs from default group"),
        (
            "a/mon_groups/m/cpus_list",
            "0\n".into(),
            "Can only add CPUs to mongroup that belong to parent",
        ),
        (
            "a/mon_groups/m/tasks",
            "1\n".into(),
            "Can't move task to different control group",
        ),
    ];
    if processor == "ways12" {
        rows.push(("a/schemata", "L3:0=5\n".into(), "The mask 5 has non-consecutive 1-bits"));
    }
    if processor != "l2only" {
        let number = if older {
            "Non-decimal digit in MB value abc"
        } else {
            "Invalid MB value abc"
        };
        rows.push(("a/schemata", "MB:0=abc\n".into(), number));
        rows.push(("a/schemata", "MB:0=5\n".into(), "MB value 5 out of range [10,100]"));
    }
    if !older {
        rows.push(("a/tasks", "x\n".into(), "Task list parsing error pid x"));
    }
    let before = state();
    let mut wrong = Vec::new();
    let mut row = |what: &str, expected: &str, result: Result<String, Refusal>| match result {
        Err(refusal) if refusal.why.starts_with(expected) => println!("row {what}: {}", refusal.why),
        other => wrong.push(format!("{what}: {other:?}, not {expected}")),
    };
    for (file, text, words) in &rows {
        row(
            &format!("{file} {}", text.trim_end()),
            words,
            carried(ResctrlAccess::Write(file, text)),
        );
    }
    row(
        "mkdir info/x",
        "Operation not permitted",
        carried(ResctrlAccess::Make("info/x")),
    );
    row(
        "mkdir x/y",
        "Operation not permitted",
        carried(ResctrlAccess::Make("a/y")),
    );
    row(
        "unknown domain",
        "Invalid argument",
        carried(ResctrlAccess::Write("a/schemata", &format!("{cache}:7=1\n"))),
    );
    row(
        "no newline",
        "Invalid argument",
        carried(ResctrlAccess::Write("a/schemata", &format!("{cache}:0=1"))),
    );
    assert_eq!(state(), before);
    // Modes: a has ways for itself alone.
    let write = |file: &str, text: &str| carried(ResctrlAccess::Write(file, text)).unwrap();
    for group in ["", "b/"] {
        write(&format!("{group}schemata"), &format!("{cache}:0=f0\n"));
    }
    write("a/schemata", &format!("{cache}:0=3\n"));
    write("a/mode", "exclusive\n");
    let overlapping = format!("{cache}:0=6\n");
    row(
        "an exclusive group's ways",
        "Overlaps with exclusive group",
        carried(ResctrlAccess::Write("b/schemata", &overlapping)),
    );
    let overlapping = format!("{cache}:0=10\n");
    row(
        "an exclusive group overlaps",
        "Overlaps with other group",
        carried(ResctrlAccess::Write("a/schemata", &overlapping)),
    );
    let offered = Partitions::open(&KernelTree::default())
        .unwrap()
        .layout()
        .ways
        .as_ref()
        .unwrap()
        .usable;
    println!("seen beside an exclusive group of 3: {offered:x}");
    let beside = if offered & 3 == 0 { "none" } else { "some" };
    row(
        "offered ways of an exclusive group",
        "none",
        Err(crate::linux::refused("", beside, "")),
    );
    write("a/mode", "shareable\n");
    let most = ["ffff", "fff", "ff"]
        .into_iter()
        .find(|all| carried(ResctrlAccess::Write("schemata", &format!("{cache}:0={all}\n"))).is_ok());
    assert!(most.is_some());
    let mut taken = 2;
    while taken < 32 && std::fs::create_dir(Path::new(MOUNT).join(format!("c{taken}"))).is_ok() {
        taken += 1;
    }
    row("mkdir", "Out of CLOSIDs", carried(ResctrlAccess::Make("one-too-many")));
    for number in 2..taken {
        std::fs::remove_dir(Path::new(MOUNT).join(format!("c{number}"))).unwrap();
    }
    println!("seen {taken} groups beside the default one, and no more");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Groups of another program, with a task and a core's worth of ways, and everything that must stay as it is.
fn beside_another() -> (Groups, std::process::Child, Vec<String>) {
    let groups = Groups::make(&["COS7"]);
    let sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    carried(ResctrlAccess::Write("COS7/tasks", &format!("{}\n", sleeper.id()))).unwrap();
    let state = state_with_tasks();
    (groups, sleeper, state)
}

fn state_with_tasks() -> Vec<String> {
    let tasks = std::fs::read_to_string(Path::new(MOUNT).join("COS7/tasks")).unwrap_or_default();
    state().into_iter().chain([tasks]).collect()
}

const CHILD: &str = "PUNCTUAL_TEST_RESCTRL_KILLED";

/// The part of the process that is killed: before an access of that number, or by its parent at any time.
#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let Ok(step) = order.parse::<usize>() else {
        let mut machine = machine();
        println!("\nREADY");
        for turn in 0.. {
            let part = |core: u32| (core, 1 << ((turn + core) % 8));
            machine.apply(&plan(&[part(0), part(1)]));
        }
        return;
    };
    let (tree, journal) = (
        KernelTree::default(),
        punctual_custody::journal::Journal::open(false).unwrap(),
    );
    let mut accesses = 0;
    let mut carry = knob::carry(&tree, &journal);
    let mut knob = Partitions::open(&tree).unwrap();
    for ways in [1, 2] {
        let results = knob.apply(&plan(&[(0, ways), (1, 0b1100)]), &mut |access| {
            if accesses == step {
                // SAFETY: plain numbers.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            accesses += 1;
            carry(access)
        });
        assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    }
    println!("\nALL {accesses}");
}

fn started(order: &str) -> std::process::Child {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["linux::resctrl::tests::live::child", "--exact", "--nocapture"]);
    command
        .env(CHILD, order)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_kill_before_each_access_leaves_nothing_once_the_next_program_looks() {
    let Some(_) = processor() else { return };
    let (_groups, mut sleeper, before) = beside_another();
    let (mut kills, mut made) = (0, 0);
    for step in 0..100 {
        let ended = started(&step.to_string()).wait_with_output().unwrap();
        made += usize::from(state_with_tasks() != before);
        let restored = punctual_custody::recovery::restore(&punctual_custody::recovery::folder()).unwrap();
        assert!(restored.left.is_empty(), "{restored:?}");
        assert_eq!(state_with_tasks(), before, "killed before access {step}");
        if ended.status.success() {
            break;
        }
        kills += 1;
    }
    println!("seen {kills} kills, {made} of them with groups left, 0 differences");
    assert!(kills > 10 && made > 5);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn the_guardian_removes_the_groups_of_a_program_that_is_killed_at_any_time() {
    let Some(_) = processor() else { return };
    let rounds: u32 = std::env::var("PUNCTUAL_TEST_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(5);
    let (_groups, mut sleeper, before) = beside_another();
    for round in 0..rounds {
        let mut child = started("guarded");
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.map_while(Result::ok).any(|line| line == "READY"));
        // Another instant in each round: the steps are those of the loop above.
        std::thread::sleep(std::time::Duration::from_millis(u64::from(round * 37 % 200)));
        child.kill().unwrap();
        child.wait().unwrap();
        punctual_testing::wait_until("the guardian has removed the groups", || state_with_tasks() == before);
    }
    println!("seen {rounds} kills, 0 differences");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_rewrite_and_an_unmount_are_noticed_within_a_period() {
    let Some(_) = processor() else { return };
    let mut machine = machine();
    let wanted = plan(&[(0, 1)]);
    assert!(machine.apply(&wanted).refused.is_empty());
    let name = format!("{PREFIX}{}-0", std::process::id());
    let cache = machine_cache();
    carried(ResctrlAccess::Write(
        &format!("{name}/{SCHEMATA}"),
        &format!("{cache}:0=3\n"),
    ))
    .unwrap();
    machine.read();
    let applied = machine.apply(&Plan::default());
    let refusal = &applied.refused.first().expect("noticed").1;
    println!("seen {refusal}");
    assert!(refusal.why.contains("another program, or"), "{refusal}");
    assert!(
        !Path::new(MOUNT).join(&name).exists(),
        "all cores are in the default group"
    );
    drop(machine);

    let mut machine = self::machine();
    assert!(machine.apply(&wanted).refused.is_empty());
    let run = |program: &str, arguments: &[&str]| {
        assert!(
            std::process::Command::new(program)
                .args(arguments)
                .status()
                .unwrap()
                .success()
        );
    };
    run("umount", &[MOUNT]);
    run("mount", &["-t", "resctrl", "resctrl", MOUNT]);
    machine.read();
    let applied = machine.apply(&wanted);
    println!(
        "seen {:?}",
        applied.refused.first().map(|(_, refusal)| refusal.to_string())
    );
    assert!(
        applied.failed(&wanted).is_some_and(|why| why.contains("is gone")),
        "{applied:?}"
    );
    assert!(machine.restore().is_empty());
}

/// Each decision of a long row of them reaches the register of the core's class, and none else does: the virtual
/// machine's script compares these lines with what was written there.
#[test]
fn masks_reach_the_registers() {
    let Some(_) = processor() else { return };
    let decisions: u32 = std::env::var("PUNCTUAL_TEST_ROUNDS")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(5)
        * 10;
    let mut machine = machine();
    let masks: Vec<u64> = (0..decisions).map(|turn| 0b11 << (turn * 5 % 7)).collect();
    for mask in &masks {
        let wanted = plan(&[(0, *mask)]);
        assert_eq!(machine.apply(&wanted).failed(&wanted), None);
    }
    // A value that is there already reaches no register.
    let shown: Vec<String> = masks
        .chunk_by(|one, other| one == other)
        .map(|same| format!("{:x}", same[0]))
        .collect();
    println!("register {}", shown.join(" "));
}

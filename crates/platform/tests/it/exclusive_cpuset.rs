//! A core taken for real by cpusets of cgroup version 1, beside groups of ours.
//!
//! Only helper programs of ours are moved: all others are named as to be left alone. Groups of others lose the core for
//! the while.

#![cfg(target_os = "linux")]

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{ScopedChild, all_programs_but};
use punctual_platform::linux::exclusive::{Mechanism, SPARE};
use punctual_platform::linux::thread::{self, Tid};
use punctual_platform::linux::{ClockPreference, LinuxMachine, LinuxOptions};
use punctual_platform::{Machine, Neighbours, Why};
use punctual_testing::{CHILD_MAX, machine, wait_until};

const CPUSETS: &str = "/sys/fs/cgroup/cpuset";
const ORDER: &str = "PUNCTUAL_TEST_OWN_GROUP";
const HELPER: &str = "neighbour";

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    if std::env::var(ORDER).is_err() {
        return;
    }
    let machine = LinuxMachine::open(LinuxOptions {
        clock: ClockPreference::None,
        ..LinuxOptions::default()
    })
    .unwrap();
    let core = *machine.offers().cores.last().unwrap();
    match machine
        .exclusive_cores(&[core], &Neighbours::default())
        .map(|mut cores| cores.remove(0))
    {
        Ok(exclusive) => {
            let pinned = exclusive.enter(Tid::current()).and_then(|()| thread::pin(core));
            println!("\nTAKEN {} pinned: {pinned:?}", exclusive.obtained());
            std::io::stdin().lines().next(); // until the parent has looked
        }
        Err(refusal) => println!("\nREFUSED {refusal}"),
    }
}

/// A group of ours, removed with the test.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let gone = (0..1000).any(|_| {
            let removed = fs::remove_dir(&self.0).is_ok();
            if !removed {
                // A guardian that was started within leaves it when it has seen its process end. No wait that panics,
                // because the test may have failed.
                std::thread::sleep(Duration::from_millis(10));
            }
            removed
        });
        if !gone {
            eprintln!("{} is left", self.0.display());
        }
    }
}

impl Group {
    fn cores(&self) -> String {
        fs::read_to_string(self.0.join("cpuset.cpus")).unwrap()
    }
}

/// A group with all cores.
fn make_group(folder: PathBuf) -> std::io::Result<Group> {
    fs::create_dir(&folder)?;
    let group = Group(folder);
    for file in ["cpuset.cpus", "cpuset.mems"] {
        fs::write(group.0.join(file), fs::read(Path::new(CPUSETS).join(file))?)?;
    }
    Ok(group)
}

/// Has `command` enter the group before it becomes its program.
fn within<'a>(group: &Group, command: &'a mut Command) -> &'a mut Command {
    let tasks = std::ffi::CString::new(group.0.join("tasks").into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: plain system calls between fork and exec. "0" is the process that writes it (cgroups(7)).
    unsafe {
        command.pre_exec(move || {
            let file = libc::open(tasks.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            match libc::write(file, c"0".as_ptr().cast(), 1) {
                1 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    }
}

fn allowed(process: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().to_owned()
}

#[test]
fn the_core_is_kept_in_the_group_of_this_process() {
    let _machine = machine();
    let group = match make_group(Path::new(CPUSETS).join(format!("punctual-test-own-{}", std::process::id()))) {
        Ok(group) => group,
        Err(why) => return eprintln!("skipped: no cpuset of version 1 can be made: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(HELPER);
    punctual_testing::copy_program(Path::new("/bin/sleep"), &program);
    let helper = ScopedChild(within(&group, Command::new(program).arg("120")).spawn().unwrap());
    // The kernel lets the parent go on before it gives the child the program's name (execve(2)).
    wait_until("the helper has its name", || {
        fs::read_to_string(format!("/proc/{}/comm", helper.0.id())).is_ok_and(|name| name.trim_end() == HELPER)
    });
    let before = allowed(helper.0.id());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "exclusive_cpuset::child", "--nocapture", "--test-threads=1"])
        .env(ORDER, "take")
        .env(SPARE, all_programs_but(HELPER).join(","))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = punctual_testing::start(within(&group, &mut command), CHILD_MAX).unwrap();
    let mut lines = BufReader::new(child.stdout().unwrap()).lines();
    let said = lines
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line.starts_with("TAKEN") || line.starts_with("REFUSED"))
        .expect("the child ended before it said anything");
    eprintln!("{said}");
    if said.starts_with("REFUSED") {
        return;
    }
    assert!(said.ends_with("pinned: Ok(())"), "{said}");
    assert_ne!(allowed(helper.0.id()), before, "the neighbour has lost the core");
    drop(child.stdin());
    lines.for_each(drop); // or it could not say farewell
    assert!(child.wait().unwrap().success());
    assert_eq!(allowed(helper.0.id()), before);
    let place = fs::read_to_string(format!("/proc/{}/cgroup", helper.0.id())).unwrap();
    let name = group.0.file_name().unwrap().to_str().unwrap();
    assert!(
        place.lines().any(|line| line.ends_with(&format!(":cpuset:/{name}"))),
        "{place}"
    );
}

#[test]
fn a_group_made_within_another_while_the_core_is_lent_does_not_hold_it_back() {
    let _machine = machine();
    let outer = match make_group(Path::new(CPUSETS).join(format!("punctual-test-outer-{}", std::process::id()))) {
        Ok(group) => group,
        Err(why) => return eprintln!("skipped: no cpuset of version 1 can be made: {why}"),
    };
    let mut machine = LinuxMachine::open(LinuxOptions {
        clock: ClockPreference::None,
        ..LinuxOptions::default()
    })
    .unwrap();
    let all = outer.cores();
    let core = *machine.offers().cores.last().unwrap();
    let name = outer.0.file_name().unwrap().to_string_lossy();
    let neighbours = Neighbours {
        spare: all_programs_but(HELPER),
        lend_to: vec![format!("/{name}").into()],
        ..Neighbours::default()
    };
    let taken = machine.exclusive_cores(&[core], &neighbours);
    let exclusive = match taken.map(|mut cores| cores.remove(0)) {
        Ok(exclusive) if exclusive.obtained().mechanism == Mechanism::Cpuset => exclusive,
        other => return eprintln!("skipped: {other:?}"),
    };
    let without = outer.cores();
    assert_ne!(without, all, "a group of others loses the core");
    exclusive.lend().unwrap();
    assert_eq!(outer.cores(), all);
    let inner = make_group(outer.0.join("inner")).unwrap();
    exclusive.take_back().unwrap();
    assert_eq!((outer.cores(), inner.cores()), (without.clone(), without));
    drop(exclusive);
    assert_eq!(machine.restore(), []);
    assert_eq!((outer.cores(), inner.cores()), (all.clone(), all));
}

/// The affinity of its threads never changes, whatever becomes of the core.
#[test]
fn a_group_that_shares_the_core_stays_as_it_is() {
    let _machine = machine();
    let group = match make_group(Path::new(CPUSETS).join(format!("punctual-test-shares-{}", std::process::id()))) {
        Ok(group) => group,
        Err(why) => return eprintln!("skipped: no cpuset of version 1 can be made: {why}"),
    };
    let sharing = ScopedChild(within(&group, Command::new("sleep").arg("120")).spawn().unwrap());
    let mut machine = LinuxMachine::open(LinuxOptions {
        clock: ClockPreference::None,
        ..LinuxOptions::default()
    })
    .unwrap();
    let (cores, affinity) = (group.cores(), allowed(sharing.0.id()));
    let core = *machine.offers().cores.last().unwrap();
    let name = group.0.file_name().unwrap().to_string_lossy();
    let neighbours = Neighbours {
        spare: all_programs_but(HELPER),
        share_with: vec![format!("/{name}").into()],
        ..Neighbours::default()
    };
    let taken = machine.exclusive_cores(&[core], &neighbours);
    let exclusive = match taken.map(|mut cores| cores.remove(0)) {
        Ok(exclusive) if exclusive.obtained().mechanism == Mechanism::Cpuset => exclusive,
        other => return eprintln!("skipped: {other:?}"),
    };
    let is_as_before = || (group.cores(), allowed(sharing.0.id())) == (cores.clone(), affinity.clone());
    assert!(is_as_before(), "{:?}, {}", group.cores(), allowed(sharing.0.id()));
    let stays = &exclusive.obtained().stays;
    let told = stays.iter().find(|stay| stay.process == sharing.0.id() as i32);
    assert_eq!(told.map(|stay| stay.why), Some(Why::Shares), "{stays:?}");
    assert!(!exclusive.lendable(), "nothing is lent to it");
    drop(exclusive);
    assert_eq!(machine.restore(), []);
    assert!(is_as_before());
}

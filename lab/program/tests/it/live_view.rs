//! The live view of a radio on a terminal of its own: other terminals act on the same pipeline meanwhile, and a panic
//! gives the terminal back and leaves no process.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};

use crate::common::kill_stage;
use punctual_platform::linux::recovery;
use punctual_testing::{CHILD_MAX, TestChild, shared_machine, wait_for, wait_until};

/// Written by the test when the radio has ended; no view or report has such a line.
const READ_SO_FAR: &str = "<read so far>";

/// A radio that draws on a terminal of its own.
struct TerminalRadio {
    radio: TestChild,
    folder: tempfile::TempDir,
    /// The terminal's other side, and its own, which stays open so that its settings can be asked for.
    sides: (OwnedFd, OwnedFd),
    /// All that was drawn.
    drawn: Arc<Mutex<Vec<u8>>>,
}

/// Both sides of a terminal with 100 columns and 30 lines.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut other, mut own) = (0, 0);
    let size = libc::winsize {
        ws_row: 30,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: valid rooms for two descriptors, which are ours; no name and no settings are given.
    unsafe {
        let made = libc::openpty(&mut other, &mut own, std::ptr::null_mut(), std::ptr::null(), &size);
        assert_eq!(made, 0, "a terminal");
        (OwnedFd::from_raw_fd(other), OwnedFd::from_raw_fd(own))
    }
}

impl TerminalRadio {
    fn start(arguments: &[&str], panics: Option<&str>) -> TerminalRadio {
        let (folder, (other, own)) = (tempfile::tempdir().unwrap(), terminal());
        let side = || Stdio::from(own.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
        command
            .arg("radio")
            .args(arguments)
            .env(recovery::FOLDER, folder.path())
            .env("TERM", "xterm-256color")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        command.stdin(side()).stdout(side()).stderr(side());
        if let Some(place) = panics {
            command.env("PUNCTUAL_TEST_PANIC", place);
        }
        // SAFETY: two plain system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let radio = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let (mut reads, kept) = (File::from(other.try_clone().unwrap()), Arc::clone(&drawn));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reads.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        TerminalRadio {
            radio,
            folder,
            sides: (other, own),
            drawn,
        }
    }

    fn drawn(&self) -> String {
        String::from_utf8_lossy(&self.drawn.lock().unwrap()).into_owned()
    }

    /// How the radio ended, and all that it drew: its end alone does not say that the thread has read the last of it.
    fn ended(&mut self) -> (ExitStatus, String) {
        let ended = self.radio.wait().unwrap();
        // What is written on one side of a terminal is read on the other in that order.
        let mut own = File::from(self.sides.1.try_clone().unwrap());
        own.write_all(READ_SO_FAR.as_bytes()).unwrap();
        self.wait_for(READ_SO_FAR);
        (ended, self.drawn())
    }

    fn wait_for(&self, what: &str) {
        wait_for(
            || format!("{what:?} in {}", self.drawn()),
            || self.drawn().contains(what).then_some(()),
        );
    }

    fn pipeline(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
        command
            .arg("pipeline")
            .args(arguments)
            .env(recovery::FOLDER, self.folder.path());
        punctual_testing::output(&mut command, CHILD_MAX).unwrap()
    }

    /// Whether lines are put together and shown by the terminal, as a shell wants it.
    fn is_usable(&self) -> bool {
        // SAFETY: all zeros are valid settings, which the call fills in.
        let settings = unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            libc::tcgetattr(self.sides.1.as_raw_fd(), &mut settings);
            settings
        };
        settings.c_lflag & libc::ICANON != 0 && settings.c_lflag & libc::ECHO != 0
    }

    fn press(&self, keys: &str) {
        // SAFETY: the bytes are valid, and the descriptor is open.
        let written = unsafe { libc::write(self.sides.0.as_raw_fd(), keys.as_ptr().cast(), keys.len()) };
        assert_eq!(written, keys.len() as isize);
    }
}

/// The processes of a session.
fn session(leader: u32) -> Vec<PathBuf> {
    let of_session = |process: &Path| {
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        (fields.get(3)? == &leader.to_string() && fields[0] != "Z").then(|| process.to_owned())
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter_map(|process| of_session(&process)).collect()
}

const LEFT: &str = "\u{1b}[?1049l";

#[test]
fn two_terminals_act_on_one_radio_and_the_first_is_given_back() {
    let _cores = shared_machine();
    let mut watched = TerminalRadio::start(&["--rate", "100"], None);
    watched.wait_for("us/frame");
    watched.wait_for("demodulator");
    assert!(!watched.is_usable(), "the view hears keys");
    let listed = String::from_utf8(watched.pipeline(&["list"]).stdout).unwrap();
    assert!(listed.contains("low-pass"), "{listed}");
    wait_until("sum is killed", || {
        kill_stage(&watched.pipeline(&["list", "--json", "-"]), "sum")
    });
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        let moved = watched.pipeline(&["move", "band-2", "1"]);
        assert!(moved.status.success(), "{moved:?}");
    }
    watched.press("k");
    // Cells that do not change, such as blanks, are not drawn again.
    watched.wait_for("pinned:");
    watched.press("q");
    let (ended, drawn) = watched.ended();
    assert!(ended.success(), "{ended:?} {drawn}");
    assert!(watched.is_usable());
    let report = drawn.rsplit(LEFT).next().unwrap();
    assert!(report.contains("lost 0, twice 0"), "{report}");
}

/// In debug builds a test has one planted.
#[test]
fn a_panic_gives_the_terminal_back_and_leaves_no_process() {
    for place in ["run", "view"] {
        let mut watched = TerminalRadio::start(&["--rate", "100"], Some(place));
        let leader = watched.radio.id();
        watched.wait_for("as ordered");
        if place == "view" {
            // The radio goes on without its picture.
            // SAFETY: plain numbers; the radio has not been waited for.
            unsafe { libc::kill(leader as i32, libc::SIGTERM) };
        }
        let (ended, drawn) = watched.ended();
        assert_eq!(ended.success(), place == "view", "{place}: {ended:?} {drawn}");
        assert!(watched.is_usable(), "{place}");
        let left = drawn
            .find(LEFT)
            .unwrap_or_else(|| panic!("{place}: the picture is still there: {drawn}"));
        assert!(
            drawn[left..].contains("as ordered"),
            "{place}: the message is on the picture: {drawn}"
        );
        wait_for(
            || format!("{place}: left: {:?}", session(leader)),
            || session(leader).is_empty().then_some(()),
        );
    }
}

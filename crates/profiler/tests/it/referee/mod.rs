//! A referee that sees the same addresses: a plugin in C that writes them down, under the same emulator.

#![allow(dead_code)] // Each file that includes it uses a part of it.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use punctual_profiler::Program;

/// What the program does next: fetches an instruction, or loads or stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where.
    pub address: u64,
    /// How much; at least 1.
    pub bytes: u64,
    /// An instruction, and no data.
    pub instruction: bool,
}

impl Access {
    /// As `addresses.c` writes it: address << 16 | bytes << 8 | kind.
    fn of(word: u64) -> Access {
        Access {
            address: word >> 16,
            bytes: (word >> 8 & 0xff).max(1),
            instruction: word & 0xff == 0,
        }
    }
}

/// Compiles the plugin into `folder`, for QEMU from 9.0 on or before.
pub fn compile(folder: &Path, since_9: bool) -> io::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/referee/addresses.c");
    let plugin = folder.join("addresses.so");
    let status = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC"])
        .arg(format!("-DINTERFACE={}", if since_9 { 2 } else { 1 }))
        .arg("-o")
        .arg(&plugin)
        .arg(source)
        .status()?;
    let failed = || io::Error::other("addresses.c does not compile");
    status.success().then_some(plugin).ok_or_else(failed)
}

/// `program` in `emulator` with `plugin` and its arguments, and with the same words and variables as the profiler gives
/// it: else its stack would lie elsewhere.
pub fn emulated(emulator: &Path, options: &[&OsStr], program: &Program) -> Command {
    let mut command = Command::new("setarch");
    command.arg("-R").arg(emulator).args(options);
    command
        .arg("-0")
        .arg(&program.name)
        .arg(&program.path)
        .args(&program.arguments);
    command
}

/// Whether QEMU of this `version` wants the second version of the interface at least.
pub fn since_9(version: &str) -> bool {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_none_or(|major| major >= 9)
}

/// A program that is under way, and the word of its accesses.
pub struct Trace {
    child: Child,
    words: BufReader<File>,
}

impl Trace {
    /// Starts `program`; its accesses come through a pipe in `folder`.
    pub fn start(emulator: &Path, plugin: &Path, folder: &Path, program: &Program) -> io::Result<Trace> {
        let pipe = folder.join("accesses");
        let name = CString::new(pipe.as_os_str().as_bytes())?;
        // SAFETY: a name that ends in zero.
        if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let plugin = format!("{},out={}", plugin.display(), pipe.display());
        let child = emulated(emulator, &["-plugin".as_ref(), plugin.as_ref()], program).spawn()?;
        // Waits for the plugin to open its end.
        let words = BufReader::with_capacity(1 << 20, File::open(&pipe)?);
        std::fs::remove_file(&pipe)?;
        Ok(Trace { child, words })
    }

    /// The next access; `None` at the end of the program, which must be a good one.
    pub fn next(&mut self) -> io::Result<Option<Access>> {
        let mut word = [0; 8];
        match self.words.read_exact(&mut word) {
            Ok(()) => Ok(Some(Access::of(u64::from_le_bytes(word)))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let status = self.child.wait()?;
                let failed = || io::Error::other(format!("the program ended with {status}"));
                status.success().then_some(None).ok_or_else(failed)
            }
            Err(error) => Err(error),
        }
    }
}

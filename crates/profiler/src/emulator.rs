//! Finds the emulator and checks that it can load the tracer.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::ProfilerError;
use crate::program;

/// QEMU's user-mode emulation of this machine's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulator {
    /// File of the emulator.
    pub path: PathBuf,
    /// Version as the emulator prints it, such as `7.2.22`.
    pub version: String,
}

impl Emulator {
    /// Finds the emulator in the folders of `search` (the value of `PATH`), and queries its version and whether it
    /// loads plugins.
    ///
    /// # Errors
    /// [`ProfilerError`] if there is none, or it cannot be run, or loads no plugins. The version of the plugin
    /// interface is checked only by the plugin itself.
    pub fn find(search: &OsStr) -> Result<Emulator, ProfilerError> {
        let path = program::emulator(search)?;
        let says = |option| said(&path, option).map_err(ProfilerError::system("the emulator cannot be asked"));
        Emulator::of(&path, &says("--version")?, &says("-h")?)
    }

    /// Makes the emulator in `path`, given its outputs for `--version` and `-h`.
    fn of(path: &Path, version: &str, help: &str) -> Result<Emulator, ProfilerError> {
        let version = version.split_once("version ").map_or("", |(_, rest)| rest);
        let version = version.split_whitespace().next().unwrap_or("unknown").to_string();
        // Static emulators do not list the option, or cannot load a library.
        if !help.lines().any(|line| line.trim_start().starts_with("-plugin")) {
            let path = path.to_path_buf();
            return Err(ProfilerError::NoPlugins { path, version });
        }
        Ok(Emulator {
            path: path.to_path_buf(),
            version,
        })
    }
}

/// Output of the emulator, called with `option`.
fn said(emulator: &Path, option: &str) -> io::Result<String> {
    let output = Command::new(emulator).arg(option).stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str =
        "qemu-x86_64 version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright (c) 2003-2025 Fabrice Bellard\n";
    const HELP: &str = "usage: qemu-x86_64 [options] program\n-strace  QEMU_STRACE  log system calls\n";
    const PLUGIN: &str = "-plugin  QEMU_PLUGIN  [file=]<file>[,<argname>=<argvalue>]\n";

    fn found(version: &str, help: &str) -> Result<String, String> {
        let found = Emulator::of(Path::new("/usr/bin/qemu-x86_64"), version, help);
        found.map(|found| found.version).map_err(|error| error.to_string())
    }

    #[test]
    fn an_emulator_is_known_by_what_it_says() {
        let takes = format!("{HELP}{PLUGIN}");
        assert_eq!(found(VERSION, &takes), Ok("10.0.2".into()));
        let version = |version: &str| VERSION.replace("10.0.2", version);
        assert_eq!(found(&version("7.2.22"), &takes), Ok("7.2.22".into()));
        // The plugin itself looks again, so that what says nothing is tried.
        assert_eq!(found("", &takes), Ok("unknown".into()));
        let refused = |version: &str, help: &str| found(version, help).expect_err("refused");
        assert!(refused(VERSION, HELP).contains("(QEMU 10.0.2) takes no plugins"));
    }
}

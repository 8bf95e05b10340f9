//! Finds a program, and checks that it can be profiled here.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::ProfilerError;

/// Number of bytes read from a file's begin: an ELF header, or a script's first line as far as the kernel reads it.
const HEAD_BYTES: u64 = 256;

/// This machine's number in the ELF header (`e_machine` of the ELF specification), and its name in QEMU.
#[cfg(target_arch = "x86_64")]
const HERE: (u16, &str) = (62, "x86_64");
#[cfg(target_arch = "aarch64")]
const HERE: (u16, &str) = (183, "aarch64");
#[cfg(target_arch = "riscv64")]
const HERE: (u16, &str) = (243, "riscv64");
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
compile_error!("the profiler knows x86_64, aarch64 and riscv64");

/// Names of common architectures, by their numbers in the ELF header.
const ARCHITECTURES: [(u16, &str); 8] = [
    (3, "i386"),
    (8, "mips"),
    (21, "ppc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv"),
];

/// A program that can be run here, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name as given.
    pub name: OsString,
    /// File found for the name.
    pub path: PathBuf,
    /// Arguments, without the name.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Finds `name` as a shell would, in the folders of `search` (the value of `PATH`), and checks that it is a program
    /// for this machine.
    ///
    /// # Errors
    /// [`ProfilerError`]: there is no such program, it cannot be run, it is a script, or for another machine.
    pub fn find(name: &OsStr, arguments: &[OsString], search: &OsStr) -> Result<Program, ProfilerError> {
        let path = locate(name, search).ok_or_else(|| ProfilerError::NoProgram {
            program: name.to_string_lossy().into_owned(),
        })?;
        check(&path)?;
        Ok(Program {
            name: name.to_os_string(),
            path,
            arguments: arguments.to_vec(),
        })
    }
}

/// Finds the emulator for this machine's programs.
///
/// # Errors
/// [`ProfilerError::NoEmulator`] if it is not in `search`.
pub(crate) fn emulator(search: &OsStr) -> Result<PathBuf, ProfilerError> {
    let name = format!("qemu-{}", HERE.1);
    in_path(OsStr::new(&name), search).ok_or(ProfilerError::NoEmulator { emulator: name })
}

fn locate(name: &OsStr, search: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Path::new(name).exists().then(|| PathBuf::from(name));
    }
    in_path(name, search)
}

fn in_path(name: &OsStr, search: &OsStr) -> Option<PathBuf> {
    let files = std::env::split_paths(search).map(|folder| folder.join(name));
    let mut runnable = files.filter(|file| file.metadata().is_ok_and(|meta| meta.is_file() && is_runnable(&meta)));
    runnable.next().filter(|_| !name.is_empty())
}

fn is_runnable(meta: &std::fs::Metadata) -> bool {
    meta.permissions().mode() & 0o111 != 0
}

fn check(path: &Path) -> Result<(), ProfilerError> {
    let refused = |why: &str| ProfilerError::NotRunnable {
        path: path.to_path_buf(),
        why: why.into(),
    };
    let unreadable = |error: std::io::Error| refused(&error.kind().to_string());
    let meta = path.metadata().map_err(unreadable)?;
    if !meta.is_file() {
        return Err(refused("not a file"));
    }
    if !is_runnable(&meta) {
        return Err(refused("not marked as a program; chmod +x makes it one"));
    }
    let mut head = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(HEAD_BYTES).read_to_end(&mut head).map_err(unreadable)?;
    match FileKind::of(&head) {
        FileKind::Elf { class: 2, machine } if machine == HERE.0 => Ok(()),
        FileKind::Elf { class, machine } => Err(ProfilerError::OtherArchitecture {
            path: path.to_path_buf(),
            of: architecture(class, machine),
            here: HERE.1,
        }),
        FileKind::Script { interpreter } => Err(ProfilerError::Script {
            path: path.to_path_buf(),
            interpreter,
        }),
        FileKind::Unknown => Err(refused("not a program: neither ELF nor a script")),
    }
}

fn architecture(class: u8, machine: u16) -> String {
    let name = ARCHITECTURES.iter().find(|(number, _)| *number == machine);
    let name = name.map_or_else(|| format!("architecture {machine}"), |(_, name)| (*name).to_string());
    if class == 1 {
        format!("{name} with 32 bits")
    } else {
        name
    }
}

/// Kind of a file, by its first bytes.
#[derive(Debug, PartialEq, Eq)]
enum FileKind {
    /// Word size (1: 32 bits, 2: 64 bits) and architecture.
    Elf {
        class: u8,
        machine: u16,
    },
    Script {
        interpreter: String,
    },
    Unknown,
}

impl FileKind {
    fn of(head: &[u8]) -> FileKind {
        match head {
            [0x7f, b'E', b'L', b'F', class, order, ..] if head.len() >= 20 => {
                let machine = [head[18], head[19]];
                let machine = if *order == 2 {
                    u16::from_be_bytes(machine)
                } else {
                    u16::from_le_bytes(machine)
                };
                FileKind::Elf { class: *class, machine }
            }
            [b'#', b'!', rest @ ..] => {
                let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let line = String::from_utf8_lossy(line).trim().to_string();
                // `env` only looks up the interpreter, as this function does.
                let interpreter = line.strip_prefix("/usr/bin/env ").unwrap_or(&line);
                FileKind::Script {
                    interpreter: interpreter.trim_start().to_string(),
                }
            }
            _ => FileKind::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_head() {
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(18, 0);
        assert_eq!(FileKind::of(&elf), FileKind::Unknown, "cut off");
        elf.extend([183, 0]);
        assert_eq!(FileKind::of(&elf), FileKind::Elf { class: 2, machine: 183 });
        assert_eq!(architecture(2, 183), "aarch64");
        assert_eq!(architecture(1, 3), "i386 with 32 bits");
        assert_eq!(architecture(2, 9999), "architecture 9999");
        let script = FileKind::Script {
            interpreter: "/bin/sh -e".into(),
        };
        assert_eq!(FileKind::of(b"#! /bin/sh -e\nexit"), script);
        let found = FileKind::Script {
            interpreter: "python3".into(),
        };
        assert_eq!(FileKind::of(b"#!/usr/bin/env python3\n"), found);
        assert_eq!(FileKind::of(b""), FileKind::Unknown);
        assert_eq!(FileKind::of(b"text"), FileKind::Unknown);
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let search = std::env::var_os("PATH").expect("a path");
        let sh = Program::find(OsStr::new("ls"), &[], &search).expect("every system has it");
        assert!(sh.path.is_absolute(), "{sh:?}");
        let error = |name: &str| {
            let error = Program::find(OsStr::new(name), &[], &search).expect_err("refused");
            error.to_string()
        };
        assert!(error("no-such-program").starts_with("no-such-program: no such program"));
        assert_eq!(error("/etc"), "/etc: cannot be run: not a file");
        assert!(error("/etc/passwd").contains("chmod +x"));
        assert!(error("").contains("no such program"));
    }
}

//! Compiles the tracer as a shared library, which is then embedded in the program.
//!
//! Cargo does not pass the shared library of a dependency to the crate that depends on it, and a library beside the
//! program gets lost when the program is copied or installed. The tracer has no dependencies, so that one call of the
//! compiler makes it. Reasons: decision 8.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let source = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("tracer");
    let library = PathBuf::from(variable("OUT_DIR")).join("tracer.so");
    println!("cargo::rerun-if-changed={}", source.display());
    // For the emulator's C library, which is the system's, also where the program itself is linked with musl's: by the
    // compiler's own target, which is always there, and its linker.
    let (host, target) = (variable("HOST"), variable("TARGET"));
    let is_host = target.replace("-musl", "-gnu") == host;
    let linker = env::var_os("RUSTC_LINKER").filter(|_| target == host || !is_host);
    let target = if is_host { host } else { target };
    let mut compile = Command::new(variable("RUSTC"));
    compile
        .args([
            "--crate-name",
            "punctual_tracer",
            "--crate-type",
            "cdylib",
            "--edition",
            "2024",
        ])
        .args(["--cap-lints", "allow", "--target", &target])
        // Always optimised: at a debug build's speed no run of a useful length can be profiled.
        .args([
            "-C",
            "opt-level=3",
            "-C",
            "codegen-units=1",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
            "-C",
            "target-feature=-crt-static",
        ])
        .arg(source.join("lib.rs"))
        .arg("-o")
        .arg(&library);
    if let Some(linker) = linker {
        compile.arg("-C").arg(format!("linker={}", linker.to_string_lossy()));
    }
    match compile.status() {
        Ok(status) if status.success() => {
            println!("cargo::rustc-env=PUNCTUAL_TRACER={}", library.display());
            ExitCode::SUCCESS
        }
        outcome => {
            eprintln!("the tracer cannot be compiled: {outcome:?}");
            ExitCode::FAILURE
        }
    }
}

/// A variable that Cargo sets for every build script.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

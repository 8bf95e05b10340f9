//! Starts the emulator's process.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use crate::error::ProfilerError;
use crate::program::Program;

/// The compiled tracer, which the emulator loads as a plugin.
const TRACER: &[u8] = include_bytes!(env!("PUNCTUAL_TRACER"));

/// Puts the tracer into a file without a name, so that no file is left behind, however the process ends.
pub fn image() -> Result<File, ProfilerError> {
    let mut image = memory_file(c"punctual-tracer")?;
    image
        .write_all(TRACER)
        .map_err(ProfilerError::system("the tracer cannot be unpacked"))?;
    Ok(image)
}

/// Makes an empty file in memory.
pub fn memory_file(name: &std::ffi::CStr) -> Result<File, ProfilerError> {
    // SAFETY: a name that ends in zero.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        let what = "no file in memory for the emulator";
        return Err(ProfilerError::system(what)(io::Error::last_os_error()));
    }
    // SAFETY: just opened, and no other owner has it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Starts `program` in `emulator`, with the tracer in `image` writing to `channel`.
///
/// # Errors
/// [`ProfilerError::System`] if the emulator cannot be started.
pub fn start(emulator: &Path, program: &Program, image: &File, channel: &File) -> Result<Child, ProfilerError> {
    let (image, channel) = (image.as_raw_fd(), channel.as_raw_fd());
    let mut command = Command::new(emulator);
    command
        .arg("-plugin")
        .arg(format!("/proc/self/fd/{image},image={image},channel={channel}"))
        .arg("-0")
        .arg(&program.name)
        .arg(plain(&program.path))
        .args(&program.arguments);
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(move || prepare(&[image, channel])) };
    command
        .spawn()
        .map_err(ProfilerError::system("the emulator cannot be started"))
}

/// Returns a path that cannot be mistaken for an option of the emulator.
fn plain(path: &Path) -> OsString {
    if path.is_absolute() {
        path.into()
    } else {
        [OsStr::new("./"), path.as_os_str()].into_iter().collect()
    }
}

/// Prepares the new process: it inherits the files, dies with the profiler, and has the same addresses each time.
fn prepare(keep: &[RawFd]) -> io::Result<()> {
    for descriptor in keep {
        // SAFETY: a plain system call on a descriptor of this process.
        if unsafe { libc::fcntl(*descriptor, libc::F_SETFD, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: plain system calls. Containers may refuse the second; then addresses, and with them conflicts in the
    // caches, differ a little from run to run.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let personality = libc::personality(0xffff_ffff);
        if personality >= 0 {
            libc::personality(personality as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        }
    }
    Ok(())
}

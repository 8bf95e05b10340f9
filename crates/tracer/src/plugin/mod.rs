//! The plugin that QEMU's user-mode emulation loads: feeds the program's instructions and accesses into the models.
//!
//! **Threads.** Each thread of the program is one of the emulator's processors (*vCPU*) and calls back on a host thread
//! of its own. Its [`Stream`] is its own, too; after at most [`STEP`](crate::STEP) instructions it takes the lock of
//! the recorder and reports.
//!
//! **Children.** After a fork the emulator continues in the child, callbacks and all, with the channel still mapped.
//! The child is muted before it runs: a profile is of one process.

mod api;
mod tracer;

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::os::fd::{FromRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use api::Api;
use tracer::Tracer;

use crate::channel::Channel;

/// The first version of the plugin interface, which QEMU supports up to 8.2.
const FIRST: c_int = 1;
/// The second version, for QEMU from 9.0 on. Its removals (inline operations without scoreboards, the number of
/// processors) were never used here; everything used is the same in both.
const SECOND: c_int = 2;
/// The last version that passes the arguments of [`api`] to callbacks: version 7, which is newer than QEMU 10.2, passes
/// others.
const LAST: c_int = 6;

/// The version of QEMU's plugin interface that this plugin uses. QEMU reads it once it has loaded the library; before
/// 9.0 it accepts at most the first, from then on at least the second.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(FIRST);

/// Called by the dynamic linker, before QEMU reads [`qemu_plugin_version`].
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

extern "C" fn on_load() {
    if api::speaks_second() {
        qemu_plugin_version.store(SECOND, Ordering::Relaxed);
    }
}

/// The beginning of `struct qemu_info_t`, alike in all versions.
#[derive(Debug)]
#[repr(C)]
pub struct EmulatorInfo {
    target_name: *const c_char,
    /// The oldest and the newest version of the interface that the emulator supports.
    oldest: c_int,
    newest: c_int,
}

/// Called by QEMU when it has loaded the plugin; arguments are `channel=FD` and `image=FD`, the descriptors of the
/// channel and of the plugin itself. Both are closed here: the program must not find them. Returns 0, or 1 if nothing
/// can be counted.
///
/// # Safety
/// `info` must point to the emulator's `qemu_info_t`, and `arguments` to `count` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const EmulatorInfo,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let arguments = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: the caller's promise.
        .map(|index| unsafe { CStr::from_ptr(*arguments.add(index)) });
    // SAFETY: the caller's promise.
    let newest = unsafe { info.as_ref() }.map_or(FIRST, |info| info.newest);
    match understood(newest).and_then(|()| install(id, arguments)) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("punctual: {why}");
            1
        }
    }
}

fn understood(newest: c_int) -> Result<(), String> {
    if newest <= LAST {
        return Ok(());
    }
    Err(format!(
        "this QEMU's plugin interface has version {newest}, and only 1 to {LAST} are understood: use one that is not newer than 10.2"
    ))
}

fn install<'a>(id: u64, arguments: impl Iterator<Item = &'a CStr>) -> Result<(), String> {
    let mut channel = None;
    for argument in arguments {
        match descriptor(argument) {
            Some(("channel", file)) => channel = Some(file),
            Some(("image", file)) => drop(file),
            _ => return Err(format!("unknown argument {argument:?}")),
        }
    }
    let channel = channel.ok_or("the argument channel=FD is missing")?;
    let (channel, geometry) = Channel::open(&channel).map_err(|error| error.to_string())?;
    let api = Api::find().map_err(|name| format!("this QEMU has no {name}"))?;
    Tracer::begin(id, api, channel, geometry)
}

/// Parses `name=FD` and takes over the descriptor.
fn descriptor(argument: &CStr) -> Option<(&str, File)> {
    let (name, number) = argument.to_str().ok()?.split_once('=')?;
    let number: RawFd = number.parse().ok().filter(|number| *number > 2)?;
    // SAFETY: the profiler passes descriptors that it opened for this process alone, each once.
    Some((name, unsafe { File::from_raw_fd(number) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_with_other_arguments_is_refused() {
        assert_eq!(understood(1), Ok(()), "QEMU 7.2");
        assert_eq!(understood(4), Ok(()), "QEMU 10.0");
        assert!(understood(7).expect_err("refused").contains("not newer than 10.2"));
    }

    #[test]
    fn outside_of_an_emulator_the_version_stays_the_first() {
        on_load();
        assert_eq!(qemu_plugin_version.load(Ordering::Relaxed), FIRST);
    }
}

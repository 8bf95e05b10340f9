//! The plugin that QEMU's user-mode emulation loads: what happens in the program, into the models.
//!
//! **Threads.** Each thread of the program is one of the emulator's processors (*vCPU*) and calls back on a host thread of its own.
//! Its [`Stream`] is its own, too; every [`STEP`](crate::STEP) instructions it takes the lock of the recorder and reports.
//!
//! **Children.** After a fork the emulator goes on in the child, callbacks and all, with the channel still mapped. The child is
//! muted before it does anything: one profile is of one process.

mod api;
mod tracer;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::{FromRawFd, RawFd};

use api::Api;
use tracer::Tracer;

use crate::channel::Channel;

/// The version of QEMU's plugin interface that this plugin speaks: the first, which QEMU understands up to 8.2.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = 1;

/// Called by QEMU when it has loaded the plugin; arguments are `channel=FD` and `image=FD`, the descriptors of the channel and
/// of the plugin itself. Both are closed here: the program must not find them. Not 0 if nothing can be counted.
///
/// # Safety
/// `arguments` must be `count` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let arguments = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: the caller's promise.
        .map(|index| unsafe { CStr::from_ptr(*arguments.add(index)) });
    match install(id, arguments) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("punctual: {why}");
            1
        }
    }
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

/// `name=FD`.
fn descriptor(argument: &CStr) -> Option<(&str, File)> {
    let (name, number) = argument.to_str().ok()?.split_once('=')?;
    let number: RawFd = number.parse().ok().filter(|number| *number > 2)?;
    // SAFETY: the profiler passes descriptors that it opened for this process alone, each once.
    Some((name, unsafe { File::from_raw_fd(number) }))
}

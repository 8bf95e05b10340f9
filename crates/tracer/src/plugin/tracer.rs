//! Callbacks of the emulator.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::api::{Api, Translation};
use crate::block::Block;
use crate::channel::Channel;
use crate::geometry::{Geometry, LINE_BYTES};
use crate::recorder::Recorder;
use crate::stream::Stream;

/// Bound on the threads that can be counted, at once and (as the emulator numbers them) one after another.
const THREADS_MAX: usize = 1024;

static TRACER: OnceLock<Tracer> = OnceLock::new();

/// Streams by vCPU. Separate from the tracer, because they are looked up at every access.
static STREAMS: [AtomicPtr<Stream>; THREADS_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; THREADS_MAX];

/// Whether this process is a child of the profiled one.
static MUTED: AtomicBool = AtomicBool::new(false);

/// System calls by which a program becomes another one: execve and execveat.
#[cfg(target_arch = "x86_64")]
const REPLACE: [i64; 2] = [59, 322];
#[cfg(not(target_arch = "x86_64"))]
const REPLACE: [i64; 2] = [221, 281];

/// The models of a program, and the channel to the profiler.
#[derive(Debug)]
pub struct Tracer {
    api: Api,
    geometry: Geometry,
    channel: Channel,
    recorder: Mutex<Recorder>,
}

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

impl Tracer {
    /// Registers all callbacks; once in a process.
    pub fn begin(id: u64, api: Api, channel: Channel, geometry: Geometry) -> Result<(), String> {
        let recorder = Mutex::new(Recorder::new(&geometry));
        let tracer = Tracer {
            api,
            geometry,
            channel,
            recorder,
        };
        TRACER.set(tracer).map_err(|_| "loaded twice".to_string())?;
        // SAFETY: the functions live as long as the process, which never unloads the plugin.
        if unsafe { pthread_atfork(None, Some(on_fork_in_parent), Some(on_fork_in_child)) } != 0 {
            return Err("forks cannot be noticed".into());
        }
        // SAFETY: called from qemu_plugin_install, with its id.
        unsafe {
            api.listen(
                id,
                on_translation,
                (on_thread_begin, on_thread_end),
                on_system_call,
                on_exit,
            )
        };
        if let Some(tracer) = TRACER.get() {
            tracer.channel.set_installed();
        }
        Ok(())
    }

    fn report(&self, stream: &mut Stream) {
        if MUTED.load(Ordering::Relaxed) {
            // Avoid the lock, which another thread may have held when this process was forked.
            return stream.mute();
        }
        let mut recorder = self.recorder();
        if stream.report(&mut recorder) {
            let window = recorder.take();
            self.channel.push(&window);
        } else {
            self.channel.show(recorder.open());
        }
    }

    /// Locks the recorder. A panic aborts, so no thread sees a poisoned lock.
    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream of a vCPU; `None` for a vCPU over the bound, or before it began.
///
/// # Safety
/// While the result is used, no other thread may ask for the same vCPU. The vCPU's own callbacks ask one after another;
/// those of its begin and end, before the first and after the last of them; and that of the program's end, when all
/// others are over.
#[inline]
unsafe fn stream(vcpu: c_uint) -> Option<&'static mut Stream> {
    let stream = STREAMS.get(vcpu as usize)?.load(Ordering::Relaxed);
    // SAFETY: null or from `Box::into_raw`, and never freed; the caller promises that it is the only one.
    unsafe { stream.as_mut() }
}

extern "C" fn on_thread_begin(_id: u64, vcpu: c_uint) {
    let Some(tracer) = TRACER.get() else { return };
    let Some(place) = STREAMS.get(vcpu as usize) else {
        return tracer.channel.add_thread(false);
    };
    let fresh = Stream::new(&tracer.geometry);
    // SAFETY: the vCPU begins.
    match unsafe { stream(vcpu) } {
        // The number belonged to a thread that has ended.
        Some(old) => {
            tracer.report(old);
            *old = fresh;
        }
        None => place.store(Box::into_raw(Box::new(fresh)), Ordering::Relaxed),
    }
    if !MUTED.load(Ordering::Relaxed) {
        tracer.channel.add_thread(true);
    }
}

extern "C" fn on_thread_end(_id: u64, vcpu: c_uint) {
    // SAFETY: the vCPU has ended.
    if let (Some(tracer), Some(stream)) = (TRACER.get(), unsafe { stream(vcpu) }) {
        tracer.report(stream);
    }
}

extern "C" fn on_translation(_id: u64, translation: Translation) {
    let Some(Tracer { api, .. }) = TRACER.get() else { return };
    // SAFETY: all within the call that handed out the translation.
    unsafe {
        let (mut from, mut to) = (u64::MAX, 0);
        for instruction in api.instructions(translation) {
            let extent = api.extent(instruction);
            (from, to) = (from.min(extent.start), to.max(extent.end));
            api.listen_to_accesses(instruction, on_access);
        }
        let (first, last) = (from / LINE_BYTES, to.saturating_sub(1) / LINE_BYTES);
        let instructions = api.instructions(translation).len() as u64;
        let block = Block::new(first, (last + 1).saturating_sub(first), instructions);
        api.listen_to_block(translation, on_block, block.to_bits());
    }
}

extern "C" fn on_block(vcpu: c_uint, block: *mut c_void) {
    // SAFETY: a callback of the vCPU.
    let Some(stream) = (unsafe { stream(vcpu) }) else {
        return;
    };
    // A report is due at the end of the block before.
    if stream.is_due() {
        report(stream);
    }
    stream.enter(Block::from_bits(block.addr() as u64));
}

/// Cold: called once in thousands of blocks.
#[cold]
fn report(stream: &mut Stream) {
    if let Some(tracer) = TRACER.get() {
        tracer.report(stream);
    }
}

extern "C" fn on_access(vcpu: c_uint, kind: u32, address: u64, _: *mut c_void) {
    // SAFETY: a callback of the vCPU.
    if let (Some(stream), Some(tracer)) = (unsafe { stream(vcpu) }, TRACER.get()) {
        stream.access(address, tracer.api.access_bytes(kind));
    }
}

#[allow(clippy::too_many_arguments)] // As the emulator calls it.
extern "C" fn on_system_call(
    _: u64,
    vcpu: c_uint,
    number: i64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    if !REPLACE.contains(&number) || MUTED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: a callback of the vCPU.
    if let (Some(tracer), Some(stream)) = (TRACER.get(), unsafe { stream(vcpu) }) {
        // If the call succeeds, no callback is called any more.
        tracer.report(stream);
        tracer.channel.add_replacement();
    }
}

extern "C" fn on_exit(_id: u64, _: *mut c_void) {
    if MUTED.load(Ordering::Relaxed) {
        return;
    }
    let Some(tracer) = TRACER.get() else { return };
    for vcpu in 0..THREADS_MAX as c_uint {
        // SAFETY: the emulator has ended all callbacks.
        if let Some(stream) = unsafe { stream(vcpu) } {
            tracer.report(stream);
        }
    }
    tracer.channel.set_ended();
}

extern "C" fn on_fork_in_parent() {
    if let Some(tracer) = TRACER.get()
        && !MUTED.load(Ordering::Relaxed)
    {
        tracer.channel.add_child();
    }
}

extern "C" fn on_fork_in_child() {
    MUTED.store(true, Ordering::Relaxed);
}

//! Stages in shared libraries, written against `include/punctual_stage.h`.

use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use punctual_platform::linux::library::Library;
use punctual_units::Time;

use crate::{AnyStage, Failure, Frames, Head};

/// Version of the header that this program serves.
const ABI_VERSION: u32 = 1;
/// Greatest length of a state, in bytes: more is surely a mistake.
const STATE_MAX: usize = 1 << 30;

/// Why a library cannot serve as a stage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CStageError {
    /// The library cannot be loaded.
    #[error("{}: cannot be loaded: {why}; name a shared library of this machine", path.display())]
    Load {
        /// Path of the rejected library.
        path: PathBuf,
        /// Message of the dynamic loader.
        why: String,
    },
    /// A function of the header is missing.
    #[error("{}: has no function {symbol}: build it with include/punctual_stage.h, as a stage", path.display())]
    Symbol {
        /// Path of the rejected library.
        path: PathBuf,
        /// Name of the missing function.
        symbol: String,
    },
    /// The library was built with another version of the header.
    #[error(
        "{}: was built with version {version} of punctual_stage.h, and this program has version {ABI_VERSION}: build it \
         again",
        path.display()
    )]
    Version {
        /// Path of the rejected library.
        path: PathBuf,
        /// Version with which it was built.
        version: u32,
    },
    /// The state is longer than `STATE_MAX`.
    #[error("{}: has a state of {bytes} bytes, at most are {STATE_MAX}", path.display())]
    State {
        /// Path of the rejected library.
        path: PathBuf,
        /// Length of its state, in bytes.
        bytes: usize,
    },
}

/// Layout of `struct punctual_head` in the header.
#[repr(C)]
#[derive(Clone, Copy)]
struct CHead {
    sequence: u64,
    captured_at: u64,
    due_by: u64,
}

/// Layout of `struct punctual_frames` in the header.
#[repr(C)]
struct CFrames {
    inputs: usize,
    outputs: usize,
    /// Pointer to the step's [`Frames`].
    punctual: *mut c_void,
    count: unsafe extern "C" fn(*const CFrames, usize) -> usize,
    input: unsafe extern "C" fn(*const CFrames, usize, usize, *mut usize, *mut CHead) -> *const c_void,
    output: unsafe extern "C" fn(*mut CFrames, usize, *mut usize) -> *mut c_void,
    make: unsafe extern "C" fn(*mut CFrames, usize, usize, *const CHead) -> c_int,
    end: unsafe extern "C" fn(*mut CFrames),
}

/// Returns the frames behind the pointer that a stage was given.
///
/// # Safety
/// `frames` is the pointer that [`CStage::step`] has passed to the library, which has not returned.
unsafe fn behind<'s>(frames: *const CFrames) -> &'s mut Frames<'s> {
    // SAFETY: by contract; the library calls from one thread, one function after the other, so that no other reference
    // is in use.
    unsafe { &mut *(*frames).punctual.cast() }
}

// SAFETY of the following: a library calls them within its step, with the pointer that it was given (`behind`);
// pointers that it passes are null or its own, by contract of the header.

unsafe extern "C" fn count(frames: *const CFrames, input: usize) -> usize {
    // SAFETY: as above.
    let frames = unsafe { behind(frames) };
    if input < frames.inputs() {
        frames.count(input)
    } else {
        0
    }
}

unsafe extern "C" fn input(
    frames: *const CFrames,
    input: usize,
    number: usize,
    bytes: *mut usize,
    head: *mut CHead,
) -> *const c_void {
    // SAFETY: as above.
    let frames = unsafe { behind(frames) };
    if input >= frames.inputs() || number >= frames.count(input) {
        return ptr::null();
    }
    let content = frames.input(input, number);
    let Head {
        sequence,
        captured_at,
        due_by,
    } = frames.head(input, number);
    // SAFETY: as above.
    unsafe {
        if !bytes.is_null() {
            *bytes = content.len();
        }
        if !head.is_null() {
            *head = CHead {
                sequence,
                captured_at: captured_at.0,
                due_by: due_by.0,
            };
        }
    }
    content.as_ptr().cast()
}

unsafe extern "C" fn output(frames: *mut CFrames, output: usize, bytes: *mut usize) -> *mut c_void {
    // SAFETY: as above.
    let frames = unsafe { behind(frames) };
    if output >= frames.outputs() || frames.left(output) == 0 {
        return ptr::null_mut();
    }
    let room = frames.output(output);
    if !bytes.is_null() {
        // SAFETY: as above.
        unsafe { *bytes = room.len() };
    }
    room.as_mut_ptr().cast()
}

unsafe extern "C" fn make(frames: *mut CFrames, output: usize, bytes: usize, head: *const CHead) -> c_int {
    // SAFETY: as above.
    let (frames, head) = unsafe { (behind(frames), head.as_ref()) };
    let fits = output < frames.outputs() && frames.left(output) > 0 && bytes <= frames.output(output).len();
    if !fits {
        return -1;
    }
    let head = head.map_or(Head::default(), |head| Head {
        sequence: head.sequence,
        captured_at: Time(head.captured_at),
        due_by: Time(head.due_by),
    });
    frames.make(output, bytes, head);
    0
}

unsafe extern "C" fn end(frames: *mut CFrames) {
    // SAFETY: as above.
    unsafe { behind(frames) }.end();
}

/// Functions that a library exports.
#[derive(Clone, Copy, Debug)]
struct Functions {
    begin: unsafe extern "C" fn(*mut c_void),
    step: unsafe extern "C" fn(*mut c_void, *mut CFrames) -> c_int,
    convert: Option<unsafe extern "C" fn(u32, *const c_void, usize, *mut c_void) -> c_int>,
}

/// Function without arguments, which returns a number.
type Number<T> = unsafe extern "C" fn() -> T;

/// # Safety
/// The contract of [`Library::function`].
unsafe fn function<'n, F: Copy>(library: &Library, name: &'n CStr) -> Result<F, &'n CStr> {
    // SAFETY: by contract.
    unsafe { library.function(name) }.ok_or(name)
}

/// 64 bytes of a state, aligned to 64 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A stage whose code is in a shared library.
#[derive(Debug)]
pub struct CStage {
    functions: Functions,
    version: u32,
    bytes: usize,
    state: Box<[Line]>,
}

impl CStage {
    /// Loads the library at `path`; the stage is in its state before the first frame.
    ///
    /// # Safety
    /// The library fulfils the contract of `include/punctual_stage.h`: its code runs in this process.
    ///
    /// # Errors
    /// [`CStageError`] if it cannot be loaded, or is no stage of this version.
    pub unsafe fn open(path: &Path) -> Result<CStage, CStageError> {
        let load = |why| CStageError::Load { path: path.into(), why };
        // SAFETY: by contract.
        let library = unsafe { Library::open(path) }.map_err(load)?;
        let missing = |name: &CStr| CStageError::Symbol {
            path: path.into(),
            symbol: name.to_string_lossy().into_owned(),
        };
        // SAFETY: the functions have the header's types, by contract. The version is checked first, because the types
        // of all others depend on it.
        unsafe {
            let abi_version: Number<u32> = function(&library, c"punctual_stage_abi_version").map_err(missing)?;
            let version = abi_version();
            if version != ABI_VERSION {
                let path = path.into();
                return Err(CStageError::Version { path, version });
            }
            let state_bytes: Number<usize> = function(&library, c"punctual_stage_state_bytes").map_err(missing)?;
            let state_version: Number<u32> = function(&library, c"punctual_stage_state_version").map_err(missing)?;
            let functions = Functions {
                begin: function(&library, c"punctual_stage_begin").map_err(missing)?,
                step: function(&library, c"punctual_stage_step").map_err(missing)?,
                convert: library.function(c"punctual_stage_convert"),
            };
            CStage::new(functions, state_version(), state_bytes()).map_err(|bytes| CStageError::State {
                path: path.into(),
                bytes,
            })
        }
    }

    /// A stage of these functions; `Err` is the length of its state, if that is too long.
    fn new(functions: Functions, version: u32, bytes: usize) -> Result<CStage, usize> {
        if bytes > STATE_MAX {
            return Err(bytes);
        }
        let mut stage = CStage {
            functions,
            version,
            bytes,
            state: vec![Line([0; 64]); bytes.div_ceil(64).max(1)].into(),
        };
        stage.begin();
        Ok(stage)
    }

    /// Length of the stage's state, in bytes.
    pub fn state_bytes(&self) -> usize {
        self.bytes
    }

    fn memory(&mut self) -> *mut c_void {
        self.state.as_mut_ptr().cast()
    }

    fn state(&self) -> &[u8] {
        // SAFETY: the lines have at least that many bytes, without gaps.
        unsafe { std::slice::from_raw_parts(self.state.as_ptr().cast(), self.bytes) }
    }
}

impl AnyStage for CStage {
    fn version(&self) -> u32 {
        self.version
    }

    fn begin(&mut self) {
        self.state.fill(Line([0; 64]));
        // SAFETY: the state is as long as the library has declared.
        unsafe { (self.functions.begin)(self.memory()) };
    }

    fn load(&mut self, version: u32, bytes: &[u8]) -> Result<(), Failure> {
        let own = self.version;
        self.state.fill(Line([0; 64]));
        if version == own {
            if bytes.len() != self.bytes {
                let (saved, expected) = (bytes.len(), self.bytes);
                return Err(Failure(format!(
                    "its saved state has {saved} bytes, and the library's has {expected}: give it another version"
                )));
            }
            // SAFETY: the state has as many bytes, and does not overlap the saved one.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory().cast(), bytes.len()) };
            return Ok(());
        }
        let refused = || {
            Err(Failure(format!(
                "it has states of version {own} and does not convert one of version {version}"
            )))
        };
        let Some(convert) = self.functions.convert else {
            return refused();
        };
        // SAFETY: both are as long as declared, and aligned as the header says: a saved state begins at a line.
        match unsafe { convert(version, bytes.as_ptr().cast(), bytes.len(), self.memory()) } {
            0 => Ok(()),
            _ => refused(),
        }
    }

    fn save(&self, room: &mut [u8]) -> Result<usize, Failure> {
        let (bytes, there) = (self.bytes, room.len());
        let room = room.get_mut(..bytes).ok_or_else(|| {
            Failure(format!(
                "its state of {bytes} bytes does not fit into {there}: give the stage a larger state_room"
            ))
        })?;
        room.copy_from_slice(self.state());
        Ok(bytes)
    }

    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure> {
        let mut passed = CFrames {
            inputs: frames.inputs(),
            outputs: frames.outputs(),
            punctual: ptr::from_mut(frames).cast(),
            count,
            input,
            output,
            make,
            end,
        };
        // SAFETY: the state is the library's own, and `passed` lives until it returns.
        match unsafe { (self.functions.step)(self.memory(), &mut passed) } {
            0 => Ok(()),
            answer => Err(Failure(format!("its step answered {answer}"))),
        }
    }
}

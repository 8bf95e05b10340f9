//! Shared libraries, loaded while a program runs (dlopen(3)).

use std::ffi::{CStr, CString, c_void};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// A loaded library. It stays loaded until the process ends: code that it has started may outlive this value.
#[derive(Clone, Debug)]
pub struct Library(NonNull<c_void>);

// SAFETY: a handle is a number to the loader, which locks for itself (dlsym(3), "MT-Safe").
unsafe impl Send for Library {}

impl Library {
    /// Loads the library at `path`, with all symbols that it needs from others.
    ///
    /// # Safety
    /// The library's constructors are executed, and must be sound in this process.
    ///
    /// # Errors
    /// The loader's message: the file is missing, or is no library for this machine.
    pub unsafe fn open(path: &Path) -> Result<Library, String> {
        // A name without a folder would be searched for elsewhere. A file that was replaced, and that a process still
        // holds open (`/proc/PID/fd`), has no other name.
        let path = match path.canonicalize() {
            Err(_) if File::open(path).is_ok() => std::path::absolute(path),
            canonical => canonical,
        };
        let path = path.map_err(|why| why.to_string())?;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|why| why.to_string())?;
        // SAFETY: the path ends with zero; the constructors are sound by contract.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Library).ok_or_else(last_words)
    }

    /// The function of this name, as type `F`; `None` if the library has none.
    ///
    /// # Safety
    /// `F` must be the type of a function pointer, and match the library's function.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is open, and the name ends with zero.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        // SAFETY: `F` has the size of a pointer and is the function's type, by contract; POSIX lets functions and data
        // share pointers (dlsym(3)).
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
    }
}

/// The loader's message for the last failure in this thread.
fn last_words() -> String {
    // SAFETY: the text is this thread's until its next call of the loader, and is copied before.
    unsafe {
        match libc::dlerror() {
            words if words.is_null() => "the loader does not say why".into(),
            words => CStr::from_ptr(words).to_string_lossy().into_owned(),
        }
    }
}

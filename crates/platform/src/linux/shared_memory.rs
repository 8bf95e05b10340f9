//! Memory that several processes map: a file without a name, which is freed with the last of them (memfd_create(2)).

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use punctual_custody::tree::field;
use punctual_os::linux::mapping::{Mapping, allocate, memory_file};

use super::refused;
use crate::Refusal;

/// A readable and writable mapping of such a file.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: Mapping,
    file: File,
}

impl SharedMemory {
    /// New memory, zeroed and fully allocated, so that no later write can find the memory exhausted. `name` is shown in
    /// `/proc/PID/maps`. Programs that this one executes inherit it only if they are given it.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel refuses it.
    pub fn create(name: &str, bytes: usize) -> Result<SharedMemory, Refusal> {
        let named = CString::new(name).unwrap_or_default();
        let refusal = |why: io::Error| {
            let what = format!("making {bytes} bytes of shared memory");
            let remedy = "free memory, or ask for less: shorter queues, smaller frames and states";
            refused(what, why, remedy)
        };
        // Unnamed files have no limit of their own: the kernel would kill programs to make room.
        let available = available().unwrap_or(u64::MAX);
        if bytes as u64 > available / 4 * 3 {
            let why = format!("{available} bytes of memory are available, of which three quarters may be taken");
            return Err(refusal(io::Error::other(why)));
        }
        let file = memory_file(&named).and_then(|file| allocate(&file, bytes).map(|()| file));
        file.and_then(|file| SharedMemory::map(file, bytes)).map_err(refusal)
    }

    /// Maps the memory of an inherited descriptor.
    ///
    /// # Errors
    /// [`Refusal`] if the descriptor is no such file, or the kernel refuses the mapping.
    pub fn open(file: OwnedFd) -> Result<SharedMemory, Refusal> {
        let refusal = |why: io::Error| {
            let remedy = "start this program by the one that has the memory";
            refused("mapping the shared memory", why, remedy)
        };
        let file = File::from(file);
        let bytes = file.metadata().map_err(refusal)?.len() as usize;
        SharedMemory::map(file, bytes).map_err(refusal)
    }

    fn map(file: File, bytes: usize) -> io::Result<SharedMemory> {
        let mapping = Mapping::of(&file, bytes, true)?;
        Ok(SharedMemory { mapping, file })
    }

    /// Address of the first byte, aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Length of the mapping in bytes.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Faults the memory into this process's page tables, so that later access takes no fault; does nothing on kernels
    /// before 5.14.
    pub fn populate(&self) {
        let _ = self.mapping.populate(); // pages that are missing come at their first access
    }
}

/// Memory that programs can be given without swapping, in bytes (proc_meminfo(5)).
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = field(&text, "MemAvailable")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_are_the_same_memory() {
        let memory = SharedMemory::create("punctual-test", 8192).unwrap();
        memory.populate();
        let other = SharedMemory::open(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(other.bytes(), 8192);
        // SAFETY: within both mappings; no other thread knows them.
        unsafe {
            memory.base().add(5000).write(7);
            assert_eq!(other.base().add(5000).read(), 7);
        }
    }

    #[test]
    fn more_than_there_is_is_refused_before_any_of_it_is_taken() {
        let refused = SharedMemory::create("punctual-test", 1 << 60).unwrap_err().to_string();
        assert!(refused.contains("are available"), "{refused}");
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}

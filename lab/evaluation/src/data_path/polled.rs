//! A file that is read around the page cache, with polling for the completion.
//!
//! Reads go through `io_uring` with `O_DIRECT`; the reader polls the completion ring for as long as the policy says and
//! only then sleeps. The kernel's own polling (`IORING_SETUP_IOPOLL`) is not used: it needs a driver with polling
//! queues, which few machines have switched on, and then every read of the ring must be polled.
//!
//! One read is in flight at a time. If the kernel took a read, or may have, and its completion was not seen, the ring
//! is *broken*: the device may still write into the buffer, and the next completion would be of the older read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use io_uring::{IoUring, opcode, types};
use punctual_os::LinuxOs;
use punctual_platform::Refusal;
use punctual_units::{Clock, Nanos};

use super::refused;

/// Alignment of offsets and lengths: every device's `O_DIRECT` accepts it.
pub const BLOCK_BYTES: usize = 4096;
/// Limit of polling, whatever the caller asks for: otherwise a device that hangs would hold the core without limit.
const SPIN_MAX: Nanos = Nanos::from_millis(100);

/// An open file with an `io_uring` of its own.
pub struct PolledFile {
    file: File,
    /// `None`: the ring is broken.
    ring: Option<IoUring>,
    buffer: Vec<Block>,
}

#[repr(C, align(4096))]
#[derive(Clone, Copy)]
struct Block([u8; BLOCK_BYTES]);

impl PolledFile {
    /// Opens the file at `path` for reads of up to `bytes_max` bytes, rounded up to whole blocks.
    ///
    /// # Errors
    /// [`Refusal`] where the file system does not support `O_DIRECT` or the kernel refuses a ring; read blocking then.
    pub fn open(path: &Path, bytes_max: usize) -> Result<PolledFile, Refusal> {
        let refusal =
            |why: io::Error, remedy: &str| refused(format!("reading {} by polling", path.display()), why, remedy);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(path)
            .map_err(|why| {
                refusal(
                    why,
                    "name a file on a file system with O_DIRECT (not on tmpfs before Linux 6.6)",
                )
            })?;
        let ring = IoUring::new(4).map_err(|why| {
            refusal(
                why,
                "allow io_uring: sysctl kernel.io_uring_disabled=0, and in containers its seccomp profile",
            )
        })?;
        Ok(PolledFile {
            file,
            ring: Some(ring),
            buffer: vec![Block([0; BLOCK_BYTES]); bytes_max.div_ceil(BLOCK_BYTES).max(1)],
        })
    }

    /// Reads `bytes` at `offset`, both multiples of [`BLOCK_BYTES`], polling for the completion for `spin` and then
    /// sleeping until it comes: [`Nanos::ZERO`] blocks at once, [`Nanos::MAX`] polls for `SPIN_MAX`. Returns fewer
    /// bytes at the end of the file.
    ///
    /// # Errors
    /// The device's error; `InvalidInput` for a read that is not of whole blocks or is longer than the buffer;
    /// `BrokenPipe` after the kernel has failed to take a read or to report its completion: open the file again, or
    /// read it blocking.
    pub fn read(&mut self, offset: u64, bytes: usize, spin: Nanos) -> io::Result<&[u8]> {
        if self.ring.is_some()
            && (!offset.is_multiple_of(BLOCK_BYTES as u64)
                || !bytes.is_multiple_of(BLOCK_BYTES)
                || bytes > self.buffer.len() * BLOCK_BYTES)
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let Some(ring) = &mut self.ring else {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "an earlier read may still be under way: open the file again",
            ));
        };
        let entry = opcode::Read::new(
            types::Fd(self.file.as_raw_fd()),
            self.buffer.as_mut_ptr().cast(),
            bytes as u32,
        )
        .offset(offset)
        .build();
        // SAFETY: the buffer and the file live in `self`, which is borrowed until the completion was seen; otherwise
        // the buffer is leaked.
        let pushed = unsafe { ring.submission().push(&entry) }.map_err(io::Error::other);
        match pushed.and_then(|()| completed(ring, spin.min(SPIN_MAX))) {
            Ok(read) => match usize::try_from(read) {
                // SAFETY: the blocks are plain bytes without padding; the kernel has filled the first `read` of them.
                Ok(read) => Ok(unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().cast(), read) }),
                Err(_) => Err(io::Error::from_raw_os_error(-read)),
            },
            Err(why) => {
                self.ring = None;
                // The device may still write into the buffer: it must never be used again, nor freed.
                std::mem::forget(std::mem::take(&mut self.buffer));
                Err(why)
            }
        }
    }
}

/// Submits the read that was pushed, and waits for its completion: polling for `spin`, then asleep.
fn completed(ring: &mut IoUring, spin: Nanos) -> io::Result<i32> {
    uninterrupted(|| ring.submit())?;
    let spin_until = LinuxOs.now() + spin;
    loop {
        if let Some(completion) = ring.completion().next() {
            return Ok(completion.result());
        }
        if LinuxOs.now() < spin_until {
            std::hint::spin_loop();
        } else {
            uninterrupted(|| ring.submit_and_wait(1))?;
        }
    }
}

/// Repeats a call that a signal interrupted. Entries that the kernel had taken by then are out of the queue, so none is
/// submitted twice.
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_wait_reads_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let data: Vec<u8> = (0..3 * BLOCK_BYTES).map(|i| (i / 7) as u8).collect();
        std::fs::write(&path, &data).unwrap();
        let mut file = match PolledFile::open(&path, 2 * BLOCK_BYTES) {
            Ok(file) => file,
            Err(refusal) => return eprintln!("skipped: {refusal}"),
        };
        for spin in [Nanos::ZERO, Nanos::from_micros(10), Nanos::MAX] {
            let whole = file.read(BLOCK_BYTES as u64, 2 * BLOCK_BYTES, spin).unwrap();
            assert_eq!(whole, &data[BLOCK_BYTES..]);
            assert_eq!(
                file.read(2 * BLOCK_BYTES as u64, 2 * BLOCK_BYTES, spin).unwrap().len(),
                BLOCK_BYTES
            );
        }
        for (offset, bytes) in [(1, BLOCK_BYTES), (0, 100), (0, 3 * BLOCK_BYTES)] {
            assert!(file.read(offset, bytes, Nanos::ZERO).is_err());
        }
    }

    #[test]
    fn after_a_read_that_the_kernel_did_not_take_no_older_one_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, [[1u8; BLOCK_BYTES], [2; BLOCK_BYTES]].concat()).unwrap();
        let mut file = match PolledFile::open(&path, BLOCK_BYTES) {
            Ok(file) => file,
            Err(refusal) => return eprintln!("skipped: {refusal}"),
        };
        // Planted fault: for one read, the ring's descriptor is not a ring's.
        let ring = file.ring.as_ref().unwrap().as_raw_fd();
        let other = File::open("/dev/null").unwrap();
        // SAFETY: plain descriptors of this test; `kept` is put back below.
        let kept = unsafe {
            let kept = libc::dup(ring);
            libc::dup2(other.as_raw_fd(), ring);
            kept
        };
        let failed = file.read(0, BLOCK_BYTES, Nanos::ZERO).map(<[u8]>::to_vec);
        // SAFETY: as above. Where the ring has been closed, its number may be another file's by now.
        unsafe {
            if file.ring.is_some() {
                libc::dup2(kept, ring);
            }
            libc::close(kept);
        }
        assert!(failed.is_err());
        let next = file.read(BLOCK_BYTES as u64, BLOCK_BYTES, Nanos::ZERO);
        assert_eq!(next.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let mut again = PolledFile::open(&path, BLOCK_BYTES).unwrap();
        assert_eq!(again.read(BLOCK_BYTES as u64, BLOCK_BYTES, Nanos::ZERO).unwrap()[0], 2);
    }

    #[test]
    fn a_file_that_is_not_there_is_refused() {
        assert!(PolledFile::open(Path::new("/nowhere/movie"), 1).is_err());
    }
}

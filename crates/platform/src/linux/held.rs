//! Holds standard output back while a live view has the terminal, so that it can be read afterwards.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Largest amount held back, in bytes; the oldest bytes are dropped.
const KEPT_MAX: usize = 64 << 10;
/// Longest wait for the last output of programs that have ended.
const LAST: Duration = Duration::from_millis(500);
const STDOUT: RawFd = 1;

/// The original standard output, and the bytes written meanwhile.
#[derive(Debug)]
pub struct HeldOutput {
    kept: Arc<Mutex<BufferedOutput>>,
    read: Receiver<()>,
    open: bool,
}

#[derive(Debug)]
struct BufferedOutput {
    bytes: VecDeque<u8>,
    real: File,
    /// Whether bytes are written to `real` at once.
    passes: bool,
}

impl BufferedOutput {
    fn take(&mut self, bytes: &[u8]) {
        if self.passes {
            // A failure means that the output was closed: nothing reads it.
            let _ = self.real.write_all(bytes);
            return;
        }
        self.bytes.extend(bytes);
        let surplus = self.bytes.len().saturating_sub(KEPT_MAX);
        self.bytes.drain(..surplus);
    }
}

impl HeldOutput {
    /// Begins to hold back the standard output of this process, and of programs that it starts from now on.
    ///
    /// # Errors
    /// The system's error; nothing is changed then.
    pub fn begin() -> io::Result<HeldOutput> {
        let (mut reader, writer) = io::pipe()?;
        let real = io::stdout().as_fd().try_clone_to_owned()?;
        put(writer.as_raw_fd(), STDOUT)?;
        let kept = Arc::new(Mutex::new(BufferedOutput {
            bytes: VecDeque::new(),
            real: real.into(),
            passes: false,
        }));
        let (keeper, (told, read)) = (Arc::clone(&kept), channel());
        std::thread::Builder::new().name("held output".into()).spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                keeper
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take(&bytes[..length]);
            }
            // Fails only if nothing waits for the end any more.
            let _ = told.send(());
        })?;
        Ok(HeldOutput { kept, read, open: true })
    }

    /// Writes the bytes held back, and passes all later ones on.
    pub fn pass(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let held: Vec<u8> = kept.bytes.drain(..).collect();
        let _ = kept.real.write_all(&held);
        kept.passes = true;
        // If that fails, this process goes on writing through the pipe.
        let _ = put(kept.real.as_raw_fd(), STDOUT);
    }

    /// As `pass`, and waits a little for the last output of programs that have ended.
    pub fn end(mut self) {
        self.pass();
        let _ = self.read.recv_timeout(LAST);
    }
}

impl Drop for HeldOutput {
    fn drop(&mut self) {
        self.pass();
    }
}

/// Makes the descriptor `to` a duplicate of `from`.
fn put(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: plain numbers; the former `to` is closed.
    match unsafe { libc::dup2(from, to) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

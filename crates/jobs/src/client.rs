//! The program's side: a reporter for each thread and task.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use punctual_os::linux::mapping::allocate;
use punctual_os::linux::refused;
use punctual_os::{LinuxOs, Refusal, Tid};
use punctual_units::{Clock, Nanos, Time};

use crate::folder;
use crate::shared::{SharedPage, address, own_user, sealed_memory, send, user_of};
use crate::wire::{BYTES, HELLO, MAGIC, NAME_BYTES, PAGE, Page, RECORDS, Ring, SOCKET, VERSION};

/// The jobs of one task, as one thread does them.
///
/// ```
/// use punctual_jobs::JobReporter;
/// use punctual_units::Nanos;
/// let mut control = JobReporter::open("control")?.due_in(Nanos::from_millis(5));
/// for _ in 0..3 {
///     let _job = control.job(); // ends when dropped
/// }
/// # Ok::<(), punctual_os::Refusal>(())
/// ```
#[derive(Debug)]
pub struct JobReporter {
    ring: SharedPage<Ring>,
    page: SharedPage<Page>,
    /// Zeroed in a forked child, which shares the ring with its parent.
    own: SharedPage<OwnState>,
    file: OwnedFd,
    socket: libc::sockaddr_un,
}

/// State that a forked child loses.
#[derive(Debug)]
#[repr(C)]
struct OwnState {
    is_parent: bool,
    /// The runtime to which the ring was handed over; 0: to none.
    epoch: u32,
}

impl JobReporter {
    /// A reporter of the task `name`, 1 to 63 bytes, in this user's [`folder`].
    ///
    /// # Errors
    /// [`Refusal`] for such a name, or if the folder cannot be used; the program goes on without reports.
    pub fn open(name: &str) -> Result<JobReporter, Refusal> {
        JobReporter::open_in(&folder(), name)
    }

    /// As [`open`](JobReporter::open), in another folder.
    ///
    /// # Errors
    /// As for [`open`](JobReporter::open).
    pub fn open_in(folder: &Path, name: &str) -> Result<JobReporter, Refusal> {
        let refusal = |why: &dyn std::fmt::Display, remedy: &str| {
            let shown: String = name.chars().take(NAME_BYTES).collect();
            refused(format!("reporting the jobs of \"{shown}\""), why, remedy)
        };
        if name.is_empty() || name.len() >= NAME_BYTES || name.contains(char::from(0)) {
            return Err(refusal(
                &"a name has 1 to 63 bytes, none of them 0",
                "choose a shorter name",
            ));
        }
        let made = || -> io::Result<JobReporter> {
            let page = open_page(folder)?;
            let file = sealed_memory()?;
            let ring: SharedPage<Ring> = SharedPage::of(&file, true)?;
            // SAFETY: the ring is not shared yet.
            unsafe {
                let ring = &mut *ring.pointer();
                (ring.magic, ring.version, ring.bytes) = (MAGIC, VERSION, BYTES as u32);
                ring.name[..name.len()].copy_from_slice(name.as_bytes());
            }
            ring.get().process.store(std::process::id() as i32, Relaxed);
            let own: SharedPage<OwnState> = SharedPage::private()?;
            // SAFETY: the state is ours alone.
            unsafe { (*own.pointer()).is_parent = true };
            let socket = address(&folder.join(SOCKET))?;
            Ok(JobReporter {
                ring,
                page,
                own,
                file,
                socket,
            })
        };
        made().map_err(|why| {
            refusal(
                &format!("{}: {why}", folder.display()),
                "set PUNCTUAL_RUN_DIR to a folder that can be written",
            )
        })
    }

    /// States the time from a job's release to its deadline; a runtime's own settings win.
    pub fn due_in(self, deadline: Nanos) -> JobReporter {
        self.ring.get().deadline.store(deadline.0, Relaxed);
        self
    }

    /// States the least time between two releases, which come at such steps: a job that begins later was released late.
    pub fn every(self, period: Nanos) -> JobReporter {
        self.ring.get().period.store(period.0, Relaxed);
        self
    }

    /// The ring, for tests of its reader.
    #[doc(hidden)]
    pub fn ring(&self) -> &Ring {
        self.ring.get()
    }

    /// Begins a job. Costs a load and a branch while no runtime listens.
    #[inline]
    pub fn begin(&mut self) {
        self.begin_released(Time::ZERO);
    }

    /// Begins a job that was released at an earlier instant, for example the one for which a timer was set.
    #[inline]
    pub fn begin_released(&mut self, released: Time) {
        match self.page.get().epoch.load(Relaxed) {
            0 => {}
            epoch => self.begin_for(epoch, released),
        }
    }

    fn begin_for(&mut self, epoch: u32, released: Time) {
        // SAFETY: the state is ours alone, and `self` is borrowed exclusively.
        let own = unsafe { &mut *self.own.pointer() };
        if !own.is_parent || own.epoch != epoch && !self.hand_over(own, epoch) {
            return;
        }
        let ring = self.ring.get();
        if ring.open_begun.load(Relaxed) != 0 {
            ring.misused.store(ring.misused.load(Relaxed) + 1, Relaxed);
            return;
        }
        ring.open_released.store(released.0, Relaxed);
        ring.open_begun.store(LinuxOs.now().0, Release);
    }

    /// Hands the ring over to a runtime that has begun to listen; returns whether that went well.
    #[cold]
    fn hand_over(&self, own: &mut OwnState, epoch: u32) -> bool {
        let ring = self.ring.get();
        ring.thread.store(Tid::current().0, Relaxed);
        ring.open_begun.store(0, Relaxed);
        // No runtime reads the ring now: what an earlier one has left is not for this one.
        ring.tail.store(ring.head.load(Relaxed), Relaxed);
        [&ring.dropped, &ring.misused]
            .into_iter()
            .for_each(|count| count.store(0, Relaxed));
        match send(&self.socket, HELLO, Some(self.file.as_raw_fd())) {
            Ok(()) => own.epoch = epoch,
            // The runtime has died or refuses this user: the ring is handed to the next one.
            Err(why)
                if matches!(
                    why.raw_os_error(),
                    Some(libc::ENOENT | libc::ECONNREFUSED | libc::EACCES)
                ) =>
            {
                own.epoch = epoch;
            }
            // The runtime's queue is full, or descriptors are short: the next job tries again.
            Err(_) => return false,
        }
        true
    }

    /// Ends the job under way.
    #[inline]
    pub fn end(&mut self) {
        if self.page.get().epoch.load(Relaxed) != 0 {
            self.end_now();
        }
    }

    fn end_now(&mut self) {
        // SAFETY: the state is ours alone.
        if !unsafe { &*self.own.pointer() }.is_parent {
            return;
        }
        let ring = self.ring.get();
        let begun = ring.open_begun.load(Relaxed);
        if begun == 0 {
            return ring.misused.store(ring.misused.load(Relaxed) + 1, Relaxed);
        }
        let (number, head) = (ring.number.load(Relaxed), ring.head.load(Relaxed));
        if head.wrapping_sub(ring.tail.load(Acquire)) < RECORDS as u64 {
            let record = &ring.records[(head % RECORDS as u64) as usize];
            record.number.store(number, Relaxed);
            record.released.store(ring.open_released.load(Relaxed), Relaxed);
            record.begun.store(begun, Relaxed);
            record.ended.store(LinuxOs.now().0, Relaxed);
            ring.head.store(head + 1, Release);
        } else {
            ring.dropped.store(ring.dropped.load(Relaxed) + 1, Relaxed);
        }
        ring.number.store(number + 1, Relaxed);
        ring.open_begun.store(0, Release);
    }

    /// Begins a job that ends when the result is dropped.
    pub fn job(&mut self) -> JobGuard<'_> {
        self.begin();
        JobGuard(self)
    }
}

impl Drop for JobReporter {
    fn drop(&mut self) {
        // SAFETY: the state is ours alone.
        if unsafe { &*self.own.pointer() }.is_parent {
            self.ring.get().closed.store(1, Release);
        }
    }
}

/// A job under way; ends when dropped.
#[derive(Debug)]
pub struct JobGuard<'r>(&'r mut JobReporter);

impl Drop for JobGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Reports by one message that a job of the task `name` begins or ends now, for scripts. Does nothing if no runtime
/// listens.
///
/// # Errors
/// [`Refusal`] for a name that is empty, too long or has blanks, and if a runtime listens that does not take it.
pub fn note(folder: &Path, name: &str, begins: bool) -> Result<(), Refusal> {
    let refusal = |why: &dyn std::fmt::Display, remedy: &str| refused("reporting a job", why, remedy);
    if name.is_empty() || name.len() >= NAME_BYTES || name.contains(|c: char| c.is_whitespace() || c == char::from(0)) {
        return Err(refusal(
            &"a name has 1 to 63 bytes and no blanks",
            "choose another name",
        ));
    }
    let word = if begins { "begin" } else { "end" };
    let text = format!("{word} {name} {}", LinuxOs.now().0);
    let sent = address(&folder.join(SOCKET)).and_then(|to| send(&to, text.as_bytes(), None));
    match sent.map_err(|why| (why.raw_os_error(), why)) {
        // A runtime that is stopped takes no messages: the script goes on.
        Ok(()) | Err((Some(libc::ENOENT | libc::ECONNREFUSED | libc::EAGAIN), _)) => Ok(()),
        Err((_, why)) => Err(refusal(
            &why,
            "run as the user of `punctual attach`, or set PUNCTUAL_RUN_DIR as it does",
        )),
    }
}

/// Opens the folder's page to read, and makes folder and page where they are missing. Follows no link.
fn open_page(folder: &Path) -> io::Result<SharedPage<Page>> {
    if !folder.is_dir() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    user_of(folder, false)?;
    let open = |writes: bool| {
        { OpenOptions::new() }
            .read(true)
            .write(writes)
            .create(writes)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(folder.join(PAGE))
    };
    let file = match open(true) {
        Ok(file) => allocate(&file, BYTES).map(|()| file),
        Err(_) => open(false),
    }?;
    let found = file.metadata()?;
    if !found.is_file() || ![0, own_user()].contains(&found.uid()) || found.len() < BYTES as u64 {
        return Err(io::Error::other(format!("{PAGE} is no page of this user's")));
    }
    SharedPage::of(&file, false)
}

//! Mappings of one page, and the messages by which their descriptors are handed over.

use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use punctual_os::linux::last_error;
use punctual_os::linux::mapping::Mapping;

use crate::wire::BYTES;

/// Seals of a ring: without them a program could take its memory away from the runtime that reads it.
pub(crate) const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A mapping of [`BYTES`] that reads as a `T`, all of whose shared fields are atomic.
#[derive(Debug)]
pub(crate) struct SharedPage<T>(Mapping, PhantomData<T>);

impl<T> SharedPage<T> {
    /// Maps the first [`BYTES`] of `file`, which has at least as many.
    pub(crate) fn of(file: impl AsFd, writable: bool) -> io::Result<SharedPage<T>> {
        const { assert!(size_of::<T>() <= BYTES) };
        Mapping::of(file, BYTES, writable).map(|mapped| SharedPage(mapped, PhantomData))
    }

    /// Private memory, which the kernel zeroes in a forked child.
    pub(crate) fn private() -> io::Result<SharedPage<T>> {
        const { assert!(size_of::<T>() <= BYTES) };
        Mapping::wiped_on_fork(BYTES).map(|mapped| SharedPage(mapped, PhantomData))
    }

    pub(crate) fn pointer(&self) -> *mut T {
        self.0.base().as_ptr().cast()
    }

    /// The shared value. Its fields that are not atomic are written before the memory is shared.
    pub(crate) fn get(&self) -> &T {
        // SAFETY: mapped for as long as `self` is, large enough and aligned to a page.
        unsafe { &*self.pointer() }
    }
}

/// User of this process.
pub(crate) fn own_user() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() }
}

/// The user of `folder`, which is no link: another user could point it anywhere, and take the memory of a file there
/// away from programs that map it. `others`: whether it may be another than this user and the superuser.
///
/// # Errors
/// The error of the system; the folder is a link, or belongs to a user that it may not.
pub fn user_of(folder: &Path, others: bool) -> io::Result<u32> {
    let found = folder.symlink_metadata()?;
    let user = found.uid();
    match found.is_dir() {
        true if others || [0, own_user()].contains(&user) => Ok(user),
        true => Err(io::Error::other(format!("the folder belongs to user {user}"))),
        false => Err(io::Error::from(io::ErrorKind::NotADirectory)),
    }
}

/// Memory of [`BYTES`] without a name, sealed against a change of its size.
pub(crate) fn sealed_memory() -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends with a zero.
    let file = new_descriptor(unsafe { libc::memfd_create(c"punctual jobs".as_ptr(), flags) })?;
    // SAFETY: the descriptor is open; both calls take plain numbers.
    let done = unsafe {
        libc::ftruncate(file.as_raw_fd(), BYTES as libc::off_t) == 0
            && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) == 0
    };
    if done { Ok(file) } else { Err(last_error()) }
}

/// Whether a descriptor is memory of [`BYTES`] that stays so.
pub(crate) fn is_sealed(file: &OwnedFd) -> bool {
    // SAFETY: the descriptor is open, and the zeroed stat is filled by the call.
    unsafe {
        let mut stat: libc::stat = mem::zeroed();
        let seals = libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS);
        seals >= 0 // -1 for a file that takes none
            && seals & SEALS == SEALS
            && libc::fstat(file.as_raw_fd(), &mut stat) == 0
            && stat.st_size == BYTES as libc::off_t
    }
}

/// A datagram socket that never waits.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain numbers.
    new_descriptor(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// The descriptor that a call has just made, unless it failed.
fn new_descriptor(made: RawFd) -> io::Result<OwnedFd> {
    match made {
        // SAFETY: a new descriptor is ours.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(made) }),
        _ => Err(last_error()),
    }
}

/// Address of the socket at `path`.
pub(crate) fn address(path: &Path) -> io::Result<libc::sockaddr_un> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

/// Room for control messages: a descriptor and credentials take 64 bytes.
#[repr(C, align(8))]
struct Control([u8; 256]);

/// Sends `text`, with a descriptor if one is given, to the socket at `to`, without waiting.
pub(crate) fn send(to: &libc::sockaddr_un, text: &[u8], file: Option<RawFd>) -> io::Result<()> {
    let socket = socket()?;
    let mut part = libc::iovec {
        iov_base: text.as_ptr().cast_mut().cast(),
        iov_len: text.len(),
    };
    let mut control = Control([0; 256]);
    // SAFETY: an all-zero header is valid; all pointers live until the call returns, which reads them only. The control
    // buffer has room for one descriptor.
    let sent = unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_name = std::ptr::from_ref(to).cast_mut().cast();
        message.msg_namelen = size_of_val(to) as libc::socklen_t;
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        if let Some(file) = file {
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let first = libc::CMSG_FIRSTHDR(&message);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(file);
        }
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
    };
    if sent >= 0 { Ok(()) } else { Err(last_error()) }
}

/// A message with its sender, as the kernel says.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) text: Vec<u8>,
    pub(crate) process: i32,
    pub(crate) user: u32,
    /// The descriptors that came with it; more than one are closed by the kernel.
    pub(crate) file: Option<OwnedFd>,
}

/// The next message; `None` if none waits.
pub(crate) fn receive(socket: &OwnedFd) -> Option<Message> {
    let mut text = [0u8; 256];
    let mut part = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    let mut control = Control([0; 256]);
    let (mut process, mut user, mut file) = (0, u32::MAX, None);
    // SAFETY: all pointers live until the call returns and are filled within their lengths; the kernel writes whole
    // control messages, whose descriptors are new ones of ours.
    let read = unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        (message.msg_control, message.msg_controllen) = ((&raw mut control).cast(), 256);
        let read = libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC);
        let mut next = if read >= 0 {
            libc::CMSG_FIRSTHDR(&message)
        } else {
            std::ptr::null_mut()
        };
        while !next.is_null() {
            let (data, bytes) = (
                libc::CMSG_DATA(next),
                (*next).cmsg_len as usize - libc::CMSG_LEN(0) as usize,
            );
            match ((*next).cmsg_level, (*next).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for number in 0..bytes / size_of::<RawFd>() {
                        let taken = data.cast::<RawFd>().add(number).read_unaligned();
                        file = Some(OwnedFd::from_raw_fd(taken));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    let from = data.cast::<libc::ucred>().read_unaligned();
                    (process, user) = (from.pid, from.uid);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(&message, next);
        }
        read
    };
    let text = text.get(..usize::try_from(read).ok()?)?.to_vec();
    Some(Message {
        text,
        process,
        user,
        file,
    })
}

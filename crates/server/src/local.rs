//! A Unix socket at which clients of this machine connect; the file's mode says which ones may.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream};
use std::path::{Path, PathBuf};

use mio::net::{TcpStream, UnixListener};

use crate::listening::{ServeError, make_room};

/// Mode of the file unless the node's file says otherwise: the server's own user connects, and no other.
pub const MODE: u32 = 0o600;

/// A listening Unix socket. Its file is removed at the end, unless another process has replaced it.
#[derive(Debug)]
pub struct LocalListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file.
    file: (u64, u64),
}

impl LocalListener {
    /// Binds `path`, with these mode bits. Replaces the socket of a process that has ended. Meanwhile `path.lock` keeps
    /// out others that start: they would take a socket that does not listen yet for one of the dead.
    ///
    /// # Errors
    /// [`ServeError`], as for a file that is no socket, or one at which another process listens.
    pub fn bind(path: &Path, mode: u32) -> Result<LocalListener, ServeError> {
        let refused = |why: String| ServeError(format!("{}: {why}", path.display()));
        let io = |error: io::Error| refused(error.to_string());
        let listens = || refused("another program listens there: end it, or name another file".into());
        let _lock = StartLock::of(path).map_err(io)?;
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
            Ok(there) if !there.file_type().is_socket() => {
                return Err(refused(
                    "this file is no socket, and stays as it is: name another one".into(),
                ));
            }
            // Without waiting: a server that was stopped accepts no client, and leaves no room.
            Ok(_) => match mio::net::UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(io)?,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(io(error)),
                _ => return Err(listens()),
            },
        }
        let listener = bound(path).map_err(io)?;
        let there = fs::symlink_metadata(path).map_err(io)?;
        let listener = LocalListener {
            listener: UnixListener::from_std(listener),
            path: path.to_owned(),
            file: (there.dev(), there.ino()),
        };
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(io)?;
        make_room(&listener.listener).map_err(io)?;
        Ok(listener)
    }

    /// Has `registry` report clients that wait, with this token.
    ///
    /// # Errors
    /// The error of the system.
    pub fn register(&mut self, registry: &mio::Registry, token: mio::Token) -> io::Result<()> {
        registry.register(&mut self.listener, token, mio::Interest::READABLE)
    }

    /// Accepts a client.
    ///
    /// # Errors
    /// The error of the system; `WouldBlock` if none waits.
    pub(crate) fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.listener.accept()?;
        Ok(as_tcp(stream))
    }
}

/// A socket that reads and writes as one of TCP does; it has no addresses.
pub fn as_tcp(stream: mio::net::UnixStream) -> TcpStream {
    TcpStream::from_std(OwnedFd::from(UnixStream::from(stream)).into())
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == self.file) {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// A file beside the socket, locked while a server starts there, and removed afterwards.
struct StartLock {
    path: PathBuf,
    file: File,
}

impl StartLock {
    fn of(socket: &Path) -> io::Result<StartLock> {
        let mut path = OsString::from(socket);
        path.push(".lock");
        let path = PathBuf::from(path);
        let mut options = File::options();
        options.write(true).create(true).mode(MODE);
        let file = options.custom_flags(libc::O_NOFOLLOW).open(&path)?;
        let busy = || io::Error::other("another program starts there: try again, or name another file");
        file.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => busy(),
            fs::TryLockError::Error(error) => error,
        })?;
        // Another one may have removed the file before it was locked here.
        let own = file.metadata()?.ino();
        if !fs::symlink_metadata(&path).is_ok_and(|there| there.ino() == own) {
            return Err(busy());
        }
        Ok(StartLock { path, file })
    }
}

impl Drop for StartLock {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
        // A program that another thread starts has a copy of the lock until execve(2), unless it is released.
        drop(self.file.unlock());
    }
}

/// A socket with this path that does not listen yet, so that no client connects before the file has its mode.
fn bound(path: &Path) -> io::Result<StdListener> {
    SocketAddr::from_pathname(path)?; // its length, and no zero within
    let done = |code: i32| {
        if code < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(code)
        }
    };
    // SAFETY: plain numbers; the descriptor is new, and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(done(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0))?) };
    // SAFETY: plain numbers, of a socket that is open.
    done(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: all bytes zero are an address without a name.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, byte) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *byte as libc::c_char;
    }
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` has this length, and its path ends with a zero.
    done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    let listener = StdListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many start at once where a socket is dead: one serves, and its file stays.
    #[test]
    fn of_many_that_start_at_once_one_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        for _ in 0..50 {
            drop(StdListener::bind(&path).unwrap());
            let start = std::sync::Barrier::new(4);
            let bound: Vec<_> = std::thread::scope(|scope| {
                let bind = || {
                    start.wait();
                    LocalListener::bind(&path, MODE).ok()
                };
                let starting: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
                starting
                    .into_iter()
                    .filter_map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert_eq!(bound.len(), 1);
            UnixStream::connect(&path).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a file is left");
        let _lock = StartLock::of(&path).unwrap();
        let refused = LocalListener::bind(&path, MODE).unwrap_err().to_string();
        assert!(refused.ends_with("another program starts there: try again, or name another file"));
    }

    #[test]
    fn no_client_connects_before_the_mode_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = bound(&path).unwrap();
        let refused = UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        make_room(&listener).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    /// As that of a server that was stopped: no start waits for it.
    #[test]
    fn a_server_that_accepts_no_client_keeps_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = bound(&path).unwrap();
        // SAFETY: a plain number, of a socket that is open.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let connect = || mio::net::UnixStream::connect(&path);
        let waiting: Vec<_> = std::iter::from_fn(|| connect().ok()).take(100).collect();
        assert!(waiting.len() < 100 && connect().is_err());
        let refused = LocalListener::bind(&path, MODE).unwrap_err().to_string();
        assert!(refused.ends_with("another program listens there: end it, or name another file"));
    }

    #[test]
    fn a_dead_socket_is_replaced_and_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let refused = |path: &Path| LocalListener::bind(path, MODE).unwrap_err().to_string();
        let first = LocalListener::bind(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        assert!(refused(&path).ends_with("another program listens there: end it, or name another file"));
        drop(first);
        assert!(!path.exists());
        // As after a kill.
        drop(UnixListener::bind(&path).unwrap());
        let second = LocalListener::bind(&path, MODE).unwrap();
        // The file of another one stays.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "text").unwrap();
        drop(second);
        assert!(refused(&path).contains("no socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert!(refused(&folder.path().join("no/s")).contains("No such file"));
        assert!(refused(&folder.path().join("s".repeat(200))).contains("SUN_LEN"));
    }
}

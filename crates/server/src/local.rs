//! A Unix socket at which clients of this machine connect; the file's mode says which ones may.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use mio::net::{TcpStream, UnixListener};

use crate::node::ServeError;

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
    /// Binds `path`, with these mode bits. Replaces the socket of a process that has ended.
    ///
    /// # Errors
    /// [`ServeError::Local`], as for a file that is no socket, or one at which another process listens.
    pub fn bind(path: &Path, mode: u32) -> Result<LocalListener, ServeError> {
        let refused = |why: String| ServeError::Local {
            path: path.to_owned(),
            why,
        };
        let io = |error: io::Error| refused(error.to_string());
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
            Ok(there) if !there.file_type().is_socket() => {
                return Err(refused(
                    "this file is no socket, and stays as it is: name another one".into(),
                ));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(io)?,
                Err(error) => return Err(io(error)),
                Ok(_) => {
                    return Err(refused(
                        "another program listens there: end it, or name another file".into(),
                    ));
                }
            },
        }
        let listener = UnixListener::bind(path).map_err(io)?;
        let there = fs::symlink_metadata(path).map_err(io)?;
        let listener = LocalListener {
            listener,
            path: path.to_owned(),
            file: (there.dev(), there.ino()),
        };
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(io)?;
        Ok(listener)
    }

    /// The file at which clients connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has `registry` report clients that wait, with this token.
    ///
    /// # Errors
    /// The error of the system.
    pub fn register(&mut self, registry: &mio::Registry, token: mio::Token) -> io::Result<()> {
        registry.register(&mut self.listener, token, mio::Interest::READABLE)
    }

    /// Accepts a client. Its stream reads and writes as one of TCP does; it has no addresses.
    ///
    /// # Errors
    /// The error of the system; `WouldBlock` if none waits.
    pub(crate) fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.listener.accept()?;
        Ok(TcpStream::from_std(OwnedFd::from(UnixStream::from(stream)).into()))
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == self.file) {
            drop(fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

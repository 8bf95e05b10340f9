//! Connections of commands to nodes and balancers as clients: with TLS if an authority is given, and with a login.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use mio::net::TcpStream;
use punctual_server::resp::{Reply, Resp, Writer};
use punctual_server::stream::Stream;
use punctual_server::tls::Dialler;
use punctual_server::users::PASSWORD_MAX;

use crate::args::Dialling;
use punctual_files::failure::Failure;

/// Protocol and login of a client's connections. `Debug` does not print the password.
#[derive(Clone, Default)]
pub struct Dial {
    /// Hosts of a load's addresses, in the same order.
    pub hosts: Vec<String>,
    tls: Option<Dialler>,
    /// AUTH request, encoded as sent.
    login: Option<Vec<u8>>,
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dial({:?}, ..)", self.hosts)
    }
}

impl Dial {
    /// Reads the files that the arguments name.
    ///
    /// # Errors
    /// [`Failure::Input`] with the file and a remedy.
    pub fn load(arguments: &Dialling) -> Result<Dial, Failure> {
        let mut dial = Dial::default();
        if let (Some(user), Some(file)) = (&arguments.user, &arguments.password_file) {
            let words = vec![Reply::bulk("AUTH"), Reply::bulk(user), Reply::bulk(password(file)?)];
            let mut login = Vec::new();
            Writer::new(&mut login, Resp::Two).value(&Reply::Array(words));
            dial.login = Some(login);
        }
        if let Some(authority) = &arguments.authority {
            let own = arguments.certificate.as_deref().zip(arguments.key.as_deref());
            let tls = Dialler::load(authority, own, SystemTime::now());
            dial.tls = Some(tls.map_err(Failure::of)?);
        }
        Ok(dial)
    }

    /// Wraps a connection to `host` in TLS if there is an authority.
    ///
    /// # Errors
    /// If `host` cannot be the name in a certificate.
    pub fn begin(&self, socket: TcpStream, host: &str) -> io::Result<Stream<TcpStream>> {
        if let Some(tls) = &self.tls {
            return Ok(Stream::dialled(tls.dial(host).map_err(io::Error::other)?, socket));
        }
        Ok(Stream::Plain(socket))
    }

    /// First request of a connection that logs in; `None` without a user.
    pub fn login(&self) -> Option<&[u8]> {
        self.login.as_deref()
    }
}

/// First line of a file that no other user may read.
fn password(file: &Path) -> Result<Vec<u8>, Failure> {
    let shown = file.display();
    let refuse = |what: String| Failure::of(format!("--password-file {shown}: {what}"));
    let unread = |error: io::Error| refuse(format!("cannot be read: {error}"));
    let mode = std::fs::metadata(file).map_err(unread)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(refuse(format!(
            "other users of this machine may read it: chmod 600 {shown}"
        )));
    }
    let text = punctual_files::bounded::text(file).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let line = text.lines().next().unwrap_or_default();
    match (1..=PASSWORD_MAX).contains(&line.len()) {
        true => Ok(line.as_bytes().to_vec()),
        false => Err(refuse(format!(
            "expected a password of 1 to {PASSWORD_MAX} bytes as its first line"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ServerAddress;

    #[test]
    fn a_password_is_read_from_a_file_of_this_user_alone_and_shown_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "hunter2\nmore\n").unwrap();
        let allow = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let arguments = Dialling {
            user: Some("robot".into()),
            password_file: Some(file.clone()),
            ..Dialling::default()
        };
        allow(0o600);
        let dial = Dial::load(&arguments).unwrap();
        assert_eq!(
            dial.login().unwrap(),
            b"*3\r\n$4\r\nAUTH\r\n$5\r\nrobot\r\n$7\r\nhunter2\r\n"
        );
        assert!(!format!("{dial:?}").contains("hunter2"));
        allow(0o640);
        let refused = format!("{:?}", Dial::load(&arguments).unwrap_err());
        assert!(
            refused.contains("chmod 600") && !refused.contains("hunter2"),
            "{refused}"
        );
    }

    #[test]
    fn a_place_has_a_host_and_a_port() {
        let place: ServerAddress = "127.0.0.1:7".parse().unwrap();
        assert_eq!(place, ServerAddress::of("127.0.0.1:7".parse().unwrap()));
        assert_eq!("[::1]:7".parse::<ServerAddress>().unwrap().host, "::1");
        for wrong in ["", ":7", "127.0.0.1", "127.0.0.1:x"] {
            assert!(wrong.parse::<ServerAddress>().is_err(), "{wrong}");
        }
    }
}

//! Which user is a connection, and how does it prove that? `AUTH` and `HELLO`; pure.

use std::fmt;
use std::sync::Arc;

use crate::commands::{Command, Verb};
use crate::resp::request::Request;
use crate::resp::{Bounds, Resp};
use crate::users::{PASSWORD_MAX, Users};

const NO_USERS: &str = "ERR this server has no users, and is reached by this machine alone: connect without AUTH";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_AUTH: &str = "NOAUTH Authentication required.";
const HELLO_WITHOUT_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
     HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
     version at the same time";
/// The longest name of a connection or a library, in bytes.
const NAME_MAX: usize = 256;
/// Number of wrong passwords after which a connection is closed.
pub const WRONG_PASSWORDS_MAX: u32 = 3;

/// A client's claim to be a user. `Debug` does not show its password.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginClaim {
    /// Index of the user of that name; `None` if there is no such user.
    pub user: Option<usize>,
    /// The password, cut off one byte beyond the longest.
    pub password: Vec<u8>,
}

impl fmt::Debug for LoginClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoginClaim({:?}, ..)", self.user)
    }
}

/// Outcome of `AUTH` or `HELLO` before any slow check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The connection is admitted.
    Admitted,
    /// The password has to be checked first, which takes a tenth of a second.
    ToCheck(LoginClaim),
}

/// The arguments of HELLO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Protocol version from now on.
    pub version: Resp,
    /// The connection's new name; `None` keeps its name.
    pub name: Option<String>,
    /// User name and password of the option AUTH.
    pub auth: Option<(Vec<u8>, Vec<u8>)>,
}

impl Greeting {
    /// Parses HELLO from a client that speaks `version` so far.
    ///
    /// # Errors
    /// The error reply.
    pub fn read(request: &Request, version: Resp) -> Result<Greeting, String> {
        let mut greeting = Greeting {
            version,
            name: None,
            auth: None,
        };
        if request.len() == 1 {
            return Ok(greeting);
        }
        greeting.version = match request.argument(1) {
            b"2" => Resp::Two,
            b"3" => Resp::Three,
            other if other.iter().all(u8::is_ascii_digit) => {
                return Err("NOPROTO unsupported protocol version".into());
            }
            _ => return Err("ERR Protocol version is not an integer or out of range".into()),
        };
        let mut words = request.from(2);
        while let Some(word) = words.next() {
            match word.to_ascii_uppercase().as_slice() {
                b"AUTH" => {
                    let (Some(user), Some(password)) = (words.next(), words.next()) else {
                        return Err("ERR Syntax error in HELLO option 'auth'".into());
                    };
                    greeting.auth = Some((user.to_vec(), password.to_vec()));
                }
                b"SETNAME" => {
                    let given = words.next().ok_or("ERR Syntax error in HELLO option 'setname'")?;
                    let refused = "Client names cannot contain spaces, newlines or special characters.";
                    greeting.name = Some(plain(given, refused)?);
                }
                _ => return Err(format!("ERR Syntax error in HELLO option '{}'", word.escape_ascii())),
            }
        }
        Ok(greeting)
    }
}

/// Checks a name: at most 256 printable characters of ASCII, no blank.
///
/// # Errors
/// The error reply, with the text `refused`.
pub fn plain(text: &[u8], refused: &str) -> Result<String, String> {
    match std::str::from_utf8(text) {
        Ok(name) if name.len() <= NAME_MAX && name.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(name.into()),
        _ => Err(format!("ERR {refused}")),
    }
}

/// The user of a connection, if it has logged in.
#[derive(Clone, Debug, Default)]
pub struct Login {
    users: Arc<Users>,
    user: Option<usize>,
    wrong_passwords: u32,
}

impl Login {
    /// State of a new connection to a server with these users.
    pub fn new(users: Arc<Users>) -> Login {
        Login {
            users,
            ..Login::default()
        }
    }

    /// Whether the connection has yet to log in.
    pub fn is_stranger(&self) -> bool {
        self.user.is_none() && !self.users.is_empty()
    }

    /// Bounds of a request: `admitted` once the connection has logged in, `Bounds::STRANGER` before.
    pub fn bounds(&self, admitted: &'static Bounds) -> &'static Bounds {
        if self.is_stranger() {
            &Bounds::STRANGER
        } else {
            admitted
        }
    }

    /// Name of the connection's user; `default`, as in Redis, where there are no users.
    pub fn user(&self) -> &str {
        let user = self.user.and_then(|user| self.users.get(user));
        user.map_or("default", |user| &user.name)
    }

    /// Whether there is a user of this name; `default`, where there are no users.
    pub fn knows(&self, name: &[u8]) -> bool {
        self.users.find(name).is_some() || self.users.is_empty() && name == b"default"
    }

    /// Whether the connection's user may send this command.
    ///
    /// # Errors
    /// The error reply.
    pub fn allowed(&self, command: &Command, request: &Request) -> Result<(), String> {
        if self.users.is_empty() {
            return Ok(());
        }
        match self.user.and_then(|user| self.users.get(user)) {
            Some(user) => user.may(command, request),
            None => match command.verb {
                Verb::Auth | Verb::Hello | Verb::Quit | Verb::Reset => Ok(()),
                _ => Err(NO_AUTH.into()),
            },
        }
    }

    /// Whether the connection's user may subscribe to a channel; any may where there are no users.
    pub fn may_hear(&self, channel: &[u8]) -> bool {
        let user = self.user.and_then(|user| self.users.get(user));
        user.map_or(self.users.is_empty(), |user| user.may_hear(channel, false))
    }

    /// Carries out `AUTH [NAME] PASSWORD`, as far as that needs no slow check.
    ///
    /// # Errors
    /// The error reply.
    pub fn auth(&mut self, request: &Request) -> Result<Entry, String> {
        if request.len() > 3 {
            return Err("ERR syntax error".into());
        }
        if self.users.is_empty() {
            return Err(NO_USERS.into());
        }
        Ok(match request.len() {
            2 => self.claim(b"default", request.argument(1)),
            _ => self.claim(request.argument(1), request.argument(2)),
        })
    }

    /// Carries out the AUTH option of HELLO, as far as that needs no slow check.
    ///
    /// # Errors
    /// The error reply.
    pub fn hello(&mut self, greeting: &Greeting) -> Result<Entry, String> {
        match &greeting.auth {
            Some(_) if self.users.is_empty() => Err(NO_USERS.into()),
            Some((name, password)) => Ok(self.claim(name, password)),
            None if self.is_stranger() => Err(HELLO_WITHOUT_AUTH.into()),
            None => Ok(Entry::Admitted),
        }
    }

    /// Admits the user if this password was right before; otherwise returns the claim to be checked.
    fn claim(&mut self, name: &[u8], password: &[u8]) -> Entry {
        let user = self.users.find(name);
        // Longer passwords are wrong anyway: one byte too many is enough to fail.
        let password = &password[..password.len().min(PASSWORD_MAX + 1)];
        if self.users.knows(user, password) == Some(true) {
            self.user = user;
            return Entry::Admitted;
        }
        let password = password.to_vec();
        Entry::ToCheck(LoginClaim { user, password })
    }

    /// Takes the result of a password check: `user`, or `None` for a wrong password.
    ///
    /// # Errors
    /// The error reply to a wrong password.
    pub fn judged(&mut self, user: Option<usize>) -> Result<(), String> {
        match user {
            Some(_) => {
                self.user = user;
                Ok(())
            }
            None => {
                self.wrong_passwords += 1;
                Err(WRONG_PASSWORD.into())
            }
        }
    }

    /// State of the same connection before it logged in; wrong passwords still count.
    pub fn stranger(&self) -> Login {
        Login {
            user: None,
            ..self.clone()
        }
    }

    /// Whether the connection is to be closed, because it guesses passwords.
    pub fn is_guessing(&self) -> bool {
        self.wrong_passwords >= WRONG_PASSWORDS_MAX
    }
}

/// Whether this is a line of an HTTP request. A page open in a browser on this machine can make it send the body of an
/// HTTP request as it likes, and loopback keeps a browser out as little as any other program.
pub fn is_http(request: &Request) -> bool {
    let name = request.argument(0);
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The error reply to a client of HTTP.
pub const NO_HTTP: &str =
    "ERR this is HTTP, and here is a store: the connection ends, and nothing that follows is carried out";

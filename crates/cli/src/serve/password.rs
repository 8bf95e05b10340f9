//! `punctual serve --hash`: computes the line for a password in a node's file.

use std::io::{BufRead, IsTerminal, Read, stdin};

use punctual_server::users::{PASSWORD_MAX, PasswordHash, ROUNDS_RANGE};

use crate::commands::print;
use punctual_files::failure::Failure;

/// Carries out `punctual serve --hash`.
pub fn hash(rounds: u32) -> Result<(), Failure> {
    if !ROUNDS_RANGE.contains(&rounds) {
        let (low, high) = (ROUNDS_RANGE.start(), ROUNDS_RANGE.end());
        return Err(Failure::of(format!(
            "--hash: {rounds} is out of range: {low} to {high}"
        )));
    }
    let password = read()?;
    print(&format!("{}\n", PasswordHash::of(&password, salt()?, rounds)))
}

/// Reads a password: one line of standard input, without its end. Turns the echo of a terminal off meanwhile.
fn read() -> Result<Vec<u8>, Failure> {
    let input = stdin().lock();
    let silent = input.is_terminal().then(Silent::begin);
    if silent.is_some() {
        eprint!("Password: ");
    }
    let mut line = Vec::new();
    let read = input.take(PASSWORD_MAX as u64 + 2).read_until(b'\n', &mut line);
    if silent.is_some() {
        eprintln!();
    }
    read.map_err(|error| Failure::of(format!("standard input: the password cannot be read: {error}")))?;
    let password = line.strip_suffix(b"\n").unwrap_or(&line);
    let password = password.strip_suffix(b"\r").unwrap_or(password);
    if password.is_empty() || password.len() > PASSWORD_MAX {
        let what = format!("standard input: a password has 1 to {PASSWORD_MAX} bytes, on one line");
        return Err(Failure::of(what));
    }
    Ok(password.to_vec())
}

/// Random bytes of the kernel, as a salt.
pub fn salt() -> Result<[u8; 16], Failure> {
    let mut salt = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut salt))
        .map_err(|error| Failure::of(format!("/dev/urandom: no random bytes: {error}; mount /dev")))?;
    Ok(salt)
}

/// Terminal without echo, until this is dropped; holds the former settings.
struct Silent(Option<libc::termios>);

impl Silent {
    fn begin() -> Silent {
        let mut before = std::mem::MaybeUninit::<libc::termios>::uninit();
        // SAFETY: the pointer is valid for the write of the call.
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, before.as_mut_ptr()) } != 0 {
            return Silent(None);
        }
        // SAFETY: the call has written it.
        let before = unsafe { before.assume_init() };
        let mut quiet = before;
        quiet.c_lflag &= !libc::ECHO;
        // SAFETY: settings from the call above, except for one flag.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, &quiet) };
        Silent(Some(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the settings from before.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, before) };
        }
    }
}

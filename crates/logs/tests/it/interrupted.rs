//! A client's process is stopped and goes on, after Ctrl-Z say: its read is interrupted, and it waits on for its
//! answer.

#![cfg(unix)]

use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use punctual_logs::socket::answer;
use punctual_logs::{CommitLog, FORMAT, FederationId, Identity, LogHistory, LogState, Memory};
use punctual_testing::{WAIT_MAX, wait_until};

use crate::client::LogClient;

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

/// Has SIGUSR1 interrupt system calls, which are not begun anew.
fn interrupt() {
    // SAFETY: all zeros are a valid action without flags; the handler only touches an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn an_interrupted_read_is_waited_on() {
    interrupt();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.socket");
    let listener = UnixListener::bind(&path).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        let mut log = LogClient::at(&path, WAIT_MAX);
        // SAFETY: it is always valid in its own thread.
        tell.send(unsafe { libc::pthread_self() }).unwrap();
        log.open(Identity {
            federation: FederationId(7),
            format: FORMAT,
            history: LogHistory::default(),
        })
    });
    let (stream, _) = listener.accept().unwrap();
    let client_thread = told.recv().unwrap();
    wait_until("many interrupts", || {
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(client_thread, libc::SIGUSR1) };
        SIGNALS.load(Ordering::SeqCst) >= 20
    });
    // Only now is it answered, until it goes.
    answer(stream, &mut Memory::default(), &AtomicBool::new(false)).unwrap();
    assert_eq!(client.join().unwrap().unwrap(), LogState::default());
}

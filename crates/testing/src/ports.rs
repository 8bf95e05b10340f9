//! Ports for servers whose files name one before they listen.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below `ip_local_port_range` (ip(7)), so that Linux gives none of them to a connection, or to a listener that asks
/// for any port.
const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;

/// Ports of this machine on which no program listens; no other call in this process is given them.
///
/// # Panics
/// Where none is free.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Apart from those of a test program that runs at the same time.
    let begin = std::process::id().wrapping_mul(101);
    [(); N].map(|()| {
        let mut tries = (0..COUNT).map(|_| {
            let place = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            (FIRST + place % COUNT) as u16
        });
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        tries.find(is_free).expect("a free port")
    })
}

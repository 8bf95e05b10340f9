//! Files of nodes: read and checked, or refused with one line for each problem; no password is repeated.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use punctual_files::failure::Failure;
use punctual_files::server;

/// A case is a file.
pub fn check(case: &[u8]) -> &'static str {
    let mut made = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
    made.write_all(case).expect("room in memory");
    let path = format!("/proc/self/fd/{}", made.as_raw_fd());
    match server::load(Path::new(&path)) {
        Ok(node) => {
            assert!((1..=64).contains(&node.options.threads) && node.options.queue_max >= 1);
            assert!(node.users.iter().all(|user| !user.name.is_empty()));
            assert!(node.metrics.is_none_or(|address| address.ip().is_loopback()));
            assert!(node.objects.iter().all(|object| (1..=511).contains(&object.key.len())));
            let Some(federation) = node.federation else {
                return if node.users.is_empty() {
                    "a store alone"
                } else {
                    "a store with users"
                };
            };
            assert!((federation.node.0 as usize) < federation.nodes.len() && federation.nodes.len() <= 64);
            assert!(federation.tls.is_none_or(|tls| tls.clients.is_some()));
            "a node of a federation"
        }
        Err(Failure::Input(lines)) => {
            assert!(!lines.is_empty(), "refused without a reason");
            // That of the users in `fuzz/seeds`.
            let digest = "c0ffee01".repeat(8);
            // Where it stands as something else, or within a text of several lines, it may be told as that.
            let text = String::from_utf8_lossy(case);
            let mut with_it = text.lines().filter(|line| line.contains(&digest));
            let is_password = with_it.all(|line| line.starts_with("password = \"pbkdf2-sha256$"));
            if is_password && !text.contains("'''") && !text.contains("\"\"\"") {
                let is_told = lines.iter().any(|line| line.contains(&digest));
                assert!(!is_told, "a password is repeated: {lines:?}");
            }
            "refused"
        }
        Err(other) => panic!("not the user's fault: {other}"),
    }
}

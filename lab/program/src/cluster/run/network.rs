//! A private network for a run, so that a node can be cut off: each node has a network namespace, and a cable (veth) to
//! a switch (bridge) in the namespace of this process. Namespaces without names end with their processes: nothing is
//! left behind.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::process::Command;

use punctual_cli::cluster::run::processes::NodeNetwork;
use punctual_files::failure::Failure;
use punctual_os::LinuxOs;
use punctual_units::{Clock, Time};

/// Name of the bridge's interface.
const SWITCH: &str = "switch";
/// First bytes of the addresses: a block reserved for documentation (RFC 5737), which no reachable network uses.
const NET: [u8; 3] = [192, 0, 2];
/// Last byte of this process's address.
const OWN: u8 = 254;

/// Private network of this process and its children.
#[derive(Debug)]
pub struct Network(());

impl Network {
    /// Moves this thread, and every process that it starts from now on, into a new network namespace.
    ///
    /// # Errors
    /// A sentence, if rights or the program `ip` are missing.
    pub fn start() -> Result<Network, String> {
        // SAFETY: a plain number; only the calling thread changes its namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = io::Error::last_os_error();
            return Err(format!(
                "no network namespace ({error}): run as root, or give CAP_SYS_ADMIN"
            ));
        }
        let own = format!("{}/24", address(OWN));
        for words in [
            &["link", "set", "lo", "up"][..],
            &["link", "add", SWITCH, "type", "bridge"],
            &["addr", "add", &own, "dev", SWITCH],
            &["link", "set", SWITCH, "up"],
        ] {
            ip(words)?;
        }
        Ok(Network(()))
    }
}

impl NodeNetwork for Network {
    fn address(&self, node: usize) -> IpAddr {
        address(node as u8 + 1)
    }

    fn isolate(&self, command: &mut Command) {
        // SAFETY: the closure calls what may be called between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::unshare(libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
    }

    fn join(&self, node: usize, process: u32) -> Result<(), String> {
        let (cable, process) = (cable(node), process.to_string());
        let of_node = format!("{}/24", self.address(node));
        // The former cable disappears with the namespace of its process, but slightly later.
        drop(ip(&["link", "del", &cable]));
        ip(&[
            "link", "add", "name", &cable, "type", "veth", "peer", "name", "eth0", "netns", &process,
        ])?;
        ip(&["link", "set", &cable, "master", SWITCH])?;
        ip(&["link", "set", &cable, "up"])?;
        for words in [
            &["link", "set", "lo", "up"][..],
            &["addr", "add", &of_node, "dev", "eth0"],
            &["link", "set", "eth0", "up"],
        ] {
            let within = ["--target", &process, "--net", "ip"];
            run("nsenter", &[&within, words].concat())?;
        }
        Ok(())
    }
}

/// Disconnects a node's cable, or connects it again, after [`Network::start`] only; returns the instant.
///
/// # Errors
/// If the change fails.
pub fn cut(node: usize, is_cut: bool) -> Result<Time, Failure> {
    let at = LinuxOs.now();
    let set = ip(&["link", "set", &cable(node), if is_cut { "down" } else { "up" }]);
    set.map_err(Failure::of)?;
    Ok(at)
}

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(NET[0], NET[1], NET[2], last))
}

fn cable(node: usize) -> String {
    format!("node{node}")
}

fn ip(words: &[&str]) -> Result<(), String> {
    run("ip", words)
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let said = || format!("`{program} {}`", words.join(" "));
    match Command::new(program).args(words).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{} says {}",
            said(),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("{}: {error}: install iproute2 and util-linux", said())),
    }
}

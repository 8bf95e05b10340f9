//! `SENTINEL`: questions of clients that look for a master. Pure.
//!
//! A client that is built for Redis Sentinel is given addresses of nodes or balancers, and asks them for the address of
//! the master by a name. A node replies with the master's address for clients. A balancer replies with its own, because
//! it finds the master for each transaction. The federation is the only master that exists, [`NAME`].

use std::net::SocketAddr;

use punctual_server::resp::request::Request as Words;
use punctual_server::resp::{Reply, Writer};

/// Name of the federation, as clients ask for it.
pub const NAME: &str = "punctual";

/// A question after `SENTINEL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// The address of the master of a name; other names than the federation's have none.
    Address {
        /// Whether the name is the federation's.
        ours: bool,
    },
    /// A list of all masters.
    Masters,
    /// A description of the master.
    Master,
    /// A list of the replicas: all nodes but the master.
    Slaves,
    /// A list of other sentinels; the reply is empty, because all nodes and balancers reply alike.
    Sentinels,
}

impl Inquiry {
    /// Parses the words after `SENTINEL`.
    ///
    /// # Errors
    /// The error reply.
    pub fn read(words: &Words) -> Result<Inquiry, String> {
        let ours = words.argument(2).eq_ignore_ascii_case(NAME.as_bytes());
        let named = |inquiry| match ours {
            true => Ok(inquiry),
            false => Err(format!(
                "ERR No such master with that name: the federation is called {NAME}"
            )),
        };
        let wrong = |name: &str| Err(format!("ERR wrong number of arguments for 'sentinel|{name}' command"));
        let name = words.argument(1).to_ascii_lowercase();
        match (name.as_slice(), words.len()) {
            (b"get-master-addr-by-name", 3) => Ok(Inquiry::Address { ours }),
            (b"masters", 2) => Ok(Inquiry::Masters),
            (b"master", 3) => named(Inquiry::Master),
            (b"slaves" | b"replicas", 3) => named(Inquiry::Slaves),
            (b"sentinels", 3) => named(Inquiry::Sentinels),
            (b"get-master-addr-by-name" | b"masters" | b"master" | b"slaves" | b"replicas" | b"sentinels", _) => {
                wrong(&String::from_utf8_lossy(&name))
            }
            _ => Err(
                "ERR SENTINEL knows get-master-addr-by-name, master, masters, replicas, sentinels and slaves".into(),
            ),
        }
    }

    /// Writes the reply, for a master at `master`, if there is one, and the other nodes at `others`.
    pub fn answer(self, master: Option<SocketAddr>, others: &[SocketAddr], out: &mut Writer<'_>) {
        let each = |address: &SocketAddr| {
            let link = ("master-link-status", Reply::bulk("ok"));
            described(&address.to_string(), *address, "slave", &[link])
        };
        let ours = || {
            let more = [
                ("num-slaves", Reply::bulk(others.len().to_string())),
                ("num-other-sentinels", Reply::bulk("0")),
                ("quorum", Reply::bulk("1")),
            ];
            master.map(|address| described(NAME, address, "master", &more))
        };
        match (self, master) {
            (Inquiry::Address { ours: true }, Some(address)) => out.value(&Reply::Array(vec![
                Reply::bulk(address.ip().to_string()),
                Reply::bulk(address.port().to_string()),
            ])),
            (Inquiry::Address { .. }, _) => out.null_array(),
            (Inquiry::Masters, _) => out.value(&Reply::Array(ours().into_iter().collect())),
            (Inquiry::Master, _) => match ours() {
                Some(master) => out.value(&master),
                None => out.error("ERR No such master with that name: there is none now, ask again"),
            },
            (Inquiry::Slaves, _) => out.value(&Reply::Array(others.iter().map(each).collect())),
            (Inquiry::Sentinels, _) => out.array(0),
        }
    }
}

/// Describes a node in the form that clients of Redis Sentinel read.
fn described(name: &str, address: SocketAddr, flags: &str, more: &[(&str, Reply)]) -> Reply {
    let pairs = [
        ("name", Reply::bulk(name)),
        ("ip", Reply::bulk(address.ip().to_string())),
        ("port", Reply::bulk(address.port().to_string())),
        ("flags", Reply::bulk(flags)),
    ];
    let pairs = pairs.into_iter().chain(more.iter().cloned());
    Reply::Map(pairs.map(|(name, value)| (Reply::bulk(name), value)).collect())
}

#[cfg(test)]
mod tests {
    use punctual_server::resp::Resp;

    use super::*;

    fn told(words: &str, master: Option<&str>) -> Result<String, String> {
        let inquiry = Inquiry::read(&Words::of(words.split(' ')))?;
        let mut out = Vec::new();
        let master = master.map(|address| address.parse().unwrap());
        let others = ["10.0.0.2:7".parse().unwrap()];
        inquiry.answer(master, &others, &mut Writer::new(&mut out, Resp::Two));
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_master_is_told_by_the_federations_name_and_by_no_other() {
        let address = "*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n";
        let asks = "SENTINEL get-master-addr-by-name";
        assert_eq!(
            told(&format!("{asks} punctual"), Some("10.0.0.1:6379")),
            Ok(address.into())
        );
        for (name, master) in [("punctual", None), ("mymaster", Some("10.0.0.1:6379"))] {
            assert_eq!(told(&format!("{asks} {name}"), master), Ok("*-1\r\n".into()), "{name}");
        }
        assert!(told("SENTINEL master mymaster", Some("10.0.0.1:6379")).is_err());
        assert!(
            told("SENTINEL masters", Some("10.0.0.1:6379"))
                .unwrap()
                .contains("num-other-sentinels")
        );
        assert_eq!(told("SENTINEL masters", None), Ok("*0\r\n".into()));
        assert!(told("SENTINEL replicas punctual", None).unwrap().contains("10.0.0.2"));
        assert_eq!(told("SENTINEL sentinels punctual", None), Ok("*0\r\n".into()));
        for wrong in [
            "SENTINEL",
            "SENTINEL masters x",
            "SENTINEL failover punctual",
            "SENTINEL slaves",
        ] {
            assert!(told(wrong, None).is_err(), "{wrong}");
        }
    }
}

//! The address of an etcd: `etcd://HOST:PORT,HOST:PORT/NAME`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::EtcdError;

/// Most members that an address may name; etcd itself advises against more than 7.
pub const MEMBERS_MAX: usize = 16;
/// The longest name, in bytes.
pub const NAME_MAX: usize = 64;
/// The name of an address that gives none.
const NAME: &str = "punctual";

/// Addresses of an etcd's members, and the prefix of a federation's keys there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// HOST:PORT of each member.
    pub members: Vec<String>,
    /// Prefix of the federation's keys, without the slash behind it.
    pub name: String,
    /// Files for TLS; `None`: connections without TLS.
    pub tls: Option<Tls>,
}

/// PEM files for TLS, mutual if `ours` is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate that etcd's certificates are signed with.
    pub ca: PathBuf,
    /// This program's certificate, which etcd checks, and its key.
    pub ours: Option<(PathBuf, PathBuf)>,
}

impl FromStr for Address {
    type Err = EtcdError;

    /// Reads `etcd://HOST:PORT,..[/NAME]`, or `etcds://HOST:PORT,..[/NAME]?ca=FILE[&cert=FILE&key=FILE]`.
    fn from_str(text: &str) -> Result<Address, EtcdError> {
        let wrong = |what: String| EtcdError::address(text, what);
        let (rest, is_tls) = match (text.strip_prefix("etcd://"), text.strip_prefix("etcds://")) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => return Err(wrong("it begins with etcd:// or, for TLS, with etcds://".into())),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (members, name) = rest.split_once('/').unwrap_or((rest, NAME));
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        if members.len() > MEMBERS_MAX {
            return Err(wrong(format!("at most {MEMBERS_MAX} members are named")));
        }
        for member in &members {
            let (host, port) = member.rsplit_once(':').unwrap_or((member, ""));
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            let host_is_right = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
                Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
                None => !host.is_empty() && host.bytes().all(plain),
            };
            if !host_is_right || port.parse::<u16>().map_or(true, |port| port == 0) {
                return Err(wrong(format!(
                    "{member:?} is no HOST:PORT; write for example 10.0.0.1:2379 or [::1]:2379"
                )));
            }
        }
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if name.is_empty() || name.len() > NAME_MAX || name.ends_with('/') || !name.bytes().all(in_name) {
            return Err(wrong(format!(
                "the name behind the addresses has 1 to {NAME_MAX} of a-z, A-Z, 0-9, '-', '_', '.' and '/' within"
            )));
        }
        Ok(Address {
            members,
            name: name.to_owned(),
            tls: tls(is_tls, query).map_err(|what| wrong(what.into()))?,
        })
    }
}

fn tls(is_tls: bool, query: &str) -> Result<Option<Tls>, &'static str> {
    let (mut ca, mut cert, mut key) = (None, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let place = match pair.split_once('=') {
            Some(("ca", _)) => &mut ca,
            Some(("cert", _)) => &mut cert,
            Some(("key", _)) => &mut key,
            _ => return Err("behind '?' stand ca=FILE, cert=FILE and key=FILE, with '&' between"),
        };
        *place = pair.split_once('=').map(|(_, file)| PathBuf::from(file));
    }
    match (is_tls, ca, cert, key) {
        (false, None, None, None) => Ok(None),
        (false, ..) => Err("files for TLS are given, but it begins with etcd://; write etcds://"),
        (true, Some(ca), None, None) => Ok(Some(Tls { ca, ours: None })),
        (true, Some(ca), Some(cert), Some(key)) => Ok(Some(Tls {
            ca,
            ours: Some((cert, key)),
        })),
        (true, None, ..) => Err("TLS needs the certificate that etcd's own are signed with: add ?ca=FILE"),
        (true, ..) => Err("a certificate of ours needs its key: give cert=FILE and key=FILE, or none of them"),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { members, name, tls } = self;
        let scheme = if tls.is_some() { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{name}", members.join(","))?;
        let Some(Tls { ca, ours }) = tls else { return Ok(()) };
        write!(f, "?ca={}", ca.display())?;
        match ours {
            Some((cert, key)) => write!(f, "&cert={}&key={}", cert.display(), key.display()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
        for text in [
            "etcd://127.0.0.1:2379/punctual",
            "etcd://a.example:1,[::1]:65535,c_1:2379/robots/1",
            "etcds://a:2379/x?ca=/etc/ca.pem",
            "etcds://a:2379,b:2379/x?ca=ca.pem&cert=our.pem&key=our.key",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        let short: Address = "etcd://a:1".parse().unwrap();
        assert_eq!(short.to_string(), "etcd://a:1/punctual");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = format!("etcd://a:1/{}", "x".repeat(NAME_MAX + 1));
        let many = format!("etcd://{}", vec!["a:1"; MEMBERS_MAX + 1].join(","));
        for (text, what) in [
            ("http://a:1", "begins with etcd://"),
            ("etcd://", "HOST:PORT"),
            ("etcd://a", "HOST:PORT"),
            ("etcd://a:0", "HOST:PORT"),
            ("etcd://a:65536", "HOST:PORT"),
            ("etcd://:2379", "HOST:PORT"),
            ("etcd://a:1,,b:1", "HOST:PORT"),
            ("etcd://[::1:2379", "HOST:PORT"),
            ("etcd://[x]:2379", "HOST:PORT"),
            ("etcd://a b:1", "HOST:PORT"),
            ("etcd://a:1/", "name"),
            ("etcd://a:1/x/", "name"),
            ("etcd://a:1/ä", "name"),
            (&long, "name"),
            (&many, "at most 16"),
            ("etcd://a:1?ca=x", "write etcds"),
            ("etcds://a:1", "ca=FILE"),
            ("etcds://a:1?ca=x&cert=y", "key=FILE"),
            ("etcds://a:1?ca=x&color=y", "stand ca=FILE"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}

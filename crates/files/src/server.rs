//! Configuration file of a node, in TOML.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use punctual_engines::lmdb::{LmdbOptions, Verify};
use punctual_server::Options;
use punctual_server::local::MODE;
use punctual_server::users::{NoHash, PREFIXES_MAX, PasswordHash, Right, USER_NAME_MAX, USERS_MAX, User};
use punctual_store::engine::Durability;
use punctual_store::temporal::ObjectSpec;
use punctual_toml::Section;
use punctual_units::Nanos;

use crate::document;
use crate::failure::Failure;
use crate::node::{self as membership, LogAddress, Membership};
use crate::tasks::{self, TasksFile};

/// Settings of a node, from its file.
#[derive(Clone, Debug)]
pub struct NodeFile {
    pub listen: SocketAddr,
    /// Unix socket to listen on as well, and the mode of its file.
    pub unix_socket: Option<PathBuf>,
    pub unix_socket_mode: u32,
    pub options: Options,
    pub store: PathBuf,
    pub durability: Durability,
    /// Greatest size of the store, in bytes.
    pub quota: usize,
    pub verify: Verify,
    pub users: Vec<User>,
    pub tls: Option<TlsPaths>,
    /// Loopback address of the metrics.
    pub metrics: Option<SocketAddr>,
    pub objects: Vec<ObjectSpec>,
    /// Most temporal objects, including those that clients create.
    pub objects_max: usize,
    /// File for the log of the loop's decisions, written at the end.
    pub record: Option<PathBuf>,
    /// Tasks to run in the server's process.
    pub tasks: Option<TasksFile>,
    /// Membership of a federation; `None` for a single node.
    pub federation: Option<Membership>,
}

/// Paths of certificate files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPaths {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities of client certificates; `None`: clients need no certificate.
    pub clients: Option<PathBuf>,
}

impl TlsPaths {
    /// Resolves relative paths against this folder.
    pub fn lie_in(&mut self, folder: &Path) {
        let paths = [&mut self.certificate, &mut self.key]
            .into_iter()
            .chain(&mut self.clients);
        paths.for_each(|path| *path = folder.join(&path));
    }
}

impl Default for NodeFile {
    fn default() -> Self {
        NodeFile {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6379)),
            unix_socket: None,
            unix_socket_mode: MODE,
            options: Options::default(),
            store: "punctual.store".into(),
            durability: Durability::Durable,
            quota: LmdbOptions::default().quota,
            verify: Verify::Full,
            users: Vec::new(),
            tls: None,
            metrics: None,
            objects: Vec::new(),
            objects_max: 1024,
            record: None,
            tasks: None,
            federation: None,
        }
    }
}

/// Most threads that call the store, and most connections: each takes a descriptor and some memory.
const THREADS_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 100_000;
/// Least memory limit for the connections of a server: the longest request and its reply must fit.
const BYTES_MIN: usize = 64 << 20;
/// Longest value of a temporal object, in bytes, and most objects: memory for all is reserved at the start.
const TEMPORAL_LEN_MAX: usize = 1 << 20;
pub(crate) const OBJECTS_MAX: usize = 1 << 20;
/// Allowed ages up to which a temporal object counts as fresh.
pub(crate) const VALIDITIES: RangeInclusive<Nanos> = Nanos(1)..=Nanos::from_secs(86_400);

/// Reads a node's file; missing keys keep their defaults.
///
/// # Errors
/// [`Failure::Input`] with one line per problem: file, line, key, remedy.
pub fn load(file: &Path) -> Result<NodeFile, Failure> {
    let mut node = document::load(file, "the file of a node", read)?;
    // Relative paths start at the file's folder, not at the current one.
    if let Some(folder) = file.parent() {
        node.store = folder.join(node.store);
        node.record = node.record.map(|record| folder.join(record));
        node.unix_socket = node.unix_socket.map(|path| folder.join(path));
        if let Some(tasks) = &mut node.tasks {
            tasks.scenario = folder.join(&tasks.scenario);
        }
        let of_nodes = node.federation.as_mut().map(|federation| {
            if let LogAddress::Socket(path) = &mut federation.log {
                *path = folder.join(&path);
            }
            if let Some(backlog) = &mut federation.backlog {
                { &mut backlog.model }
                    .iter_mut()
                    .for_each(|path| *path = folder.join(&path));
            }
            &mut federation.tls
        });
        for tls in [Some(&mut node.tls), of_nodes].into_iter().flatten().flatten() {
            tls.lie_in(folder);
        }
    }
    Ok(node)
}

fn read(text: &str, shown: &str) -> Result<NodeFile, Vec<String>> {
    punctual_toml::read(text, shown, node)
}

pub(crate) fn node(top: &mut Section<'_, '_>) -> NodeFile {
    let mut node = NodeFile::default();
    top.table("server", |section| server(section, &mut node));
    top.table("store", |section| store(section, &mut node));
    top.table("temporal", |section| {
        let options = &mut node.options;
        section.update("validity", VALIDITIES, &mut options.validity);
        section.update("max_bytes", 1..=TEMPORAL_LEN_MAX, &mut options.temporal_len_max);
        section.update("objects_max", 0..=OBJECTS_MAX, &mut node.objects_max);
    });
    node.tls = top.table_if("tls", tls);
    node.tasks = top.table_if("tasks", tasks::read);
    node.federation = top.table_if("federation", membership::read);
    if node.federation.is_some() {
        for key in ["object", "temporal"] {
            if top.has(key) {
                top.complain(key, "a node of a federation has readings of up to 1 KiB that are valid for 1 s, and 1,024 objects: leave it out");
            }
        }
        if node.unix_socket.is_some() {
            let what = "a node of a federation listens on its address alone: leave it out";
            top.complain("server.unix_socket", what);
        }
        if node.durability == Durability::Volatile {
            let what = "a node of a federation writes to the medium: leave durability out";
            top.complain("store.durability", what);
        }
    }
    node.users = users(top);
    node.objects = top.tables("object", object);
    for (at, spec) in node.objects.iter().enumerate() {
        if !spec.key.is_empty() && node.objects[..at].iter().any(|other| other.key == spec.key) {
            let what = format!(
                "{} is there twice: give each object its own key",
                spec.key.escape_ascii()
            );
            top.complain(&format!("object[{at}].key"), what);
        }
    }
    let backlog = node
        .federation
        .as_ref()
        .and_then(|federation| federation.backlog.as_ref());
    if node.record.is_some() && node.tasks.is_none() && backlog.is_none() {
        let what = "nothing is decided without [tasks] or [federation.backlog]: leave it out";
        top.complain("server.record", what);
    }
    if let Some(tasks) = &node.tasks {
        check_objects(top, &node.objects, tasks, node.federation.is_some());
    }
    node
}

/// Reports objects that tasks and clients cannot share.
fn check_objects(top: &mut Section<'_, '_>, objects: &[ObjectSpec], tasks: &TasksFile, is_member: bool) {
    for (at, spec) in objects.iter().enumerate() {
        let key = spec.key.escape_ascii();
        if tasks::is_taken(&spec.key) {
            let what = format!("{key} is a key of the scenario's own objects: give the object another key");
            top.complain(&format!("object[{at}].key"), what);
        }
        let is_set = tasks.sets.iter().any(|set| set.object.as_bytes() == spec.key);
        if is_set && !tasks::takes_numbers(spec.max_len) {
            let what = format!("{key}: a task sets it to the number of its job, of up to 20 bytes: raise max_bytes");
            top.complain(&format!("object[{at}].max_bytes"), what);
        }
    }
    // Objects of a federation are created while it runs, so their keys are not known here.
    let is_known = |key: &str| is_member || objects.iter().any(|spec| spec.key == key.as_bytes());
    let sets = tasks.sets.iter().map(|set| &set.object);
    for key in tasks.reads.iter().chain(sets).filter(|key| !is_known(key)) {
        let what = format!("there is no object {key}: add an [[object]] with this key");
        top.complain("tasks", what);
    }
}

fn server(section: &mut Section<'_, '_>, node: &mut NodeFile) {
    node.listen = listen(section).unwrap_or(node.listen);
    node.unix_socket = section.text("unix_socket").map(PathBuf::from);
    if let Some(text) = section.text("unix_socket_mode") {
        match u32::from_str_radix(&text, 8) {
            Ok(mode @ 0..=0o777) => node.unix_socket_mode = mode,
            _ => section.complain("unix_socket_mode", "up to three octal digits, such as \"660\""),
        }
    }
    node.record = section.text("record").map(PathBuf::from);
    node.metrics = metrics(section);
    let options = &mut node.options;
    section.update("threads", 1..=THREADS_MAX, &mut options.threads);
    section.update("connections_max", 1..=CONNECTIONS_MAX, &mut options.connections_max);
    section.update("bytes_max", BYTES_MIN..=1 << 40, &mut options.bytes_max);
    section.update("queue_max", 1..=CONNECTIONS_MAX, &mut options.queue_max);
    let spans = Nanos::from_millis(100)..=Nanos::from_secs(3_600);
    section.update("stalled_max", spans.clone(), &mut options.stalled_max);
    section.update("drain_max", spans, &mut options.drain_max);
}

/// Address to listen on for clients.
pub fn listen(section: &mut Section<'_, '_>) -> Option<SocketAddr> {
    section.parsed("listen", "an address and a port such as \"127.0.0.1:6379\"")
}

/// Address of the metrics for Prometheus.
pub fn metrics(section: &mut Section<'_, '_>) -> Option<SocketAddr> {
    let address = of_this_machine(&section.text("metrics")?);
    if let Err(what) = &address {
        section.complain("metrics", what);
    }
    address.ok()
}

/// Parses an address that no other machine can reach.
pub fn of_this_machine(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().ok();
    let address = address.filter(|address| address.ip().is_loopback());
    address.ok_or_else(|| "expected an address of this machine alone, such as \"127.0.0.1:9121\"".into())
}

fn store(section: &mut Section<'_, '_>, node: &mut NodeFile) {
    if let Some(path) = section.text("path") {
        if path.is_empty() {
            section.complain("path", "names no folder; without this key, it is punctual.store");
        }
        node.store = path.into();
    }
    node.durability = section
        .choice("durability", &Durability::NAMED)
        .unwrap_or(node.durability);
    section.update("map_bytes", 1 << 20..=1 << 46, &mut node.quota);
    node.verify = section.choice("verify", &Verify::NAMED).unwrap_or(node.verify);
}

pub fn tls(section: &mut Section<'_, '_>) -> TlsPaths {
    let mut path = |key: &'static str, what: &str| match section.text(key) {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => {
            section.complain(key, format!("name the file of {what}, in PEM"));
            PathBuf::new()
        }
    };
    let certificate = path("certificate", "the server's certificate");
    let key = path("key", "the server's private key");
    TlsPaths {
        certificate,
        key,
        clients: section.text("clients").map(PathBuf::from),
    }
}

/// Users of a node or a balancer.
pub fn users(top: &mut Section<'_, '_>) -> Vec<User> {
    let users = top.tables("user", user);
    for (at, user) in users.iter().enumerate() {
        if !user.name.is_empty() && users[..at].iter().any(|other| other.name == user.name) {
            let what = format!("{} is there twice: give each user a name", user.name);
            top.complain(&format!("user[{at}].name"), what);
        }
    }
    if users.len() > USERS_MAX {
        top.complain("user", format!("at most {USERS_MAX} users"));
    }
    users
}

fn user(section: &mut Section<'_, '_>) -> User {
    let name = section.text("name").unwrap_or_default();
    let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain || !(1..=USER_NAME_MAX).contains(&name.len()) {
        let what = format!("each user has a name of 1 to {USER_NAME_MAX} letters, digits and signs, without blanks");
        section.complain("name", what);
    }
    // The error does not quote the value, which may be the password itself.
    let password = section.secret("password").unwrap_or_default().parse();
    if let Err(NoHash) = password {
        section.complain("password", NoHash.to_string());
    }
    let mut rights = Vec::new();
    for word in section.texts("may").unwrap_or_default() {
        match Right::ALL.into_iter().find(|right| right.name() == word) {
            Some(right) => rights.push(right),
            None => {
                let known = Right::ALL.map(Right::name).join(", ");
                section.complain("may", format!("{word} is no class of commands: {known}"));
            }
        }
    }
    let prefixes = section.texts("keys").unwrap_or_default();
    let needs_keys = rights.iter().any(|right| matches!(right, Right::Read | Right::Write));
    if needs_keys && prefixes.is_empty() || prefixes.len() > PREFIXES_MAX {
        let what = format!("what the user's keys begin with, 1 to {PREFIXES_MAX} texts: [\"\"] for all keys");
        section.complain("keys", what);
    }
    User {
        name,
        password: password.unwrap_or_else(|NoHash| PasswordHash::of(b"", [0; 16], 1)),
        rights,
        prefixes: prefixes.into_iter().map(String::into_bytes).collect(),
    }
}

fn object(section: &mut Section<'_, '_>) -> ObjectSpec {
    let key = section.text("key").unwrap_or_default();
    if !(1..=punctual_store::engine::KEY_MAX_LEN).contains(&key.len()) {
        section.complain("key", "each object has a key of 1 to 511 bytes");
    }
    let spans = Nanos(1)..=Nanos::from_secs(86_400);
    let period = section
        .within("period", spans.clone())
        .unwrap_or(Nanos::from_millis(500));
    ObjectSpec {
        key: key.into_bytes(),
        avi: section.within("validity", spans).unwrap_or(period * 2),
        period,
        max_len: section.within("max_bytes", 1..=TEMPORAL_LEN_MAX).unwrap_or(256),
        history: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_is_not_as_by_default() {
        let text = "[server]\nlisten = \"127.0.0.1:7000\"\nthreads = 3\n[store]\npath = \"a\"\ndurability = \
                    \"volatile\"\n[[object]]\nkey = \"pose\"\nperiod = \"10ms\"\n";
        let node = read(text, "x.toml").unwrap();
        assert_eq!(node.listen.port(), 7000);
        assert_eq!((node.options.threads, node.durability), (3, Durability::Volatile));
        assert_eq!(node.objects[0].avi, Nanos::from_millis(20));
        assert_eq!(node.objects_max, 1024);
    }

    #[test]
    fn each_key_is_read() {
        let text = "[server]\nconnections_max = 5\nqueue_max = 6\nbytes_max = 67108864\nstalled_max = \"7s\"\n\
                    drain_max = \"8s\"\n[store]\nmap_bytes = 9000000\nverify = \"structure\"\n[temporal]\nvalidity = \
                    \"10ms\"\nmax_bytes = 11\nobjects_max = 12\n";
        let node = read(text, "x.toml").unwrap();
        let options = &node.options;
        assert_eq!(
            (options.connections_max, options.queue_max, options.bytes_max),
            (5, 6, 64 << 20)
        );
        assert_eq!(
            (options.stalled_max, options.drain_max),
            (Nanos::from_secs(7), Nanos::from_secs(8))
        );
        assert_eq!((node.quota, node.verify), (9_000_000, Verify::Structure));
        assert_eq!(
            (options.validity, options.temporal_len_max),
            (Nanos::from_millis(10), 11)
        );
        assert_eq!(node.objects_max, 12);
    }

    #[test]
    fn users_have_hashes_rights_and_keys() {
        let hash = PasswordHash::of(b"secret", [1; 16], 1_000).to_string();
        let text = format!(
            "[[user]]\nname = \"robot\"\npassword = \"{hash}\"\nmay = [\"read\", \"server\"]\nkeys = [\"a/\", \"b\"]\n"
        );
        let node = read(&text, "x.toml").unwrap();
        assert_eq!(node.users[0].name, "robot");
        assert!(node.users[0].password.is_of(b"secret"));
        assert_eq!(node.users[0].rights, [Right::Read, Right::Server]);
        assert_eq!(node.users[0].prefixes, [b"a/".to_vec(), b"b".to_vec()]);
        let text =
            "[[user]]\nname = \"a b\"\npassword = \"hunter2\"\nmay = [\"read\", \"fly\"]\n[[user]]\nname = \"a b\"\n";
        let wrong = read(text, "x.toml").unwrap_err();
        for place in [
            "x.toml:2: user[0].name: ",
            "x.toml:3: user[0].password: ",
            "x.toml:4: user[0].may: fly ",
            "user[0].keys: ",
            "user[1].name: a b ",
        ] {
            assert!(wrong.iter().any(|found| found.contains(place)), "{place}: {wrong:#?}");
        }
        assert!(!wrong.join("").contains("hunter2"));
        let text = "[[user]]\nname = \"a\"\npassword = 471147\n";
        let wrong = read(text, "x.toml").unwrap_err().join("\n");
        assert!(
            wrong.contains("x.toml:3: user[0].password: ") && !wrong.contains("471147"),
            "{wrong}"
        );
    }

    #[test]
    fn every_mistake_is_told_with_its_line() {
        let text = "[server]\nlisten = \"here\"\nthreads = 0\nstalled_max = \"1ms\"\n[store]\nmap_bytes = 7\nvrify = \
                    1\n[[object]]\nkey = \"a\"\n[[object]]\nkey = \"a\"\n[tls]\ncertificate = \"a.pem\"\n";
        let wrong = read(text, "x.toml").unwrap_err();
        for place in [
            "x.toml:2: server.listen: ",
            "x.toml:3: server.threads: ",
            "x.toml:4: server.stalled_max: ",
            "x.toml:6: store.map_bytes: ",
            "x.toml:12: tls.key: ",
            "x.toml:7: store.vrify: ",
            "x.toml:11: object[1].key: a ",
        ] {
            assert!(wrong.iter().any(|found| found.contains(place)), "{place}: {wrong:#?}");
        }
        let users = "[[user]]\nname = \"a b\"\npassword = \"hunter2\"\nmay = [\"read\", \"fly\"]\n";
        let twice = "[[user]]\nname = \"a\"\n[[user]]\nname = \"a\"\n";
        let unnamed = read("[store]\npath = \"\"\n", "x.toml").unwrap_err();
        assert!(
            unnamed[0].starts_with("x.toml:2: store.path: names no folder"),
            "{unnamed:?}"
        );
        let list = [text, users, twice].map(|text| {
            let wrong = read(text, "x.toml").unwrap_err();
            format!("{text}  => {}\n", wrong.join("\n  => "))
        });
        insta::assert_snapshot!("node_file", list.concat());
    }
}

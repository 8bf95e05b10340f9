//! Readings from Zenoh in a node's file: `[[zenoh]]` and `[zenoh_session]` (decision 48).

use std::sync::Arc;

use punctual_node::letterbox::Letterbox;
use punctual_node::process::Listening;
use punctual_node::sensing::Temporal;
use punctual_node::zenoh::{Naming, Source, Spec, TABLES_MAX, Table, check_endpoint, check_key};
use punctual_os::LinuxOs;
use serde::{Deserialize, Serialize};

use super::file::within;
use crate::failure::Failure;
use crate::scenario::Section;

/// Default for the most objects that Zenoh publishers may create: a publisher that invents new ones all the time leaves
/// the federation room for its own.
const OBJECTS: usize = 256;

/// Settings of Zenoh from a node's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZenohFile {
    /// Session, and the rules from keys to objects.
    pub spec: Spec,
    /// Most objects that Zenoh publishers may create.
    pub objects_max: usize,
}

/// Reads the tables `[[zenoh]]` and `[zenoh_session]`.
pub fn read(top: &mut Section<'_, '_>) -> Option<ZenohFile> {
    let tables = top.tables("zenoh", table);
    let has_session = top.has("zenoh_session");
    let (mut spec, objects_max) = top.table("zenoh_session", session);
    match tables.len() {
        0 if has_session => {
            top.complain("zenoh_session", "add a [[zenoh]] that says which puts set which object");
            return None;
        }
        0 => return None,
        1..=TABLES_MAX => {}
        more => top.complain("zenoh", format!("{more} of them; at most {TABLES_MAX}")),
    }
    if spec.connect.is_empty() && spec.listen.is_empty() && !spec.scouts {
        let what = "say where Zenoh is, as [zenoh_session] connect = [\"tcp/10.0.0.7:7447\"], or scouting = true";
        top.complain("zenoh", what);
    }
    spec.tables = tables;
    Some(ZenohFile { spec, objects_max })
}

fn table(section: &mut Section<'_, '_>) -> Table {
    let table = Table {
        key: section.text("key").unwrap_or_default(),
        object: section.text("object").unwrap_or_default(),
    };
    if let Err(what) = check_key(&table.key) {
        section.complain("key", what);
    } else if let Err(what) = Naming::of(&table) {
        section.complain("object", what);
    }
    table
}

fn session(section: &mut Section<'_, '_>) -> (Spec, usize) {
    let mut endpoints = |key, listens| {
        let endpoints = section.texts(key).unwrap_or_default();
        for endpoint in &endpoints {
            if let Err(what) = check_endpoint(endpoint, listens) {
                section.complain(key, what);
            }
        }
        endpoints
    };
    let (connect, listen) = (endpoints("connect", false), endpoints("listen", true));
    let modes = [("peer", false), ("client", true)];
    let spec = Spec {
        tables: Vec::new(),
        connect,
        listen,
        is_client: section.choice("mode", &modes).unwrap_or(false),
        scouts: section.flag("scouting").unwrap_or(false),
    };
    let most = Temporal::default().objects_max;
    (spec, within(section, "objects_max", 1..=most).unwrap_or(OBJECTS))
}

/// Opens the session of a node that starts.
///
/// # Errors
/// [`Failure::Input`] with a remedy, if it cannot be opened.
pub fn start(file: &ZenohFile, listening: &mut Listening) -> Result<Arc<Source>, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        let what = "look at [zenoh_session]: `listen` names free ports of this machine, and with mode = \"client\" one \
                    of `connect` answers";
        Failure::input([format!("zenoh: {error}; {what}")])
    };
    let namings = file.spec.namings().map_err(|error| failed(&error))?;
    let own = namings.iter().filter_map(|naming| naming.plain());
    let own = own.map(|name| name.as_bytes().to_vec());
    let waker = listening.waker();
    // If the waker fails, the loop looks at its next beat.
    let wake = move || drop(waker.wake());
    let (len_max, objects_max) = (listening.temporal.max_len, file.objects_max);
    let letterbox = Arc::new(Letterbox::new(len_max, objects_max, own, wake));
    let source = Source::open(&file.spec, &letterbox, LinuxOs).map_err(|error| failed(&error))?;
    listening.letterbox = Some(letterbox);
    Ok(Arc::new(source))
}

//! Puts beside records whose life is over, and the same puts beside records that live on, in turns.
//!
//! ```text
//! cargo run --release -p punctual-engines --example expired_leases [LEASES [PUTS]]
//! ```
//!
//! Two stores have 100,000 leases each. Those of the first are all due before the puts begin, those of the second last
//! for a day. Both take the same puts of other records, a hundred in turn, and gets of these; so does a third turn that
//! does nothing, which shows what the clock around a call costs by itself.

use std::ops::Range;
use std::path::Path;

use punctual_engines::Lmdb;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::{LinuxOs, Os};
use punctual_store::engine::Durability;
use punctual_store::{Deadline, Store, StoreOptions};
use punctual_units::{Clock, Nanos};

const TURN: usize = 100;
const VALUE: [u8; 100] = [7; 100];
const DAY: Nanos = Nanos::from_secs(86_400);

type AnyError = Box<dyn std::error::Error>;
type LinuxStore = Store<Lmdb, LinuxOs>;

fn main() -> Result<(), AnyError> {
    let argument = |at, default| {
        let given = std::env::args().nth(at);
        given.map_or(Ok(default), |text| text.parse::<usize>())
    };
    let (leases, puts) = (argument(1, 100_000)?, argument(2, 20_000)?);
    let folder = tempfile::tempdir()?;
    let life = Nanos::from_secs(5);
    let stores = [
        open(&folder.path().join("due"), leases, life)?,
        open(&folder.path().join("alive"), leases, DAY)?,
    ];
    LinuxOs.sleep(life);
    for store in &stores {
        put(store, 0..TURN)?; // warms up
    }
    let mut spans = [const { Vec::new() }; 3];
    let mut gets = [const { Vec::new() }; 3];
    for turn in 0..puts.div_ceil(TURN) {
        let keys = turn * TURN..((turn + 1) * TURN).min(puts);
        let each = stores.iter().map(Some).chain([None]);
        for ((store, spans), gets) in each.zip(&mut spans).zip(&mut gets) {
            for key in keys.clone() {
                let began = LinuxOs.now();
                if let Some(store) = store {
                    put(store, key..key + 1)?;
                }
                let put = LinuxOs.now();
                if let Some(store) = store {
                    store.get_with(name("other", key), |value| assert_eq!(value, VALUE))?;
                }
                spans.push(put.since(began));
                gets.push(LinuxOs.now().since(put));
            }
        }
    }
    for (what, spans) in [("put", &mut spans), ("get", &mut gets)] {
        let mut medians = [0.0; 3];
        for ((place, spans), median) in ["beside due leases", "beside live ones", "no-op"]
            .into_iter()
            .zip(spans)
            .zip(&mut medians)
        {
            spans.sort_unstable();
            let at = |share: usize| spans[spans.len() * share / 100];
            *median = at(50).0 as f64;
            println!("{what} {place:<18} p50 {}, p90 {}, p99 {}", at(50), at(90), at(99));
        }
        println!("{what}: ratio of the medians {:.3}", medians[0] / medians[1]);
    }
    println!("due leases still to be removed: {}", stores[0].sweep_expired()?);
    Ok(())
}

fn open(folder: &Path, leases: usize, life: Nanos) -> Result<LinuxStore, AnyError> {
    let options = LmdbOptions {
        durability: Durability::Volatile,
        ..LmdbOptions::default()
    };
    let store = Store::open(options.open(folder)?, LinuxOs, StoreOptions::default())?;
    let mut transaction = store.write_transaction(Deadline::NONE)?;
    for number in 0..leases {
        transaction.put_for(name("lease", number), VALUE, life)?;
    }
    transaction.commit()?;
    Ok(store)
}

fn put(store: &LinuxStore, keys: Range<usize>) -> Result<(), AnyError> {
    for key in keys {
        store.put(name("other", key), VALUE)?;
    }
    Ok(())
}

fn name(kind: &str, number: usize) -> Vec<u8> {
    format!("{kind}/{number:08}").into_bytes()
}

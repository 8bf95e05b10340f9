//! Where did a transaction's time go? Every commit returns its split: lock, data, computation, commit.
//!
//! And a firm deadline is checked before the write lock is waited for, not after.

use std::time::Duration;

use punctual::{Clock, Deadline, LinuxOs, Store, StoreError, ms};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("where-time-goes.{}", std::process::id()));
    let store = Store::builder(&folder).open()?;

    let deadline = Deadline::soft(LinuxOs.now() + ms(50));
    let mut transaction = store.write_transaction(deadline)?;
    for room in 0..100u32 {
        transaction.put(room.to_be_bytes(), b"20.5 degC")?;
    }
    std::thread::sleep(Duration::from_millis(2)); // the analysis
    let split = transaction.commit()?;
    println!("100 durable puts took {}:", split.response());
    println!("  lock        {}", split.lock);
    println!("  data        {}", split.data);
    println!("  computation {}", split.computation);
    println!("  commit      {}", split.commit);

    // While another thread holds the write lock, a transaction with a firm deadline gives up in time.
    let holder = store.write_transaction(Deadline::NONE)?;
    let firm = Deadline::firm(LinuxOs.now() + ms(5));
    let answer = std::thread::scope(|scope| scope.spawn(|| store.write_transaction(firm).map(drop)).join());
    match answer.expect("the thread does not panic") {
        Err(StoreError::DeadlinePassed { late }) => println!("gave up {late} after its firm deadline"),
        Err(StoreError::LockTimeout { waited, holder }) => println!("gave up after {waited}: {holder}"),
        other => println!("unexpected: {other:?}"),
    }
    drop(holder);
    drop(store);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

//! Both ends of the channel, over one file, as two processes have it.

use std::fs::File;

use punctual_tracer::{Channel, Geometry, Window};

fn file() -> File {
    let path = std::env::temp_dir().join(format!(
        "punctual-channel-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a file");
    std::fs::remove_file(path).expect("its name is not needed");
    file
}

fn window(number: u64) -> Window {
    Window {
        instructions: 1000 + number,
        requests: 10 * number,
        distances: (0..20).map(|distance| number + distance).collect(),
    }
}

#[test]
fn windows_arrive_whole_and_in_order() {
    let file = file();
    let reader = Channel::create(&file, &Geometry::FULL).expect("a channel");
    let (writer, geometry) = Channel::open(&file).expect("the same channel");
    assert_eq!(geometry, Geometry::FULL);
    // More than fit at once: the writer has to wait for the reader.
    let count = 1000;
    let writing = std::thread::spawn(move || {
        (0..count).for_each(|number| writer.push(&window(number)));
        writer.show(&window(count));
        writer.set_ended();
    });
    let mut windows = Vec::new();
    while !reader.progress().ended {
        reader.take(20, &mut windows);
        std::thread::yield_now();
    }
    reader.take(20, &mut windows);
    writing.join().expect("no panic");
    assert_eq!(windows, (0..count).map(window).collect::<Vec<_>>());
    assert_eq!(reader.open_window(20), window(count));
    let instructions: u64 = (0..=count).map(|number| window(number).instructions).sum();
    assert_eq!(reader.progress().instructions, instructions);
}

#[test]
fn a_file_that_is_no_channel_is_refused() {
    let empty = file();
    assert!(Channel::open(&empty).is_err());
    // As long as a channel, but nothing in it.
    let blank = file();
    let channel = Channel::create(&blank, &Geometry::FULL).expect("a channel");
    let bytes = blank.metadata().expect("its length").len();
    drop(channel);
    blank.set_len(0).expect("emptied");
    blank.set_len(bytes).expect("zeros");
    assert!(Channel::open(&blank).is_err());
}

//! What nodes send each other: any bytes are frames or refused, however they are split, and nothing is kept beyond the
//! bound; a packet that is read is read again as it was written. The same bytes as a frame whose length and checksum
//! are right, so that the decoder itself sees them.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use punctual_logs::frame::{FrameError, Frames, write};
use punctual_node::wire::{Packet, VERSION, shortened};
use punctual_units::Nanos;

/// Small, so that it is met.
const MAX: usize = 4096;

#[derive(Arbitrary, Debug)]
struct Input<'b> {
    bytes: &'b [u8],
    cuts: Vec<u16>,
    /// Whether they get a head.
    is_framed: bool,
    waited: u64,
}

fn packets(pieces: &[&[u8]]) -> (Vec<Packet>, Option<FrameError>) {
    let (mut frames, mut found) = (Frames::new(VERSION, MAX), Vec::new());
    for piece in pieces {
        frames.feed(piece);
        loop {
            match frames.take::<Packet>() {
                Ok(Some(packet)) => found.push(packet),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        assert!(frames.kept() <= MAX + 8, "{} bytes are kept", frames.kept());
    }
    (found, None)
}

fuzz_target!(|input: Input| {
    let mut bytes = Vec::new();
    if input.is_framed {
        let mut body = vec![VERSION];
        body.extend_from_slice(input.bytes);
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
    } else {
        bytes.extend_from_slice(input.bytes);
    }
    let mut cuts: Vec<usize> = input.cuts.iter().map(|cut| usize::from(*cut) % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
    let (found, error) = packets(&pieces);
    // Compared as text: what is no number is not equal to itself.
    assert_eq!(format!("{found:?} {error:?}"), format!("{:?} {:?}", packets(&[&bytes]).0, packets(&[&bytes]).1));
    for packet in found {
        let mut again = Vec::new();
        write(&mut again, VERSION, &packet);
        if again.len() <= MAX {
            let (read, error) = packets(&[&again]);
            assert_eq!((format!("{read:?}"), error), (format!("[{packet:?}]"), None));
        }
        if let Packet::Message(message) = packet {
            let _ = shortened(message, Nanos(input.waited)); // no panic
        }
    }
});

//! A saved state goes only where its layout and its version are known, and where the next one has room.

use std::sync::Arc;

use punctual_pipelines::*;
use punctual_units::Time;
use serde::{Deserialize, Serialize};

/// Module with a stage whose state has these fields and this version, and converts a state of 8 bytes.
macro_rules! stage {
    ($module:ident, $version:literal, { $($field:ident: $of:ty),* }) => {
        mod $module {
            use super::*;

            #[derive(Default, Serialize, Deserialize)]
            pub(super) struct Count { $(pub(super) $field: $of),* }

            impl State for Count {
                const VERSION: u32 = $version;

                fn convert(_: u32, bytes: &[u8]) -> Option<Count> {
                    let (_, rest): (u64, &[u8]) = postcard::take_from_bytes(bytes).ok()?;
                    rest.is_empty().then(Count::default)
                }
            }

            pub(super) struct Counting;

            impl Stage for Counting {
                type State = Count;

                fn begin(&self) -> Count {
                    Count::default()
                }

                fn step(&mut self, _: &mut Count, frames: &mut Frames<'_>) -> Result<(), Failure> {
                    frames.make(0, 0, Head::default());
                    Ok(())
                }
            }
        }
    };
}

stage!(first, 1, { frames: u64 });
stage!(grown, 1, { frames: u64, more: [u64; 4] });
stage!(renamed, 1, { count: u64 });
stage!(second, 2, { frames: u64, more: [u64; 4] });
stage!(long, 2, { frames: u64, more: [[u64; 32]; 8] });

/// A stage that does not tell its fingerprint.
struct Unknown(Box<dyn AnyStage>);

impl AnyStage for Unknown {
    fn version(&self) -> u32 {
        self.0.version()
    }

    fn begin(&mut self) {
        self.0.begin();
    }

    fn load(&mut self, version: u32, bytes: &[u8]) -> Result<(), Failure> {
        self.0.load(version, bytes)
    }

    fn save(&self, room: &mut [u8]) -> Result<usize, Failure> {
        self.0.save(room)
    }

    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure> {
        self.0.step(frames)
    }
}

#[test]
fn a_state_of_another_layout_is_refused_and_one_that_converts_and_fits_is_taken() {
    let edge = EdgeSpec {
        slots: 4,
        frame_bytes: 8,
        full: WhenFull::Wait,
    };
    let graph = Graph::builder("versions")
        .stage(StageSpec::new("count").makes(&[1]).state(64))
        .stage(StageSpec::new("sink").takes(&[1]).state(64))
        .edge(("count", 0), ("sink", 0), edge)
        .build()
        .unwrap();
    let layout = Arc::new(Layout::new(&graph));
    let region = Region::on_heap(layout.bytes());
    layout.prepare(&region).unwrap();
    let mut body = erase(first::Counting);
    let mut runner = Runner::take(&layout, &region, 0, 1, body.as_mut()).unwrap();
    assert_eq!(runner.turn(body.as_mut(), Time::ZERO, &mut |_| {}), TurnResult::Stepped);
    let tried = |mut body: Box<dyn AnyStage>| Runner::try_state(&layout, &region, 0, body.as_mut());
    let told = |body| tried(body).unwrap_err().to_string();
    assert_eq!(tried(erase(first::Counting)), Ok(()));
    assert_eq!(tried(erase(second::Counting)), Ok(()));
    assert_eq!(tried(Box::new(Unknown(erase(first::Counting)))), Ok(()));
    for other in [erase(grown::Counting), erase(renamed::Counting)] {
        let told = told(other);
        assert!(told.contains("version 1"), "{told}");
    }
    let told = told(erase(long::Counting));
    assert!(told.contains("64 bytes"), "{told}");
}

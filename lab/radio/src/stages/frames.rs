//! Conversion between frames and samples.

use bytemuck::{AnyBitPattern, NoUninit};
use punctual_pipelines::{Failure, Frames};

/// Error text of a stage that refuses a state.
pub(crate) const FOREIGN: &str = "its state is of a stage of another size: begin the stream anew";

/// Makes a frame at output 0 from each frame at input 0: `work` gets both and returns how many samples it has set. The
/// metadata of the frame is kept.
pub(crate) fn each_frame<I, O>(
    frames: &mut Frames<'_>,
    mut work: impl FnMut(&[I], &mut [O]) -> usize,
) -> Result<(), Failure>
where
    I: AnyBitPattern,
    O: AnyBitPattern + NoUninit,
{
    for number in 0..frames.count(0) {
        let (input, head) = (samples(frames.input(0, number))?, frames.head(0, number));
        let made = work(input, samples_mut(frames.output(0))?);
        frames.make(0, made * size_of::<O>(), head);
    }
    Ok(())
}

/// Samples in a frame.
pub(crate) fn samples<T: AnyBitPattern>(frame: &[u8]) -> Result<&[T], Failure> {
    bytemuck::try_cast_slice(frame).map_err(|why| misfit::<T>(frame.len(), why))
}

/// Buffer for the samples of a frame.
pub(crate) fn samples_mut<T: AnyBitPattern + NoUninit>(frame: &mut [u8]) -> Result<&mut [T], Failure> {
    let bytes = frame.len();
    bytemuck::try_cast_slice_mut(frame).map_err(|why| misfit::<T>(bytes, why))
}

fn misfit<T>(bytes: usize, why: bytemuck::PodCastError) -> Failure {
    let size = size_of::<T>();
    Failure(format!(
        "a frame of {bytes} bytes does not hold samples of {size} bytes each ({why})"
    ))
}

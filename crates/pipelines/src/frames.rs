//! The frames that one step takes and makes.

use std::sync::atomic::Ordering;

use punctual_units::Time;

use crate::layout::{Input, OutputLayout, Ring};
use crate::region::Region;

/// Metadata of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Position of the frame in the order in which the source made frames.
    pub sequence: u64,
    /// When the source received the data that the frame is made from.
    pub captured_at: Time,
    /// When the frame must be delivered; at or before `captured_at`: the frame has no due time.
    pub due_by: Time,
}

/// The frames that a step takes, and room for those that it makes.
pub struct Frames<'s> {
    pub(crate) region: &'s Region,
    pub(crate) inputs: &'s [Input],
    pub(crate) outputs: &'s [OutputLayout],
    /// Position of the first frame of each input.
    pub(crate) taken: &'s [u64],
    /// Number of frames taken from each input.
    pub(crate) count: &'s [u32],
    /// Position of the next frame of each output.
    pub(crate) made: &'s mut [u64],
    /// Position of the first frame of this step at each output.
    pub(crate) began: &'s [u64],
    /// Buffer used in place of the rings when steps are repeated: their frames have been passed on already.
    pub(crate) scratch: Option<&'s mut [u8]>,
    pub(crate) ended: &'s mut bool,
}

impl<'s> Frames<'s> {
    /// Number of the stage's inputs.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Number of the stage's outputs.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Frames of an input that this step takes: as many as the graph declares, fewer at the end of the stream.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn count(&self, port: usize) -> usize {
        self.count[port] as usize
    }

    /// Content of a frame, by its number in this step; it begins at a multiple of 64 bytes. It does not change until
    /// the step ends.
    ///
    /// # Panics
    /// Where this step has no such frame.
    pub fn input(&self, port: usize, number: usize) -> &'s [u8] {
        let (ring, position) = self.of_input(port, number);
        let length = ring.head(self.region, position)[3].load(Ordering::Relaxed) as usize;
        // SAFETY: the frame was committed by the stage that made it and is not released before this step is.
        unsafe { self.region.read(ring.content(position), length.min(ring.frame_bytes)) }
    }

    /// Metadata of a frame, by its number in this step.
    ///
    /// # Panics
    /// Where this step has no such frame.
    pub fn head(&self, port: usize, number: usize) -> Head {
        let (ring, position) = self.of_input(port, number);
        ring.read_head(self.region, position)
    }

    fn of_input(&self, port: usize, number: usize) -> (&'s Ring, u64) {
        assert!(
            number < self.count(port),
            "input {port} has {} frames in this step",
            self.count(port)
        );
        (&self.inputs[port].ring, self.taken[port] + number as u64)
    }

    /// Buffer for the next frame of an output: as long as the edge's longest frame, with arbitrary content.
    ///
    /// # Panics
    /// Where there is no such output, or this step has made all of its frames.
    pub fn output(&mut self, port: usize) -> &mut [u8] {
        let output = &self.outputs[port];
        assert!(
            self.left(port) > 0,
            "a step makes at most {} frames at output {port}",
            output.makes
        );
        if let Some(scratch) = &mut self.scratch {
            return &mut scratch[..output.frame_bytes()];
        }
        let first = &output.rings[0];
        // SAFETY: the slot is free (the runner has looked), and no other process has this stage.
        unsafe { self.region.write(first.content(self.made[port]), output.frame_bytes()) }
    }

    /// How many frames this step may still make at an output.
    ///
    /// # Panics
    /// Where there is no such output.
    pub fn left(&self, port: usize) -> u32 {
        self.outputs[port].makes - (self.made[port] - self.began[port]) as u32
    }

    /// Makes a frame of the first `length` bytes written to [`Frames::output`].
    ///
    /// # Panics
    /// Where there is no such output, this step has made all of its frames, or the frame is too long.
    pub fn make(&mut self, port: usize, length: usize, head: Head) {
        let output = &self.outputs[port];
        assert!(
            self.left(port) > 0,
            "a step makes at most {} frames at output {port}",
            output.makes
        );
        assert!(
            length <= output.frame_bytes(),
            "frames of output {port} have {} bytes at most",
            output.frame_bytes()
        );
        let position = self.made[port];
        self.made[port] += 1;
        if self.scratch.is_some() {
            return;
        }
        for (number, ring) in output.rings.iter().enumerate() {
            if number > 0 {
                // SAFETY: both slots belong to this step: free, and of a stage that no other process has.
                let (from, to) = unsafe {
                    let from = self.region.read(output.rings[0].content(position), length);
                    (from, self.region.write(ring.content(position), length))
                };
                to.copy_from_slice(from);
            }
            ring.write_head(self.region, position, head, length);
        }
    }

    /// Declares that no step will follow this one: for a source, the end of the stream.
    pub fn end(&mut self) {
        *self.ended = true;
    }
}

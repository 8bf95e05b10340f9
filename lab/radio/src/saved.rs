//! Serializes the samples of a state as one run of bytes; a list would be serialized number by number at each step.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// Samples that a stage keeps between frames; only a process on the same machine reads them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Samples(pub(crate) Vec<f32>);

impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytemuck::cast_slice(&self.0))
    }
}

impl<'de> Deserialize<'de> for Samples {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Samples, D::Error> {
        deserializer.deserialize_bytes(SamplesVisitor)
    }
}

struct SamplesVisitor;

impl Visitor<'_> for SamplesVisitor {
    type Value = Samples;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("samples of four bytes each")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Samples, E> {
        let (samples, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        Ok(Samples(
            samples.iter().map(|&sample| f32::from_ne_bytes(sample)).collect(),
        ))
    }
}

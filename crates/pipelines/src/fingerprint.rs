//! Fingerprint of a state's layout: names and types of its fields, without their values.
//!
//! **Problem.** A saved state is bytes without names. A stage whose state has other fields, and whose version was
//! forgotten, would read them as something else. **Method.** The state before the first frame is serialized into a hash
//! of what is there: names of types and fields, kinds of values, lengths of tuples. **Bounds.** Of a list or a map the
//! first element counts, of an option its content, of an enum the present variant: what the state before the first
//! frame does not show is not seen.

use std::fmt::Display;

use serde::Serialize;
use serde::ser::{self, Serializer};

/// Elements of a tuple or an array that count.
const ELEMENTS_MAX: usize = 32;

/// The fingerprint of a value's layout.
pub(crate) fn fingerprint(value: &impl Serialize) -> u32 {
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    // A value that cannot be serialized is refused when it is saved.
    let _ = value.serialize(&mut hash);
    (hash.0 ^ hash.0 >> 32) as u32
}

struct Hash(u64);

impl Hash {
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn kind(&mut self, text: &str) -> Result<(), Stop> {
        self.add(text);
        Ok(())
    }

    fn parts(&mut self, kind: &str, name: &str, count_max: usize) -> Result<Parts<'_>, Stop> {
        self.add(kind);
        self.add(name);
        Ok(Parts {
            hash: self,
            left: count_max,
        })
    }
}

/// Error of a state that cannot be serialized.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Stop(String);

impl ser::Error for Stop {
    fn custom<T: Display>(message: T) -> Stop {
        Stop(message.to_string())
    }
}

/// Elements or fields of a value, of which the next `left` count.
struct Parts<'h> {
    hash: &'h mut Hash,
    left: usize,
}

impl Parts<'_> {
    fn part<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Stop> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        self.hash.add(name);
        value.serialize(&mut *self.hash)
    }
}

/// Implements the parts of a value that have no names.
macro_rules! unnamed {
    ($($of:ident $method:ident),*) => {$(
        impl ser::$of for Parts<'_> {
            type Ok = ();
            type Error = Stop;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
                self.part("", value)
            }

            fn end(self) -> Result<(), Stop> {
                self.hash.kind("end")
            }
        }
    )*};
}

unnamed!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

/// Implements the parts of a value that have names.
macro_rules! named {
    ($($of:ident),*) => {$(
        impl ser::$of for Parts<'_> {
            type Ok = ();
            type Error = Stop;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Stop> {
                self.part(name, value)
            }

            fn end(self) -> Result<(), Stop> {
                self.hash.kind("end")
            }
        }
    )*};
}

named!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = Stop;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Stop> {
        self.part("key", key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        self.part("value", value)
    }

    fn end(self) -> Result<(), Stop> {
        self.hash.kind("end")
    }
}

/// Implements values of one kind.
macro_rules! values {
    ($($method:ident $of:ty),*) => {$(
        fn $method(self, _: $of) -> Result<(), Stop> {
            self.kind(stringify!($of))
        }
    )*};
}

impl<'h> Serializer for &'h mut Hash {
    type Ok = ();
    type Error = Stop;
    type SerializeSeq = Parts<'h>;
    type SerializeTuple = Parts<'h>;
    type SerializeTupleStruct = Parts<'h>;
    type SerializeTupleVariant = Parts<'h>;
    type SerializeMap = Parts<'h>;
    type SerializeStruct = Parts<'h>;
    type SerializeStructVariant = Parts<'h>;

    values!(
        serialize_bool bool, serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64,
        serialize_i128 i128, serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64,
        serialize_u128 u128, serialize_f32 f32, serialize_f64 f64, serialize_char char, serialize_str &str,
        serialize_bytes &[u8]
    );

    // As the saved form.
    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_none(self) -> Result<(), Stop> {
        self.kind("option")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Stop> {
        self.add("option");
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Stop> {
        self.kind("unit")
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<(), Stop> {
        self.kind(name)
    }

    fn serialize_unit_variant(self, name: &'static str, _: u32, variant: &'static str) -> Result<(), Stop> {
        self.add(name);
        self.kind(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<(), Stop> {
        self.add(name);
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        self.add(name);
        self.add(variant);
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'h>, Stop> {
        self.parts("list", "", 1)
    }

    fn serialize_tuple(self, length: usize) -> Result<Parts<'h>, Stop> {
        self.parts("tuple", &length.to_string(), ELEMENTS_MAX)
    }

    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Parts<'h>, Stop> {
        self.parts("fields", name, usize::MAX)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'h>, Stop> {
        self.add(name);
        self.parts("variant", variant, usize::MAX)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'h>, Stop> {
        self.parts("map", "", 2)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts<'h>, Stop> {
        self.parts("struct", name, usize::MAX)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'h>, Stop> {
        self.add(name);
        self.parts("variant", variant, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with a state of the same name and other fields.
    macro_rules! state {
        ($module:ident { $($field:ident: $of:ty = $value:expr),* }) => {
            mod $module {
                #[derive(serde::Serialize)]
                pub(super) struct Sum { $($field: $of),* }

                pub(super) fn fingerprint() -> u32 {
                    super::fingerprint(&Sum { $($field: $value),* })
                }
            }
        };
    }

    state!(first { frames: u64 = 1, sums: Vec<f32> = vec![1.0] });
    state!(values_differ { frames: u64 = 7, sums: Vec<f32> = vec![2.0, 3.0] });
    state!(grown { frames: u64 = 1, sums: Vec<f32> = vec![1.0], more: u8 = 0 });
    state!(renamed { count: u64 = 1, sums: Vec<f32> = vec![1.0] });
    state!(swapped { sums: Vec<f32> = vec![1.0], frames: u64 = 1 });
    state!(of_another_type { frames: i64 = 1, sums: Vec<f32> = vec![1.0] });
    state!(of_other_elements { frames: u64 = 1, sums: Vec<f64> = vec![1.0] });

    #[test]
    fn another_layout_has_another_fingerprint_and_other_values_have_not() {
        assert_eq!(first::fingerprint(), values_differ::fingerprint());
        for other in [grown::fingerprint, renamed::fingerprint, swapped::fingerprint] {
            assert_ne!(first::fingerprint(), other());
        }
        for other in [of_another_type::fingerprint, of_other_elements::fingerprint] {
            assert_ne!(first::fingerprint(), other());
        }
        assert_ne!(fingerprint(&[0u8; 8]), fingerprint(&[0u8; 9]));
    }
}

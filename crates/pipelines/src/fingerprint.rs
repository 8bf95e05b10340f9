//! Fingerprint of a state's layout: names and types of its fields, without their values.
//!
//! **Problem.** A saved state is bytes without names. A stage whose state has other fields, and whose version was
//! forgotten, would read them as something else. **Method.** The state before the first frame is serialized into a hash
//! of what is there: names of types and fields, kinds of values, lengths of tuples. **Bounds.** What the state
//! before the first frame does not show is not seen: of an option its content counts, of an enum the present variant,
//! of a list the first element. Each process makes that state anew, and hashes its maps and sets with another seed, so
//! any of their elements may come first, and a set is a list here. Hence variants, contents of options and lists do not
//! count within a list, and elements of a map nowhere.

use std::fmt::Display;

use punctual_units::{fnv1a, fnv1a_from};
use serde::Serialize;
use serde::ser::{self, Serializer};

/// Elements of a tuple or an array that count.
const ELEMENTS_MAX: usize = 32;

/// The fingerprint of a value's layout.
pub(crate) fn fingerprint(value: &impl Serialize) -> u32 {
    let mut hash = Hash {
        value: fnv1a([]),
        in_list: false,
    };
    // A value that cannot be serialized is refused when it is saved.
    let _ = value.serialize(&mut hash);
    (hash.value ^ hash.value >> 32) as u32
}

struct Hash {
    value: u64,
    /// Whether elements of a list are added, of which only that counts which all have in common.
    in_list: bool,
}

impl Hash {
    fn add(&mut self, text: &str) {
        self.value = fnv1a_from(self.value, text.bytes().chain([0]));
    }

    fn kind(&mut self, text: &str) -> Result<(), Stop> {
        self.add(text);
        Ok(())
    }

    fn parts(&mut self, kind: &str, name: &str, count_max: usize) -> Result<Parts<'_>, Stop> {
        self.add(kind);
        self.add(name);
        Ok(Parts {
            in_list: self.in_list,
            hash: self,
            left: count_max,
        })
    }

    /// Adds the present variant of the enum `name`; within a list only the enum.
    fn variant(&mut self, name: &str, variant: &str) -> Result<Parts<'_>, Stop> {
        let (variant, count_max) = match self.in_list {
            true => ("", 0),
            false => (variant, usize::MAX),
        };
        self.add(name);
        self.parts("variant", variant, count_max)
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
    /// Whether this value is within a list.
    in_list: bool,
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

    fn finish(self) -> Result<(), Stop> {
        self.hash.in_list = self.in_list;
        self.hash.kind("end")
    }
}

/// Implements the parts of a value, with their names if they have some, and the keys of a map as parts of their own.
macro_rules! parts {
    ($($of:ident $([$key:ident])? $method:ident $($name:ident)?),*) => {$(
        impl ser::$of for Parts<'_> {
            type Ok = ();
            type Error = Stop;

            $(fn $key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Stop> {
                self.part("", key)
            })?

            fn $method<T: Serialize + ?Sized>(&mut self, $($name: &'static str,)? value: &T) -> Result<(), Stop> {
                self.part([$($name,)? ""][0], value)
            }

            fn end(self) -> Result<(), Stop> {
                self.finish()
            }
        }
    )*};
}

parts!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
    SerializeMap [serialize_key] serialize_value,
    SerializeStruct serialize_field name,
    SerializeStructVariant serialize_field name
);

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
        match self.in_list {
            true => Ok(()),
            false => value.serialize(self),
        }
    }

    fn serialize_unit(self) -> Result<(), Stop> {
        self.kind("unit")
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<(), Stop> {
        self.kind(name)
    }

    fn serialize_unit_variant(self, name: &'static str, _: u32, variant: &'static str) -> Result<(), Stop> {
        self.variant(name, variant)?.finish()
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
        let mut parts = self.variant(name, variant)?;
        parts.part("", value)?;
        parts.finish()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'h>, Stop> {
        let count_max = usize::from(!self.in_list);
        let parts = self.parts("list", "", count_max)?;
        parts.hash.in_list = true;
        Ok(parts)
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
        self.variant(name, variant)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'h>, Stop> {
        self.parts("map", "", 0)
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
        self.variant(name, variant)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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

    #[derive(Clone, serde::Serialize)]
    enum Mode {
        Off,
        On(u8),
        Sets(u8, u64),
        Fades { over: f64 },
    }

    /// Each process has another order of the elements of its maps and sets.
    #[test]
    fn the_order_of_elements_does_not_count() {
        let modes = [Mode::Off, Mode::On(1), Mode::Sets(2, 3), Mode::Fades { over: 0.5 }];
        let same = |prints: Vec<u32>| assert!(prints.windows(2).all(|two| two[0] == two[1]), "{prints:?}");
        // The order of such a map is that of its keys.
        let maps = modes.clone().map(|mode| BTreeMap::from([(1, mode), (2, Mode::Off)]));
        same(maps.iter().map(fingerprint).collect());
        // A set is serialized as a list.
        let full = modes.into_iter().zip(maps);
        let full = full.map(|(mode, map)| (Some(mode.clone()), mode.clone(), map, vec![mode]));
        let mut list: Vec<_> = full.collect();
        list.push((None, Mode::Off, BTreeMap::new(), Vec::new()));
        let rotated = (0..list.len()).map(|_| {
            list.rotate_left(1);
            fingerprint(&list)
        });
        same(rotated.collect());
    }

    #[test]
    fn what_follows_a_list_counts_in_full() {
        let after = |mode| fingerprint(&(vec![Mode::Off], mode));
        assert_ne!(after(Mode::On(1)), after(Mode::Off));
        assert_eq!(after(Mode::On(1)), after(Mode::On(2)));
    }
}

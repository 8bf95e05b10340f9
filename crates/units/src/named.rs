//! A macro for enums of named things, so that each name stands beside its variant.

/// Declares an enum whose variants have a name each, the constants `ALL` and `NAMED`, and the function that returns the
/// name.
///
/// ```
/// punctual_units::named! {
///     /// A side of the road.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Side by name {
///         Left = "left",
///         /// The one on which most countries drive.
///         Right = "right",
///     }
/// }
/// assert_eq!(Side::ALL, [Side::Left, Side::Right]);
/// assert_eq!(Side::Right.name(), "right");
/// assert_eq!(Side::NAMED[1], ("right", Side::Right));
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $type:ident by $function:ident {
            $($(#[$of_variant:meta])* $variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $type {
            $($(#[$of_variant])* $variant,)+
        }

        impl $type {
            /// Every variant, in the order of the declaration.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            /// Every variant behind its name, in the order of the declaration.
            pub const NAMED: [(&'static str, $type); Self::ALL.len()] = [$(($name, $type::$variant)),+];

            /// The variant's name, as declared beside it.
            pub const fn $function(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                }
            }
        }
    };
}

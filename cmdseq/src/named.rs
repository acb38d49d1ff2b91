//! Enums whose values have names: formatted as their name, and parsed from it.

/// An enum with `ALL`, `name()` and `Display`.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident $(= $code:literal)?, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$item_doc])* $item $(= $code)?,)*
        }

        impl $name {
            /// All values that this version defines.
            pub const ALL: &[$name] = &[$($name::$item,)*];

            /// Returns its name in programs, on the command line and in messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$item => $text,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

/// A [`named`] enum with `meaning()`: the documentation of each value.
macro_rules! explained {
    (
        $(#[$doc:meta])* $name:ident
        { $($(#[doc = $item_doc:literal])* $item:ident $(= $code:literal)?, $text:literal;)* }
    ) => {
        $crate::named::named! {
            $(#[$doc])*
            $name { $($(#[doc = $item_doc])* $item $(= $code)?, $text;)* }
        }

        impl $name {
            /// Returns its description, one sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $($name::$item => concat!($($item_doc),*).trim_ascii(),)*
                }
            }
        }
    };
}

/// An [`explained`] enum whose values have codes, each with a bit in a capability register of a card.
macro_rules! coded {
    (
        $(#[$doc:meta])* $name:ident in $bits:ident
        { $($(#[doc = $item_doc:literal])* $item:ident = $code:literal, $text:literal;)* }
    ) => {
        $crate::named::explained! {
            $(#[$doc])*
            #[repr(u8)]
            $name { $($(#[doc = $item_doc])* $item = $code, $text;)* }
        }

        impl $name {
            /// Returns the value with this code; 0 is none.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some($name::$item),)*
                    _ => None,
                }
            }

            /// Returns its bit in the capability registers of a card.
            pub const fn bit(self) -> $bits {
                1 << self as u8
            }

            /// Returns the values whose bits are set.
            pub fn in_bits(bits: $bits) -> impl Iterator<Item = Self> {
                $name::ALL.iter().copied().filter(move |one| bits & one.bit() != 0)
            }
        }
    };
}

/// `FromStr` of a [`named`] enum, and the error of unknown names.
macro_rules! parsed {
    ($name:ident($what:literal, $error:ident)) => {
        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(name: &str) -> Result<Self, $error> {
                $name::ALL.iter().copied().find(|one| one.name() == name).ok_or_else(|| $error(name.into()))
            }
        }

        #[doc = concat!("Unknown ", $what, ".")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error("unknown {} {:?} (available: {})", $what, .0, $name::ALL.iter().map(|one| one.name()).collect::<Vec<_>>().join(", "))]
        pub struct $error(pub String);
    };
}

pub(crate) use {coded, explained, named, parsed};

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

pub(crate) use {named, parsed};

//! Enums with names: formatted as their name, and parsed from it.

/// `Display` and `FromStr` of an enum with `ALL` and `name()`, and the error of unknown names.
macro_rules! by_name {
    ($name:ident($what:literal, $error:ident) { $($text:literal),* }) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(name: &str) -> Result<Self, $error> {
                $name::ALL.iter().copied().find(|one| one.name() == name).ok_or_else(|| $error(name.into()))
            }
        }

        #[doc = concat!("Unknown ", $what, ".")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error("unknown {what} {name:?} (available: {names})", what = $what, name = .0, names = [$($text),*].join(", "))]
        pub struct $error(pub String);
    };
}

pub(crate) use by_name;

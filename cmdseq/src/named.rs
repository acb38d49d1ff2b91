//! What can be named in text: shown by its name, and found by it.

/// `Display` and `FromStr` of an enum that has `ALL` and `name()`, and the error that lists the names there are.
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

        #[doc = concat!("There is no ", $what, " of this name.")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error("there is no {what} {name:?}; there are {names}", what = $what, name = .0, names = [$($text),*].join(", "))]
        pub struct $error(pub String);
    };
}

pub(crate) use by_name;

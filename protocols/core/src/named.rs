//! Closed sets of values with names that people write: methods, versions, transports.

/// A value of a closed set in which each has a name. [`named!`](crate::named) declares a set.
pub trait NamedValue: Copy + Eq + 'static {
    /// The kind of value, for messages: `a version of TLS`.
    const WHAT: &'static str;
    /// All values in the order of their declaration.
    const ALL: &'static [Self];
    /// Returns the name as files, arguments, logs and metrics write it.
    fn name(self) -> &'static str;
    /// Returns a sentence that describes the value.
    fn description(self) -> &'static str;
}

/// Declares an enum whose values have names. One list yields `ALL`, `name`, `from_name`, `Display` and [`NamedValue`].
///
/// ```
/// usher_core::named! {
///     "a colour";
///     /// What a light shows.
///     #[derive(Clone, Copy, PartialEq, Eq, Debug)]
///     pub enum Colour {
///         /// Stop.
///         Red = "red",
///         /// Go.
///         Green = "green",
///     }
/// }
/// assert_eq!(Colour::from_name("green"), Some(Colour::Green));
/// assert_eq!((Colour::Red.to_string(), Colour::ALL.len()), ("red".into(), 2));
/// ```
#[macro_export]
macro_rules! named {
    ($what:literal; $(#[$meta:meta])* $vis:vis enum $type:ident {
        $($(#[doc = $about:literal])+ $variant:ident = $name:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        $vis enum $type { $($(#[doc = $about])+ $variant),+ }

        impl $type {
            /// All values in the order of their declaration.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];
            /// Returns the name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
            /// Returns the value of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl $crate::NamedValue for $type {
            const WHAT: &'static str = $what;
            const ALL: &'static [Self] = &Self::ALL;
            fn name(self) -> &'static str {
                Self::name(self)
            }
            fn description(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),+).trim_ascii()),+ }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(Self::name(*self))
            }
        }
    };
}

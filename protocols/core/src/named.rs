//! Closed sets of things that people write by a name: methods, versions, transports.

/// One of a closed set, each with a name of its own. [`named!`](crate::named) declares such a set.
pub trait NamedValue: Copy + Eq + 'static {
    /// What each of them is, for messages: `a version of TLS`.
    const WHAT: &'static str;
    /// All of them, in the order of their declaration.
    const ALL: &'static [Self];
    /// As it is written, in files, arguments, logs and metrics.
    fn name(self) -> &'static str;
    /// What it is, in a sentence.
    fn description(self) -> &'static str;
}

/// Declares an enum whose values are written by names: `ALL`, `name`, `from_name`, `Display` and [`NamedValue`] come of one list.
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
            /// All of them, in the order of their declaration.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];
            /// As it is written.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
            /// The one that is written so.
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

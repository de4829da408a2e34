//! Kinds of labelled work, each declared once beside its machine. Processor costs of studies, measured profiles and
//! documentation read these declarations.

use core::fmt;

/// A kind of work: its name, its unit and its meaning. Only [`work_labels!`](crate::work_labels) creates one, so every
/// kind is declared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkLabel(&'static [&'static str; 3]);

impl WorkLabel {
    #[doc(hidden)]
    pub const fn from_declaration(name_unit_about: &'static [&'static str; 3]) -> Self {
        Self(name_unit_about)
    }
    /// Returns the name, `protocol.action`: `radius.request`, `tls.sign`.
    pub const fn name(self) -> &'static str {
        self.0[0]
    }
    /// Returns the unit that is counted.
    pub const fn unit(self) -> &'static str {
        self.0[1]
    }
    /// Returns a sentence that describes the work.
    pub const fn description(self) -> &'static str {
        self.0[2]
    }
}

impl fmt::Display for WorkLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for WorkLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Declares the kinds of work of a crate's machines, each with its meaning, name and unit, and `WORK`, the list of all.
///
/// ```
/// usher_core::work_labels! {
///     /// A request sent or received.
///     REQUEST = "radius.request" per "message";
/// }
/// assert_eq!((REQUEST.name(), REQUEST.unit()), ("radius.request", "message"));
/// assert_eq!((REQUEST.description(), WORK), ("A request sent or received.", &[REQUEST][..]));
/// ```
#[macro_export]
macro_rules! work_labels {
    ($($(#[doc = $about:literal])+ $label:ident = $name:literal per $unit:literal;)+) => {
        $(
            $(#[doc = $about])+
            pub const $label: $crate::WorkLabel =
                $crate::WorkLabel::from_declaration(&[$name, $unit, concat!($($about),+).trim_ascii()]);
        )+
        /// All kinds of work that are declared here.
        pub const WORK: &[$crate::WorkLabel] = &[$($label),+];
    };
}

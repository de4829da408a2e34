//! Kinds of labelled work, each declared once beside the machine that does it: what studies charge a processor for,
//! what profiles measure and what documentation lists is read from these declarations.

use core::fmt;

/// A kind of work: its name, what one unit is, and what it means. Made by [`work_labels!`](crate::work_labels) alone, so
/// that nothing can be emitted that is not declared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkLabel(&'static [&'static str; 3]);

impl WorkLabel {
    #[doc(hidden)]
    pub const fn from_declaration(name_unit_about: &'static [&'static str; 3]) -> Self {
        Self(name_unit_about)
    }
    /// Its name, `protocol.action`: `radius.request`, `tls.sign`.
    pub const fn name(self) -> &'static str {
        self.0[0]
    }
    /// What is counted: one unit is one of these.
    pub const fn unit(self) -> &'static str {
        self.0[1]
    }
    /// What is done, as a sentence.
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

/// Declares the kinds of work that a crate's machines do, each with its meaning, its name and what one unit is, and
/// `WORK`, the list of all of them.
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

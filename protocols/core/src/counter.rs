//! Counters declared once and readable by name: drops by kind, messages, retransmissions.

/// Declares a struct of `u64` counters, with their names and descriptions. Logs, metrics, result rows and documentation
/// derive from this declaration.
///
/// ```
/// usher_core::counters! {
///     /// What a server dropped.
///     pub struct Drops {
///         /// Shorter than its header says.
///         truncated,
///         /// From nobody we know.
///         unknown_client,
///     }
/// }
/// let mut d = Drops::default();
/// d.truncated += 1;
/// assert_eq!(d.iter().collect::<Vec<_>>(), [("truncated", 1), ("unknown_client", 0)]);
/// assert_eq!(Drops::DECLARED[0], ("truncated", "Shorter than its header says."));
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[doc = $about:literal])+ $field:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        $vis struct $name { $($(#[doc = $about])+ pub $field: u64,)* }
        impl $name {
            /// The name and description of each counter, in the order of their declaration.
            pub const DECLARED: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($about),+).trim_ascii())),*];
            /// Each counter with its name, in the order of their declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
            /// Adds another set of counts to this one.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
            /// The sum of all counters.
            pub fn total(&self) -> u64 {
                self.iter().map(|(_, n)| n).sum()
            }
        }
    };
}

//! State machines as the tables and diagrams of their standards. One notation yields the step function, the rows as
//! data, a coverage test and a picture.
//!
//! [`automaton!`](crate::automaton!) takes two forms:
//!
//! - A *table* handles events: `EVENT if CONDITION => [ACTIONS] NEXT`.
//! - A *diagram* has boxes, with actions on entry, and arrows that are tried from the top: `CONDITION => NEXT`. A last
//!   `_ => NEXT` is the "else" or an unconditional transition.
//!
//! Each state has a block. The block names the events without a row, with the reason: `! ignored`, `! never`,
//! `! waits`, `! ends`.
//!
//! ```
//! use usher_core::{automaton, names};
//!
//! names! {
//!     /// Where the door stands.
//!     pub State { Open, Shut, Locked = "shut and locked", }
//! }
//! names! {
//!     /// What happens to it.
//!     pub Event { Push, Turn, }
//! }
//! names! {
//!     /// What it asks.
//!     pub Guard { OurKey = "the key is ours", }
//! }
//! names! {
//!     /// What it does.
//!     pub Action { Swing, Creak, Click, }
//! }
//! automaton! {
//!     /// A door.
//!     pub Door("door", "carpenter's rules, 3"): State from Open, on Event if Guard, do Action;
//!     Open {
//!         Push => [Swing, Creak] Shut;
//!         ! ignored [Turn]: "the key turns in the air";
//!     }
//!     Shut {
//!         Push => [Swing] Open;
//!         Turn if OurKey => [Click] Locked;
//!         ! ignored [Turn]: "a key that does not fit does not turn";
//!     }
//!     Locked {
//!         Turn if OurKey => [Click] Shut;
//!         ! ignored [Turn]: "a key that does not fit does not turn";
//!         ! never [Push]: "nobody tries";
//!     }
//! }
//! let row = Door::step(State::Open, Event::Push, |_| false).unwrap();
//! assert_eq!((row.actions, row.to), (&[Action::Swing, Action::Creak][..], State::Shut));
//! assert!(Door::step(State::Shut, Event::Turn, |_| false).is_none());
//! let lines: Vec<_> = Door::DIAGRAM.lines.iter().map(ToString::to_string).collect();
//! assert_eq!(lines[2], "Shut; Turn & the key is ours; Click; shut and locked");
//! ```
//!
//! The step function is a `match` that the compiler checks, with the conditions as its guards. So these mistakes do not
//! compile. A pair of state and event that the table leaves out:
//! ```compile_fail
//! # usher_core::names! { pub State { Open, Shut, } }
//! # usher_core::names! { pub Event { Push, Pull, } }
//! # usher_core::names! { pub Action { Swing, } }
//! usher_core::automaton! { pub Door("door", "none"): State from Open, on Event, do Action;
//!     Open { Push => [Swing] Shut; ! ignored [Pull]: "it opens inwards"; }
//!     Shut { Pull => [Swing] Open; }
//! }
//! ```
//! A condition without an "else":
//! ```compile_fail
//! # usher_core::names! { pub State { Open, Shut, } }
//! # usher_core::names! { pub Guard { Windy, } }
//! usher_core::automaton! { pub Door("door", "none"): State from Open, when Guard;
//!     Open { Windy => Shut; }
//!     Shut { ! ends: "for good"; }
//! }
//! ```
//! An undeclared state, event, condition or action:
//! ```compile_fail
//! # usher_core::names! { pub State { Open, Shut, } }
//! # usher_core::names! { pub Guard { Windy, } }
//! usher_core::automaton! { pub Door("door", "none"): State from Open, when Guard;
//!     Open { Windy => Ajar; ! waits: "for wind"; }
//!     Shut { ! ends: "for good"; }
//! }
//! ```
//! A row that appears twice, or after a row that always matches:
//! ```compile_fail
//! # usher_core::names! { pub State { Open, Shut, } }
//! # usher_core::names! { pub Guard { Windy, } }
//! usher_core::automaton! { pub Door("door", "none"): State from Open, when Guard;
//!     Open { Windy => Shut; Windy => Open; ! waits: "for wind"; }
//!     Shut { ! ends: "for good"; }
//! }
//! ```
//! A gap where a row exists:
//! ```compile_fail
//! # usher_core::names! { pub State { Open, Shut, } }
//! # usher_core::names! { pub Guard { Windy, } }
//! usher_core::automaton! { pub Door("door", "none"): State from Open, when Guard;
//!     Open { _ => Shut; ! waits: "for wind"; }
//!     Shut { ! ends: "for good"; }
//! }
//! ```
//! A state that no row leads to:
//! ```compile_fail
//! # usher_core::names! { pub State { Open, Shut, } }
//! # usher_core::names! { pub Guard { Windy, } }
//! usher_core::automaton! { pub Door("door", "none"): State from Open, when Guard;
//!     Open { Windy => Open; ! waits: "for wind"; }
//!     Shut { ! ends: "for good"; }
//! }
//! ```
//! In the tests of its crate a table has `cover`. It runs scenarios, and fails if they miss a row or meet an event that
//! the table declares impossible.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A row: in a state, on an event, if a condition holds, do these actions and enter the next state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransitionRow<S: 'static, E: 'static, G: 'static, A: 'static> {
    /// The state.
    pub from: S,
    /// The event ([`Nil`] in a diagram).
    pub on: E,
    /// The condition; `None`: always.
    pub when: Option<G>,
    /// The actions, in order.
    pub actions: &'static [A],
    /// The next state.
    pub to: S,
}

/// The types of an automaton.
pub trait Automaton {
    /// The states.
    type State: Copy + 'static;
    /// The events.
    type Event: Copy + 'static;
    /// The conditions of its rows.
    type Guard: Copy + 'static;
    /// The actions.
    type Action: Copy + 'static;
}

/// A row of this automaton.
pub type AutomatonRow<T> = TransitionRow<
    <T as Automaton>::State,
    <T as Automaton>::Event,
    <T as Automaton>::Guard,
    <T as Automaton>::Action,
>;

/// An automaton in the words of its standard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutomatonDiagram {
    /// The name: lower-case letters and hyphens.
    pub name: &'static str,
    /// The standard and section that define it.
    pub source: &'static str,
    /// The initial state.
    pub start: &'static str,
    /// The states in the order of their blocks, with their entry actions.
    pub boxes: &'static [(&'static str, &'static [&'static str])],
    /// The rows.
    pub lines: &'static [DiagramTransition],
    /// The state and event pairs without a row.
    pub gaps: &'static [UnhandledEventSet],
}

/// A row in the words of its standard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiagramTransition {
    /// The state.
    pub from: &'static str,
    /// The event; empty in a diagram.
    pub on: &'static str,
    /// The condition; empty: always.
    pub when: &'static str,
    /// The actions, in order.
    pub actions: &'static [&'static str],
    /// The next state.
    pub to: &'static str,
}

/// Events that a state does not handle, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnhandledEventSet {
    /// The kind of gap.
    pub kind: GapKind,
    /// The state.
    pub from: &'static str,
    /// The events; the name of [`Nil`] in a diagram.
    pub on: &'static [&'static str],
    /// The reason.
    pub why: &'static str,
}

crate::names! {
    /// How a gap is meant.
    pub GapKind {
        /// It may happen and changes nothing.
        Ignored = "ignored",
        /// It cannot happen; if it does, it changes nothing.
        Never = "cannot happen",
        /// The state is left when one of its conditions holds.
        Waits = "waits",
        /// The state is the last.
        Ends = "ends",
    }
}

crate::names! {
    /// The event, condition or action of an automaton that has none.
    pub Nil {
        /// The only one.
        Nil = "",
    }
}

impl DiagramTransition {
    /// Returns event and condition as a table of an RFC writes them: `Timer expires & Pending`.
    #[must_use]
    pub fn transition_trigger_text(&self) -> String {
        let between = if self.on.is_empty() || self.when.is_empty() { "" } else { " & " };
        [self.on, between, self.when].concat()
    }
}

impl fmt::Display for DiagramTransition {
    /// `state; event & condition; action, action; next`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; {}; {}; {}",
            self.from,
            self.transition_trigger_text(),
            self.actions.join(", "),
            self.to
        )
    }
}

impl fmt::Display for AutomatonDiagram {
    /// Writes the rows, then the gaps, one per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}), from {}", self.name, self.source, self.start)?;
        for (state, entry) in self.boxes.iter().filter(|(_, entry)| !entry.is_empty()) {
            writeln!(f, "  on entering {state}: {}", entry.join(", "))?;
        }
        for line in self.lines {
            writeln!(f, "  {line}")?;
        }
        for gap in self.gaps {
            let events = gap.on.join(", ");
            let colon = if events.is_empty() { "" } else { ": " };
            writeln!(f, "  {}; {}{colon}{events} ({})", gap.from, gap.kind.name(), gap.why)?;
        }
        Ok(())
    }
}

impl AutomatonDiagram {
    /// Returns the picture for Graphviz.
    #[must_use]
    pub const fn to_dot(&self) -> DotGraph<'_> {
        DotGraph(self)
    }
}

/// A diagram that prints as a graph in the language of Graphviz.
#[derive(Clone, Copy, Debug)]
pub struct DotGraph<'a>(&'a AutomatonDiagram);

impl fmt::Display for DotGraph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(diagram) = self;
        writeln!(f, "digraph {} {{", format_quoted_label(&[diagram.name]))?;
        writeln!(f, "  label={};", format_quoted_label(&[diagram.name, diagram.source]))?;
        writeln!(f, "  node [shape=box];\n  \"\" [shape=point];")?;
        for (state, entry) in diagram.boxes {
            let text = [&[*state][..], entry].concat();
            writeln!(f, "  {} [label={}];", format_quoted_label(&[state]), format_quoted_label(&text))?;
        }
        writeln!(f, "  \"\" -> {};", format_quoted_label(&[diagram.start]))?;
        for line in diagram.lines {
            let cause = match line.transition_trigger_text() {
                cause if !cause.is_empty() => cause,
                _ if diagram.lines.iter().filter(|other| other.from == line.from).count() > 1 => {
                    "else".to_string()
                }
                _ => "UCT".to_string(),
            };
            let text = [&[cause.as_str()][..], line.actions].concat();
            writeln!(
                f,
                "  {} -> {} [label={}];",
                format_quoted_label(&[line.from]),
                format_quoted_label(&[line.to]),
                format_quoted_label(&text)
            )?;
        }
        f.write_str("}\n")
    }
}

/// Formats lines as a quoted string of Graphviz.
fn format_quoted_label(lines: &[&str]) -> String {
    let lines: Vec<String> =
        lines.iter().map(|line| line.replace('\\', "\\\\").replace('"', "\\\"")).collect();
    ["\"", &lines.join("\\n"), "\""].concat()
}

/// The rows that scenarios took.
#[derive(Debug, Default)]
pub struct TransitionCoverage {
    taken_rows: Vec<usize>,
    met: Vec<String>,
}

impl TransitionCoverage {
    /// Records a step from this state on this event, by the row of this number or by none.
    pub fn record_automaton_step(
        &mut self,
        diagram: &AutomatonDiagram,
        row: Option<usize>,
        from: &str,
        on: &str,
    ) {
        let impossible =
            |gap: &&UnhandledEventSet| gap.kind == GapKind::Never && gap.from == from && gap.on.contains(&on);
        match row {
            Some(row) => self.taken_rows.push(row),
            None if diagram.gaps.iter().any(|gap| impossible(&gap)) => {
                self.met.push([from, "; ", on].concat())
            }
            None => {}
        }
    }

    /// Passes if the scenarios took every row and met nothing that the table declares impossible.
    ///
    /// # Panics
    ///
    /// Otherwise, with a list of the failures.
    pub fn assert_full_transition_coverage(&self, diagram: &AutomatonDiagram) {
        let untaken: Vec<String> = (diagram.lines.iter().enumerate())
            .filter(|(number, _)| !self.taken_rows.contains(number))
            .map(|(_, line)| line.to_string())
            .collect();
        assert!(untaken.is_empty(), "{}: rows that no scenario took: {untaken:#?}", diagram.name);
        assert!(self.met.is_empty(), "{}: happened and cannot: {:#?}", diagram.name, self.met);
    }
}

/// Declares an enum whose values have names in their standard, for use in [`automaton!`](crate::automaton!). The
/// default name is the identifier. If the first variant wraps another such enum, it takes the names of that enum.
#[macro_export]
macro_rules! names {
    (@name $variant:ident) => { stringify!($variant) };
    (@name $variant:ident $text:literal) => { $text };
    ($(#[$meta:meta])* $vis:vis $name:ident { $($(#[$doc:meta])* $variant:ident $(= $text:literal)?,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        $vis enum $name { $($(#[$doc])* $variant,)* }
        impl $name {
            /// All values in the order of their declaration.
            $vis const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// Returns the name in the standard.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$variant => $crate::names!(@name $variant $($text)?),)* }
            }
        }
        const _: () = assert!(!$name::ALL.is_empty());
    };
    (
        $(#[$meta:meta])* $vis:vis $name:ident {
            $(#[$of_doc:meta])* $of:ident($inner:ty),
            $($(#[$doc:meta])* $variant:ident $(= $text:literal)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        $vis enum $name { $(#[$of_doc])* $of($inner), $($(#[$doc])* $variant,)* }
        impl $name {
            /// Returns the name in the standard.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self {
                    Self::$of(inner) => inner.name(),
                    $(Self::$variant => $crate::names!(@name $variant $($text)?),)*
                }
            }
        }
    };
}

/// Declares an automaton; see the [module](mod@crate::automaton).
#[macro_export]
macro_rules! automaton {
    // An automaton as a table: each row is the reaction of a state to an event.
    (
        $(#[$meta:meta])*
        $vis:vis $table:ident($name:literal, $source:literal):
            $state:ident from $start:ident, on $event:ident $(if $guard:ident)?, do $action:ident;
        $($from:ident {
            $($on:ident $(if $when:ident)? => [$($act:ident $(($($arg:tt)*))?),*] $to:ident;)*
            $(! $gap:ident [$($none:ident),+]: $why:literal;)*
        })*
    ) => {
        $crate::automaton! { @build
            [$(#[$meta])*] [$vis] $table $name $source $state $start $event [$($guard)? Nil] $action
            $($from [] {
                $($on ($($when)?) [$(($act $(($($arg)*))?))*] $to;)*
            } {
                $($gap [$($none)+] $why;)*
            })*
        }
        $crate::automaton! { @step [$vis] $table $state $event [$($guard)?] }
    };
    // An automaton as a diagram: boxes are states, and arrows are transitions under conditions.
    (
        $(#[$meta:meta])*
        $vis:vis $table:ident($name:literal, $source:literal):
            $state:ident from $start:ident, when $guard:ident $(, do $action:ident)?;
        $($from:ident $([$($entry:ident),*])? {
            $($when:ident => $to:ident;)*
            $(_ => $else:ident;)?
            $(! $gap:ident: $why:literal;)?
        })*
    ) => {
        $crate::automaton! { @build
            [$(#[$meta])*] [$vis] $table $name $source $state $start Nil [$guard] [$($action)? Nil]
            $($from [$($($entry)*)?] {
                $(Nil ($when) [] $to;)*
                $(Nil () [] $else;)?
            } {
                $($gap [Nil] $why;)?
            })*
        }
        impl $table {
            /// Returns the arrow to take from this state now.
            #[inline]
            #[must_use]
            $vis fn step(
                state: $state,
                holds: impl Fn($guard) -> bool,
            ) -> Option<&'static $crate::automaton::AutomatonRow<Self>> {
                Self::find_and_record_row(state, $crate::automaton::Nil::Nil, holds)
            }
        }
        $crate::automaton! { @entry [$vis] $table $state [$($action)?] $($from [$($($entry),*)?])* }
    };
    (@entry [$vis:vis] $table:ident $state:ident [] $($from:ident [])*) => {};
    (@entry [$vis:vis] $table:ident $state:ident [$action:ident] $($from:ident [$($entry:ident),*])*) => {
        impl $table {
            /// Returns the entry actions of a state.
            #[inline]
            #[must_use]
            $vis const fn entry(state: $state) -> &'static [$action] {
                match state { $($state::$from => &[$($action::$entry),*],)* }
            }
        }
    };
    (@step [$vis:vis] $table:ident $state:ident $event:ident []) => {
        impl $table {
            /// Returns the row for this state and event; `None`: nothing changes.
            #[inline]
            #[must_use]
            $vis fn step(state: $state, on: $event) -> Option<&'static $crate::automaton::AutomatonRow<Self>> {
                Self::find_and_record_row(state, on, |_| true)
            }
        }
    };
    (@step [$vis:vis] $table:ident $state:ident $event:ident [$guard:ident]) => {
        impl $table {
            /// Returns the row for this state and event under the current conditions; `None`: nothing changes.
            #[inline]
            #[must_use]
            $vis fn step(
                state: $state,
                on: $event,
                holds: impl Fn($guard) -> bool,
            ) -> Option<&'static $crate::automaton::AutomatonRow<Self>> {
                Self::find_and_record_row(state, on, holds)
            }
        }
    };
    (@kind ignored) => { $crate::automaton::GapKind::Ignored };
    (@kind never) => { $crate::automaton::GapKind::Never };
    (@kind waits) => { $crate::automaton::GapKind::Waits };
    (@kind ends) => { $crate::automaton::GapKind::Ends };
    (@when $guard:ident) => { None };
    (@when $guard:ident $when:ident) => { Some($guard::$when) };
    (@words $guard:ident) => { "" };
    (@words $guard:ident $when:ident) => { $guard::$when.name() };
    (@build $meta:tt $vis:tt $table:ident $name:literal $source:literal $state:ident $start:ident $event:ident
        $guard:tt [$action:ident $($nil:ident)?] $($blocks:tt)*
    ) => {
        $crate::automaton! { @build
            $meta $vis $table $name $source $state $start $event $guard $action $($blocks)*
        }
    };
    (@build [$($meta:tt)*] [$vis:vis] $table:ident $name:literal $source:literal $state:ident $start:ident
        $event:ident [$guard:ident $($nil:ident)?] $action:ident
        $($from:ident [$($entry:ident)*] {
            $($on:ident ($($when:ident)?) [$(($act:ident $($arg:tt)*))*] $to:ident;)*
        } {
            $($gap:ident [$($none:ident)*] $why:literal;)*
        })*
    ) => {
        $($meta)*
        #[derive(Clone, Copy, Debug)]
        $vis struct $table;

        const _: () = {
            use $crate::automaton::*;

            impl Automaton for $table {
                type State = $state;
                type Event = $event;
                type Guard = $guard;
                type Action = $action;
            }

            impl $table {
                /// The rows, in the order of the standard.
                $vis const ROWS: &'static [TransitionRow<$state, $event, $guard, $action>] = &[$($(TransitionRow {
                    from: $state::$from,
                    on: $event::$on,
                    when: $crate::automaton!(@when $guard $($when)?),
                    actions: &[$($action::$act $($arg)*),*],
                    to: $state::$to,
                },)*)*];
                /// The diagram in the words of the standard.
                $vis const DIAGRAM: AutomatonDiagram = AutomatonDiagram {
                    name: $name,
                    source: $source,
                    start: $state::$start.name(),
                    boxes: &[$(($state::$from.name(), &[$($action::$entry.name()),*]),)*],
                    lines: &[$($(DiagramTransition {
                        from: $state::$from.name(),
                        on: $event::$on.name(),
                        when: $crate::automaton!(@words $guard $($when)?),
                        actions: &[$(($action::$act $($arg)*).name()),*],
                        to: $state::$to.name(),
                    },)*)*],
                    gaps: &[$($(UnhandledEventSet {
                        kind: $crate::automaton!(@kind $gap),
                        from: $state::$from.name(),
                        on: &[$($event::$none.name()),*],
                        why: $why,
                    },)*)*],
                };
                const GAPS: &'static [($state, $event)] = &[$($($(($state::$from, $event::$none),)*)*)*];

                /// Returns the row that a step would take, without taking it.
                #[inline]
                $vis fn find(
                    state: $state,
                    on: $event,
                    holds: impl Fn($guard) -> bool,
                ) -> Option<&'static TransitionRow<$state, $event, $guard, $action>> {
                    match (state, on) {
                        $(
                            $(($state::$from, $event::$on) $(if holds($guard::$when))? => Some(const {
                                &Self::ROWS[Self::row_index(
                                    $state::$from,
                                    $event::$on,
                                    $crate::automaton!(@when $guard $($when)?),
                                )]
                            }),)*
                            $($(($state::$from, $event::$none))|* => None,)*
                        )*
                    }
                }

                #[inline]
                fn find_and_record_row(
                    state: $state,
                    on: $event,
                    holds: impl Fn($guard) -> bool,
                ) -> Option<&'static TransitionRow<$state, $event, $guard, $action>> {
                    let row = Self::find(state, on, holds);
                    #[cfg(test)]
                    Self::coverage(|coverage| {
                        let place = row.map(|row| Self::row_index(row.from, row.on, row.when));
                        coverage.record_automaton_step(&Self::DIAGRAM, place, state.name(), on.name());
                    });
                    row
                }

                /// Runs scenarios and fails if they miss a row.
                #[cfg(test)]
                $vis fn cover(scenarios: impl FnOnce()) {
                    Self::coverage(|coverage| *coverage = $crate::automaton::TransitionCoverage::default());
                    scenarios();
                    Self::coverage(|coverage| coverage.assert_full_transition_coverage(&Self::DIAGRAM));
                }

                #[cfg(test)]
                fn coverage<R>(with: impl FnOnce(&mut $crate::automaton::TransitionCoverage) -> R) -> R {
                    thread_local! {
                        static COVERAGE: ::core::cell::RefCell<$crate::automaton::TransitionCoverage> =
                            ::core::cell::RefCell::default();
                    }
                    COVERAGE.with(|coverage| with(&mut coverage.borrow_mut()))
                }

                const fn row_matches_trigger(row: &TransitionRow<$state, $event, $guard, $action>, from: $state, on: $event) -> bool {
                    row.from as usize == from as usize && row.on as usize == on as usize
                }
                const fn is_same_condition(one: Option<$guard>, other: Option<$guard>) -> bool {
                    match (one, other) {
                        (Some(one), Some(other)) => one as usize == other as usize,
                        (None, None) => true,
                        _ => false,
                    }
                }
                /// Returns the number of a row.
                const fn row_index(from: $state, on: $event, when: Option<$guard>) -> usize {
                    let mut i = 0;
                    while !(Self::row_matches_trigger(&Self::ROWS[i], from, on) && Self::is_same_condition(Self::ROWS[i].when, when)) {
                        i += 1;
                    }
                    i
                }
                /// True if a row appears once and after no row that always matches.
                const fn is_reachable_row(from: $state, on: $event, when: Option<$guard>) -> bool {
                    let (mut i, mut times) = (0, 0);
                    while i < Self::ROWS.len() {
                        let row = &Self::ROWS[i];
                        if Self::row_matches_trigger(row, from, on) {
                            if Self::is_same_condition(row.when, when) {
                                times += 1;
                            } else if row.when.is_none() && times == 0 {
                                return false;
                            }
                        }
                        i += 1;
                    }
                    times == 1
                }
                /// True if a declared gap appears once and has no row that always matches.
                const fn is_valid_gap(from: $state, on: $event) -> bool {
                    let mut i = 0;
                    while i < Self::ROWS.len() {
                        if Self::row_matches_trigger(&Self::ROWS[i], from, on) && Self::ROWS[i].when.is_none() {
                            return false;
                        }
                        i += 1;
                    }
                    let (mut i, mut times) = (0, 0);
                    while i < Self::GAPS.len() {
                        let (state, event) = Self::GAPS[i];
                        times += (state as usize == from as usize && event as usize == on as usize) as usize;
                        i += 1;
                    }
                    times == 1
                }
                /// True if rows lead to this state from the initial state.
                const fn is_reachable_state(state: $state) -> bool {
                    let mut seen = [false; $state::ALL.len()];
                    seen[$state::$start as usize] = true;
                    let mut rounds = 0;
                    while rounds < seen.len() {
                        let mut i = 0;
                        while i < Self::ROWS.len() {
                            seen[Self::ROWS[i].to as usize] |= seen[Self::ROWS[i].from as usize];
                            i += 1;
                        }
                        rounds += 1;
                    }
                    seen[state as usize]
                }
                /// True if any state handles this event.
                const fn is_answered(on: $event) -> bool {
                    let mut i = 0;
                    while i < Self::ROWS.len() {
                        if Self::ROWS[i].on as usize == on as usize {
                            return true;
                        }
                        i += 1;
                    }
                    false
                }
            }

            $(
                assert!(
                    $table::is_reachable_state($state::$from),
                    concat!("no row leads to ", stringify!($from), " of ", stringify!($table)),
                );
                $(assert!(
                    $table::is_reachable_row($state::$from, $event::$on, $crate::automaton!(@when $guard $($when)?)),
                    concat!(
                        "a row stands twice, or behind one that is always taken: ",
                        stringify!($from), ", ", stringify!($on $($when)? => $to),
                    ),
                );)*
                $($(assert!(
                    $table::is_valid_gap($state::$from, $event::$none),
                    concat!("a row answers it, or it is said twice: ", stringify!($from), ", ", stringify!($none)),
                );)*)*
            )*
            let mut i = 0;
            while i < $event::ALL.len() {
                assert!(
                    $table::is_answered($event::ALL[i]),
                    concat!("an event has no row in any state of ", stringify!($table)),
                );
                i += 1;
            }
        };
    };
}

#[cfg(test)]
mod tests;

//! How the diagrams of RFC 4137 are written here: a table of transitions, read from the top. The first row
//! whose state is the present one and whose condition holds is taken, its target entered, and so on until no
//! row fits.

/// One arrow of a diagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrow<S: 'static, C: 'static> {
    pub(crate) from: S,
    pub(crate) when: C,
    pub(crate) to: S,
}

/// Writes a diagram's arrows as `FROM: CONDITION => TO;` lines.
macro_rules! diagram {
    ($state:ident, $condition:ident; $($from:ident: $when:ident => $to:ident;)*) => {
        &[$($crate::automaton::Arrow {
            from: $state::$from,
            when: $condition::$when,
            to: $state::$to,
        }),*]
    };
}
pub(crate) use diagram;

/// What a diagram runs on: variables that conditions look at and that entering a state changes.
pub(crate) trait Automaton {
    type State: Copy + PartialEq + 'static;
    type Condition: Copy + 'static;
    const DIAGRAM: &'static [Arrow<Self::State, Self::Condition>];

    fn state(&self) -> Self::State;
    fn holds(&self, condition: Self::Condition) -> bool;
    /// Enters a state: does what the diagram writes in its box.
    fn enter(&mut self, state: Self::State);

    /// Takes arrows until none fits.
    fn run(&mut self) {
        while let Some(to) = self.next() {
            self.enter(to);
        }
    }

    fn next(&self) -> Option<Self::State> {
        let here = self.state();
        Self::DIAGRAM.iter().find(|a| a.from == here && self.holds(a.when)).map(|a| a.to)
    }
}

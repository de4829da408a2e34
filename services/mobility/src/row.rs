//! The rows that both controllers are written in.

use crate::step::Step;

/// A row of a controller: in a state, on an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<S: 'static, O: 'static, A: 'static> {
    /// In this state,
    pub from: S,
    /// when this happens,
    pub on: O,
    /// this step is over,
    pub step: Option<Step>,
    /// this is done in this order,
    pub actions: &'static [A],
    /// and this is the state.
    pub to: S,
}

impl<S: PartialEq, O: PartialEq, A> Row<S, O, A> {
    /// The row of a table for an event in a state, if there is one.
    #[must_use]
    pub fn find(rows: &'static [Self], from: S, on: O) -> Option<&'static Self> {
        rows.iter().find(|row| row.from == from && row.on == on)
    }
}

use super::*;

/// The controller as a grid: a line for each state, a column for each event in the order of declaration. An
/// entry has the first four letters of the next state, or a dot without a transition.
const GRID: &str = "
                Quer Comm Trig Gran Refu Fail Comp Forg
    Idle        Inqu Book Chec .    .    .    Idle .
    Inquiring   .    .    .    Offe Idle Idle Idle .
    Offered     Inqu Book .    .    .    .    Idle Idle
    Booking     .    .    .    Book Idle Idle Idle .
    Booked      .    .    .    .    .    .    Idle Idle
    Checking    .    .    .    Aski Idle Idle Idle .
    Asking      .    .    .    Rese Idle Idle Idle .
    Reserving   .    .    .    Tell Idle Idle Idle .
    Telling     .    .    .    Leav Idle Leav Idle .
    Leaving     .    .    .    .    .    .    Idle Idle
";

#[test]
fn every_state_answers_every_event() {
    let lines: Vec<Vec<&str>> =
        GRID.trim().lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), State::ALL.len());
    for (state, line) in State::ALL.iter().zip(&lines) {
        assert_eq!(line[0], format!("{state:?}"));
        assert_eq!(line.len(), 1 + On::ALL.len(), "{state:?}");
        for (on, next) in On::ALL.iter().zip(&line[1..]) {
            let found = PointOfServiceTable::find(*state, *on, |_| true)
                .map(|row| format!("{:?}", row.to)[..4].to_owned());
            assert_eq!(found.as_deref().unwrap_or("."), *next, "{state:?} {on:?}");
        }
    }
}

/// Every state with a pending request handles each of its results. Every other state except the first ends
/// after a time without messages.
#[test]
fn nothing_waits_for_ever() {
    use State::{Asking, Booking, Checking, Inquiring, Reserving, Telling};
    for state in State::ALL {
        let results = [On::Granted, On::Refused, On::Failed]
            .map(|on| PointOfServiceTable::find(*state, on, |_| true).is_some());
        let out = [Inquiring, Booking, Checking, Asking, Reserving, Telling].contains(state);
        assert_eq!(results, [out; 3], "{state:?}");
        let forgotten = PointOfServiceTable::find(*state, On::Forgotten, |_| true).is_some();
        assert_eq!(forgotten, !out && *state != State::Idle, "{state:?}");
        assert!(PointOfServiceTable::find(*state, On::Completed, |_| true).is_some(), "{state:?}");
    }
}

use super::*;

/// The controller as a grid: a line for each state, a column for each event in the order of declaration. An
/// entry has the first four letters of the next state, or a dot without a transition.
const GRID: &str = "
                LeaS LeaN Lost LosK Back Foun NotF Up   Down Gran Refu Fail Unan Aske Told Boun Unbo Retr
    Resting     Scan Repo Sear Ente .    .    .    .    .    .    .    .    .    Surv Ente .    .    .
    Scanning    .    .    Sear Sear .    Quer Wait .    .    .    .    .    .    .    .    .    .    .
    Querying    .    .    .    Ente .    .    .    .    .    Comm Wait Wait Wait .    .    .    .    .
    Committing  .    .    .    Ente .    .    .    .    .    Ente Wait Wait Wait .    .    .    .    .
    Reporting   .    .    Sear Ente .    .    .    .    .    Repo .    Wait .    Surv Ente .    .    .
    Surveying   .    .    Sear Sear .    Answ Wait .    .    Surv .    Surv .    .    Ente .    .    .
    Answered    .    .    .    Ente .    .    .    .    .    Answ .    Answ .    Answ Ente .    .    .
    Waiting     .    .    Sear Ente Rest .    .    .    .    .    .    .    .    Surv Ente .    .    .
    Searching   .    .    Sear Sear .    Ente Sear .    .    .    .    .    .    .    .    .    .    Sear
    Entering    .    .    Ente Ente .    .    .    Redi Ente .    .    .    .    .    .    .    .    Ente
    Redirecting .    .    Redi Redi .    .    .    .    Ente .    .    .    .    .    .    Comp Redi Redi
    Completing  .    .    Comp Comp .    .    .    .    Move Move Move Move Move .    .    .    Comp Comp
    Moved       .    .    Move Move .    .    .    .    .    .    .    .    .    .    .    .    Move Move
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
            let found =
                StationTable::find(*state, *on, |_| true).map(|row| format!("{:?}", row.to)[..4].to_owned());
            assert_eq!(found.as_deref().unwrap_or("."), *next, "{state:?} {on:?}");
        }
    }
}

/// A state handles a loss with and without a known network, unless a scan has always found one before it.
#[test]
fn a_lost_link_is_answered_in_every_state() {
    for state in State::ALL {
        let known = StationTable::find(*state, On::LostKnown, |_| true);
        let unknown = StationTable::find(*state, On::Lost, |_| true);
        let always_known = [State::Querying, State::Committing, State::Answered].contains(state);
        assert!(known.is_some(), "{state:?}");
        assert_eq!(unknown.is_none(), always_known, "{state:?}");
    }
}

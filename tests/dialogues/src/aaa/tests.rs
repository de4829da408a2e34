use super::*;
use crate::Person;

fn code(deed: OperationKind) -> u8 {
    OperationKind::ALL.iter().position(|d| *d == deed).expect("a deed") as u8
}
fn begin(slot: u8, person: Person, method: ProofMethod, how: u8) -> [u8; 4] {
    let method = ProofMethod::ALL.iter().position(|m| *m == method).expect("a method") as u8;
    [code(OperationKind::Begin), slot, person as u8 | method << 4, how]
}
fn deed(deed: OperationKind, slot: u8, how: [u8; 2]) -> [u8; 4] {
    [code(deed), slot, how[0], how[1]]
}
/// A login, its session from beginning to end.
fn honest(person: Person, method: ProofMethod, how: u8) -> Vec<u8> {
    let account = |what| deed(OperationKind::Account, 0, [what, 0]);
    [begin(0, person, method, how), deed(OperationKind::Play, 0, [0, 0]), account(0), account(1), account(2)]
        .concat()
}
fn may_use(person: Person, method: ProofMethod) -> bool {
    match method {
        ProofMethod::Address => person == Person::Printer,
        ProofMethod::Tls => person == Person::Ann,
        _ => person != Person::Printer,
    }
}

#[test]
fn honest_logins_by_each_method_at_each_access_server_end_in_a_session() {
    for person in Person::ALL {
        for method in ProofMethod::ALL.into_iter().filter(|method| may_use(person, *method)) {
            // By their own names, and where a tunnel hides them as nobody.
            for how in 0..8 {
                // Diameter has no request without a proof.
                if method == ProofMethod::Address && how % 4 == 3 {
                    continue;
                }
                let outcome = run(&honest(person, method, how));
                let expected = RunOutcome { accepted: 1, rejected: 0, started: 1 };
                assert_eq!(outcome, Ok(expected), "{person:?} by {method:?}, {how}");
            }
        }
    }
}

#[test]
fn who_claims_to_be_another_is_turned_away() {
    for method in ProofMethod::ALL {
        // Eve says that she is Ann: two persons further on from herself.
        let mut input = honest(Person::Eve, method, 0);
        input[2] |= 2 << 2;
        input.extend(deed(OperationKind::Wait, 0, [2, 0]));
        let outcome = run(&input).unwrap();
        assert_eq!((outcome.accepted, outcome.rejected), (0, 1), "{method:?}");
    }
}

#[test]
fn an_oracle_that_takes_ann_for_eve_finds_a_breach() {
    for method in [ProofMethod::Pap, ProofMethod::Md5, ProofMethod::PeapMsChapV2, ProofMethod::TtlsPap] {
        let found = run_believing(&honest(Person::Ann, method, 0), OracleBelief::Mistaken).unwrap_err();
        assert!(found.0.contains("ann is let in by"), "{found}");
        let of_bob = run_believing(&honest(Person::Bob, method, 0), OracleBelief::Mistaken);
        assert_eq!(of_bob.map(|outcome| outcome.accepted), Ok(1));
    }
}

#[test]
fn ann_has_one_session_and_bob_as_many_as_there_are_ports() {
    for (person, sessions) in [(Person::Ann, 1), (Person::Bob, 3)] {
        let mut input = Vec::new();
        for slot in 0..3 {
            // From one station, from another's, and from none.
            input.extend(begin(slot, person, ProofMethod::Md5, [0, 0x20, 0x30][usize::from(slot)]));
            input.extend(deed(OperationKind::Play, slot, [0, 0]));
            input.extend(deed(OperationKind::Account, slot, [0, 0]));
        }
        assert_eq!(run(&input).map(|outcome| outcome.started), Ok(sessions), "{person:?}");
    }
}

#[test]
fn whatever_the_order_of_operations_nothing_is_breached() {
    for input in crate::inputs(150) {
        run(&input).unwrap_or_else(|breach| panic!("{breach}\n{input:?}"));
    }
}

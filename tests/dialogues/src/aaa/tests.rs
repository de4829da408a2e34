use super::*;
use crate::TestUser;

fn operation_code(deed: OperationKind) -> u8 {
    OperationKind::ALL.iter().position(|d| *d == deed).expect("a deed") as u8
}
fn encode_begin(slot: u8, person: TestUser, method: ProofMethod, how: u8) -> [u8; 4] {
    let method = ProofMethod::ALL.iter().position(|m| *m == method).expect("a method") as u8;
    [operation_code(OperationKind::StartLogin), slot, person as u8 | method << 4, how]
}
fn encode_operation(deed: OperationKind, slot: u8, how: [u8; 2]) -> [u8; 4] {
    [operation_code(deed), slot, how[0], how[1]]
}
/// Encodes a login and its whole session.
fn honest_login(person: TestUser, method: ProofMethod, how: u8) -> Vec<u8> {
    let account = |what| encode_operation(OperationKind::Account, 0, [what, 0]);
    [
        encode_begin(0, person, method, how),
        encode_operation(OperationKind::Play, 0, [0, 0]),
        account(0),
        account(1),
        account(2),
    ]
    .concat()
}
fn may_use(person: TestUser, method: ProofMethod) -> bool {
    match method {
        ProofMethod::Address => person == TestUser::Printer,
        ProofMethod::Tls => person == TestUser::Ann,
        _ => person != TestUser::Printer,
    }
}

#[test]
fn each_method_at_each_access_server_gives_an_honest_login() {
    for person in TestUser::ALL {
        for method in ProofMethod::ALL.into_iter().filter(|method| may_use(person, *method)) {
            // With the user's own name, and with an anonymous outer identity.
            for how in 0..8 {
                // Diameter has no request without a proof.
                if method == ProofMethod::Address && how % 4 == 3 {
                    continue;
                }
                let outcome = run_aaa_input(&honest_login(person, method, how));
                let expected = RunOutcome { accepted: 1, rejected: 0, started: 1 };
                assert_eq!(outcome, Ok(expected), "{person:?} by {method:?}, {how}");
            }
        }
    }
}

#[test]
fn who_claims_to_be_another_is_turned_away() {
    for method in ProofMethod::ALL {
        // Eve claims to be Ann, who is two users further on.
        let mut input = honest_login(TestUser::Eve, method, 0);
        input[2] |= 2 << 2;
        input.extend(encode_operation(OperationKind::PassTime, 0, [2, 0]));
        let outcome = run_aaa_input(&input).unwrap();
        assert_eq!((outcome.accepted, outcome.rejected), (0, 1), "{method:?}");
    }
}

#[test]
fn an_oracle_that_takes_ann_for_eve_finds_a_breach() {
    for method in [ProofMethod::Pap, ProofMethod::Md5, ProofMethod::PeapMsChapV2, ProofMethod::TtlsPap] {
        let found =
            run_believing(&honest_login(TestUser::Ann, method, 0), OracleBelief::Mistaken).unwrap_err();
        assert!(found.0.contains("ann is let in by"), "{found}");
        let of_bob = run_believing(&honest_login(TestUser::Bob, method, 0), OracleBelief::Mistaken);
        assert_eq!(of_bob.map(|outcome| outcome.accepted), Ok(1));
    }
}

#[test]
fn ann_has_one_session_and_bob_as_many_as_there_are_ports() {
    for (person, sessions) in [(TestUser::Ann, 1), (TestUser::Bob, 3)] {
        let mut input = Vec::new();
        for slot in 0..3 {
            // From one station, from another's, and without a station.
            input.extend(encode_begin(slot, person, ProofMethod::Md5, [0, 0x20, 0x30][usize::from(slot)]));
            input.extend(encode_operation(OperationKind::Play, slot, [0, 0]));
            input.extend(encode_operation(OperationKind::Account, slot, [0, 0]));
        }
        assert_eq!(run_aaa_input(&input).map(|outcome| outcome.started), Ok(sessions), "{person:?}");
    }
}

#[test]
fn whatever_the_order_of_operations_nothing_is_breached() {
    for input in crate::random_inputs(150) {
        run_aaa_input(&input).unwrap_or_else(|breach| panic!("{breach}\n{input:?}"));
    }
}

use super::*;
use crate::TestUser;

fn encode_operation(deed: OperationKind, slot: u8, how: [u8; 2]) -> [u8; 4] {
    let code = OperationKind::ALL.iter().position(|d| *d == deed).expect("a deed") as u8;
    [code, slot, how[0], how[1]]
}
/// Flags: an anonymous outer identity, and reauthentication before or after the end of the IKE_SA.
const ANONYMOUS: u8 = 8;
const REAUTHENTICATION_FLAGS: [u8; 2] = [16, 32];
/// Encodes a login in a slot by this user, who claims the identity of the user `claims` further on.
fn encode_begin(slot: u8, person: TestUser, claims: u8, method: host::ClientProof, how: u8) -> [u8; 4] {
    let method = host::ClientProof::ALL.iter().position(|m| *m == method).expect("a method") as u8;
    encode_operation(OperationKind::ReplaceClient, slot, [person as u8 | claims << 2, method | how])
}
/// The same, then these operations at intervals of two seconds, and the session's end.
fn encode_session(first: [u8; 4], operations: &[[u8; 4]]) -> Vec<u8> {
    let play = encode_operation(OperationKind::Play, 0, [0, 0]);
    let all = operations.iter().flat_map(|operation| [*operation, play]);
    let last = encode_operation(OperationKind::Down, 0, [0, 0]);
    [first, play].into_iter().chain(all).chain([last]).collect::<Vec<_>>().concat()
}
fn encode_login(person: TestUser, claims: u8, method: host::ClientProof) -> Vec<u8> {
    encode_session(encode_begin(0, person, claims, method, 0), &[])
}

const HONEST: [(TestUser, host::ClientProof); 12] = [
    (TestUser::Ann, host::ClientProof::Md5),
    (TestUser::Ann, host::ClientProof::MsChapV2),
    (TestUser::Bob, host::ClientProof::Md5),
    (TestUser::Bob, host::ClientProof::MsChapV2),
    (TestUser::Bob, host::ClientProof::SharedKey),
    (TestUser::Eve, host::ClientProof::MsChapV2),
    (TestUser::Ann, host::ClientProof::Peap),
    (TestUser::Bob, host::ClientProof::Peap),
    (TestUser::Ann, host::ClientProof::Ttls),
    (TestUser::Bob, host::ClientProof::Ttls),
    (TestUser::Eve, host::ClientProof::Ttls),
    (TestUser::Printer, host::ClientProof::Certificate),
];

#[test]
fn honest_clients_have_a_session_by_each_method() {
    for (person, method) in HONEST {
        for how in [0, ANONYMOUS] {
            let first = encode_begin(0, person, 0, method, how);
            let outcome =
                run_ike_input(&encode_session(first, &[])).unwrap_or_else(|breach| panic!("{breach}"));
            let expected = RunOutcome { sessions: 1, refused: 0, accounted: 1 };
            assert_eq!(outcome, expected, "{person:?} by {method:?}, {how}");
        }
    }
}

#[test]
fn a_session_outlives_what_becomes_of_its_ike_sa() {
    let rekey = |how| encode_operation(OperationKind::Rekey, 0, [how, 0]);
    let relocate = |how| encode_operation(OperationKind::Move, 0, [how, 0]);
    let operations = [rekey(0), rekey(1), relocate(1), rekey(2), rekey(3), relocate(0)];
    for (person, method) in HONEST {
        let outcome = run_ike_input(&encode_session(encode_begin(0, person, 0, method, 0), &operations));
        let expected = RunOutcome { sessions: 1, refused: 0, accounted: 1 };
        assert_eq!(outcome, Ok(expected), "{person:?} by {method:?}");
    }
}

#[test]
fn who_authenticates_again_has_another_session() {
    // 45 seconds pass.
    let wait = encode_operation(OperationKind::Run, 0, [6, 0]);
    for (person, method) in HONEST {
        for how in REAUTHENTICATION_FLAGS {
            let outcome = run_ike_input(&encode_session(
                encode_begin(0, person, 0, method, how | ANONYMOUS),
                &[wait; 3],
            ));
            let expected = RunOutcome { sessions: 2, refused: 0, accounted: 2 };
            assert_eq!(outcome, Ok(expected), "{person:?} by {method:?}, {how}");
        }
    }
}

/// The gateway asks the older IKE_SA to end, but the device is gone.
#[test]
fn a_user_whose_device_is_gone_comes_from_another_place() {
    let said = |slot| encode_begin(slot, TestUser::Bob, 0, host::ClientProof::SharedKey, 64);
    let off = encode_operation(OperationKind::SwitchOff, 0, [0, 0]);
    let wait = encode_operation(OperationKind::Run, 0, [6, 0]);
    let outcome = run_ike_input(&encode_session(said(0), &[off, said(1), wait, wait, wait]));
    assert_eq!(outcome, Ok(RunOutcome { sessions: 2, refused: 0, accounted: 2 }));
}

#[test]
fn helpers_may_take_their_time_or_none() {
    let jobs = |how| encode_operation(OperationKind::Jobs, 0, [how, 0]);
    let first = encode_begin(0, TestUser::Printer, 0, host::ClientProof::Certificate, 0);
    let slow = [jobs(0), first, jobs(1), jobs(1)].concat();
    for (last, sessions) in [(3, 1), (2, 0)] {
        let input = [&slow[..], &encode_session(jobs(last), &[])].concat();
        assert_eq!(run_ike_input(&input).map(|outcome| outcome.sessions), Ok(sessions), "{last}");
    }
}

#[test]
fn who_claims_to_be_another_is_turned_away() {
    // As Ann by EAP, and as Bob by the shared key.
    for (claims, method) in [
        (2, host::ClientProof::Md5),
        (2, host::ClientProof::MsChapV2),
        (2, host::ClientProof::Peap),
        (2, host::ClientProof::Ttls),
        (3, host::ClientProof::SharedKey),
    ] {
        let outcome = run_ike_input(&encode_login(TestUser::Eve, claims, method)).unwrap();
        assert_eq!((outcome.sessions, outcome.accounted), (0, 0), "{method:?}");
    }
}

#[test]
fn an_oracle_that_takes_ann_for_eve_finds_a_breach() {
    let found =
        run_believing(&encode_login(TestUser::Ann, 0, host::ClientProof::MsChapV2), OracleBelief::Mistaken)
            .unwrap_err();
    assert!(found.0.contains("ann has the IKE_SA"), "{found}");
    assert!(
        run_believing(&encode_login(TestUser::Bob, 0, host::ClientProof::SharedKey), OracleBelief::Mistaken)
            .is_ok()
    );
}

#[test]
fn whatever_the_order_of_operations_nothing_is_breached() {
    for input in crate::random_inputs(30) {
        run_ike_input(&input).unwrap_or_else(|breach| panic!("{breach}\n{input:?}"));
    }
}

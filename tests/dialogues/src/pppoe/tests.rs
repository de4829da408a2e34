use super::*;
use crate::TestUser;
use usher_ppp::auth::AuthenticationProtocol;

fn encode_operation(deed: OperationKind, slot: u8, how: [u8; 2]) -> [u8; 4] {
    let code = OperationKind::ALL.iter().position(|d| *d == deed).expect("a deed") as u8;
    [code, slot, how[0], how[1]]
}
/// Encodes a login of this user, who claims the name of the user `claims` further on, and the session's end.
fn encode_login(person: TestUser, claims: u8, protocol: u8) -> Vec<u8> {
    let begin =
        encode_operation(OperationKind::ReplaceHost, 0, [person as u8 | claims << 2 | protocol << 4, 0]);
    [
        begin,
        encode_operation(OperationKind::Play, 0, [0, 0]),
        encode_operation(OperationKind::Disconnect, 0, [0, 0]),
    ]
    .concat()
}
fn protocol_numbers() -> impl Iterator<Item = u8> {
    0..AuthenticationProtocol::ALL.len() as u8
}

#[test]
fn honest_hosts_are_let_in_by_each_protocol_and_accounted() {
    for person in [TestUser::Ann, TestUser::Bob, TestUser::Eve] {
        for protocol in protocol_numbers() {
            let expected = RunOutcome { let_in: 1, refused: 0, accounted: 1 };
            assert_eq!(
                run_pppoe_input(&encode_login(person, 0, protocol)),
                Ok(expected),
                "{person:?} by {protocol}"
            );
        }
    }
}

#[test]
fn honest_hosts_are_let_in_by_each_method_of_eap() {
    for person in [TestUser::Ann, TestUser::Bob, TestUser::Eve] {
        for method in 0..4 {
            // With the user's own name, and with an anonymous outer identity.
            for how in [0, 16] {
                let mut input = encode_login(person, 0, 0);
                (input[2], input[3]) = (input[2] | method << 6, how);
                let expected = RunOutcome { let_in: 1, refused: 0, accounted: 1 };
                assert_eq!(run_pppoe_input(&input), Ok(expected), "{person:?} by {method}, {how}");
            }
        }
    }
}

/// A lost host's frames are replayed while its session ends. Each is answered or counted.
#[test]
fn what_a_session_hears_again_while_it_ends_is_counted() {
    for protocol in protocol_numbers() {
        let mut input = encode_login(TestUser::Ann, 0, protocol);
        input.truncate(8);
        input.extend(encode_operation(OperationKind::SwitchOff, 0, [0, 0]));
        input.extend(encode_operation(OperationKind::Close, 0, [0, 0]));
        input.extend((0..24).flat_map(|which| encode_operation(OperationKind::Replay, 0, [which, 0])));
        assert_eq!(run_pppoe_input(&input).map(|outcome| outcome.let_in), Ok(1), "{protocol}");
    }
}

#[test]
fn who_claims_to_be_another_is_turned_away() {
    for protocol in protocol_numbers() {
        let outcome = run_pppoe_input(&encode_login(TestUser::Eve, 2, protocol)).unwrap();
        assert_eq!((outcome.let_in, outcome.accounted), (0, 0), "{protocol}");
        assert!(outcome.refused > 0);
    }
}

#[test]
fn an_oracle_that_takes_ann_for_eve_finds_a_breach() {
    for protocol in protocol_numbers() {
        let found =
            run_believing(&encode_login(TestUser::Ann, 0, protocol), OracleBelief::Mistaken).unwrap_err();
        assert!(found.0.contains("ann is let in at"), "{found}");
    }
}

#[test]
fn whatever_the_order_of_operations_nothing_is_breached() {
    for input in crate::random_inputs(60) {
        run_pppoe_input(&input).unwrap_or_else(|breach| panic!("{breach}\n{input:?}"));
    }
}

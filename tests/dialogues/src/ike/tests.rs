use super::*;
use crate::Person;

fn deed(deed: OperationKind, slot: u8, how: [u8; 2]) -> [u8; 4] {
    let code = OperationKind::ALL.iter().position(|d| *d == deed).expect("a deed") as u8;
    [code, slot, how[0], how[1]]
}
/// A login of this person, who claims to be the one so many further on, and the session's end.
fn login(person: Person, claims: u8, method: host::ClientProof) -> Vec<u8> {
    let method = host::ClientProof::ALL.iter().position(|m| *m == method).expect("a method") as u8;
    let begin = deed(OperationKind::Begin, 0, [person as u8 | claims << 2, method]);
    [begin, deed(OperationKind::Play, 0, [0, 0]), deed(OperationKind::Down, 0, [0, 0])].concat()
}

const HONEST: [(Person, host::ClientProof); 7] = [
    (Person::Ann, host::ClientProof::Md5),
    (Person::Ann, host::ClientProof::MsChapV2),
    (Person::Bob, host::ClientProof::Md5),
    (Person::Bob, host::ClientProof::MsChapV2),
    (Person::Bob, host::ClientProof::SharedKey),
    (Person::Eve, host::ClientProof::MsChapV2),
    (Person::Printer, host::ClientProof::Certificate),
];

#[test]
fn honest_clients_have_a_session_by_each_method() {
    for (person, method) in HONEST {
        let outcome = run(&login(person, 0, method)).unwrap_or_else(|breach| panic!("{breach}"));
        assert_eq!((outcome.sessions, outcome.refused), (1, 0), "{person:?} by {method:?}");
        assert_eq!(outcome.accounted, 1, "{person:?} by {method:?}");
    }
}

#[test]
fn who_claims_to_be_another_is_turned_away() {
    // As Ann by EAP, and as Bob by the shared key.
    for (claims, method) in
        [(2, host::ClientProof::Md5), (2, host::ClientProof::MsChapV2), (3, host::ClientProof::SharedKey)]
    {
        let outcome = run(&login(Person::Eve, claims, method)).unwrap();
        assert_eq!((outcome.sessions, outcome.accounted), (0, 0), "{method:?}");
    }
}

#[test]
fn an_oracle_that_takes_ann_for_eve_finds_a_breach() {
    let found = run_believing(&login(Person::Ann, 0, host::ClientProof::MsChapV2), OracleBelief::Mistaken)
        .unwrap_err();
    assert!(found.0.contains("ann has the IKE_SA"), "{found}");
    assert!(
        run_believing(&login(Person::Bob, 0, host::ClientProof::SharedKey), OracleBelief::Mistaken).is_ok()
    );
}

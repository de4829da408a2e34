//! `usher verify`.

use crate::place::Place;

#[test]
fn oracles_are_listed_run_and_shown() {
    let place = Place::new();
    let list = place.usher(&["verify", "--list"]).with_code(0).out;
    assert!(list.lines().any(|l| l.starts_with("radius/user-password ") && l.contains("RFC 2865")), "{list}");

    let said = place.usher(&["verify", "radius"]).with_code(0).out;
    for part in [
        "radius/response-authenticator: ",
        "source: RFC 2865 section 7, RFC 5997 section 6",
        "expected 86fe220e7624ba2a1005f6bf9b55e0b2\n          obtained 86fe220e7624ba2a1005f6bf9b55e0b2",
        "with code 2, as printed",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("FAILED") && said.ends_with(" hold\n"), "{said}");

    let json = place.usher(&["verify", "rfc5080", "--json"]).with_code(0).json();
    assert_eq!(json[0]["expected"], "0 s, 2 s, 6 s, 14 s");
    assert_eq!((&json[0]["group"], &json[0]["holds"]), (&"timing".into(), &true.into()));
    assert_eq!(json.as_array().unwrap().len(), 2);

    let none = place.usher(&["verify", "no such thing"]).with_code(2);
    assert!(none.err.contains("--list"), "{}", none.err);
}

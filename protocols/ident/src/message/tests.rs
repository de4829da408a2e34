use super::*;
use crate::{LineBuffer, MAX_LINE};
use alloc::format;
use proptest::prelude::*;

fn any_token() -> impl Strategy<Value = IdentToken> {
    "[!-+\\--9;-~]{1,64}".prop_map(|text| IdentToken::new(&text).unwrap())
}

fn any_user_id() -> impl Strategy<Value = UserId> {
    let octet = any::<u8>().prop_filter("is allowed", |octet| !b"\0\r\n".contains(octet));
    proptest::collection::vec(octet, 1..=MAX_USER_ID).prop_map(|octets| UserId::new(octets).unwrap())
}

fn any_body() -> impl Strategy<Value = ResponseBody> {
    let user = (any_token(), proptest::option::of(any_token()), any_user_id());
    prop_oneof![
        user.prop_map(|(opsys, charset, user)| ResponseBody::UserId { opsys, charset, user }),
        Just(ResponseBody::Error(ErrorType::InvalidPort)),
        Just(ResponseBody::Error(ErrorType::NoUser)),
        Just(ResponseBody::Error(ErrorType::HiddenUser)),
        Just(ResponseBody::Error(ErrorType::UnknownError)),
        "X[!-+\\--9;-~]{1,63}"
            .prop_map(|x| ResponseBody::Error(ErrorType::Extension(IdentToken::new(&x).unwrap()))),
    ]
}

/// Returns the single line of the output.
fn single_line(octets: &[u8]) -> Vec<u8> {
    let mut rest = octets;
    let line = LineBuffer::default().next_line(&mut rest).unwrap().unwrap();
    assert!(rest.is_empty() && octets.ends_with(b"\r\n") && octets.len() <= MAX_LINE);
    line
}

proptest! {
    #[test]
    fn what_is_written_is_read(server in 0..=MAX_INTEGER, client in 0..=MAX_INTEGER, answer in any_body()) {
        let ports = IdentPortPair::from_port_integers(server, client).unwrap();
        let mut buf = Vec::new();
        ports.emit(&mut buf);
        prop_assert_eq!(IdentPortPair::parse(&single_line(&buf)), Ok(ports));
        let reply = IdentResponse { ports, answer };
        buf.clear();
        reply.emit(&mut buf);
        prop_assert_eq!(IdentResponse::parse(&single_line(&buf)), Ok(reply));
    }

    #[test]
    fn any_octets_are_read_without_a_panic(octets in proptest::collection::vec(any::<u8>(), 0..MAX_LINE)) {
        prop_assert!(crate::fuzz::check_message(&octets));
    }

    #[test]
    fn blanks_between_tokens_mean_nothing(a in "[ \t]{0,4}", b in "[ \t]{0,4}", c in "[ \t]{0,4}") {
        let text = format!("{a}6193{b},{c}23{a}:{b}USERID{c}:{a}UNIX{b},{c}UTF-8{a}:  ann ");
        let reply = IdentResponse::parse(text.as_bytes()).unwrap();
        let (opsys, charset) = (IdentToken::new("UNIX").unwrap(), Some(IdentToken::new("UTF-8").unwrap()));
        let user = UserId::new("  ann ").unwrap();
        prop_assert_eq!(user.name(), b"ann");
        prop_assert_eq!(reply.answer, ResponseBody::UserId { opsys, charset, user });
        let text = format!("{a}6195{b},{c}23{a}:{b}ERROR{c}:{a}NO-USER{b}");
        let reply = IdentResponse { ports: IdentPortPair::new(6195, 23), answer: ResponseBody::Error(ErrorType::NoUser) };
        prop_assert_eq!(IdentResponse::parse(text.as_bytes()), Ok(reply));
    }
}

/// §4: the identifier has the blank, which is no part of the name.
#[test]
fn the_examples_of_the_rfc() {
    assert_eq!(IdentPortPair::parse(b"6191, 23"), Ok(IdentPortPair::new(6191, 23)));
    let reply = IdentResponse::parse(b"6193, 23 : USERID : UNIX : stjohns").unwrap();
    assert_eq!(reply.ports.valid_ports(), Some((6193, 23)));
    let ResponseBody::UserId { opsys, charset: None, user } = reply.answer else { panic!("it names a user") };
    assert_eq!((opsys.as_str(), user.octets(), user.name()), ("UNIX", &b" stjohns"[..], &b"stjohns"[..]));
    let reply = IdentResponse::parse(b"6195, 23 : ERROR : NO-USER").unwrap();
    assert_eq!(reply.answer, ResponseBody::Error(ErrorType::NoUser));
    let mut buf = Vec::new();
    reply.emit(&mut buf);
    assert_eq!(buf, b"6195,23:ERROR:NO-USER\r\n");
}

#[test]
fn ports_are_1_to_65535_and_integers_have_five_digits() {
    let ports = |line: &str| IdentPortPair::parse(line.as_bytes()).map(IdentPortPair::valid_ports);
    assert_eq!(ports("1,65535"), Ok(Some((1, 65535))));
    assert_eq!(ports("00001,00023"), Ok(Some((1, 23))));
    for out_of_range in ["0,1", "1,0", "65536,1", "1,99999"] {
        assert_eq!(ports(out_of_range), Ok(None), "{out_of_range}");
    }
    for wrong in
        ["", ",", "1", "1,", ",1", "1 2,3", "-1,2", "+1,2", "1.5,2", "100000,1", "1,2,3", "1;2", "a,b"]
    {
        assert_eq!(ports(wrong), Err(QueryParseError::NotAPair), "{wrong}");
    }
    assert_eq!(IdentPortPair::from_port_integers(1, 100_000), None);
}

#[test]
fn a_reply_that_is_none_has_its_reason() {
    let long = "x".repeat(MAX_TOKEN + 1);
    for (text, error) in [
        ("", ResponseParseError::NoPair),
        ("6193, 23", ResponseParseError::NoPair),
        ("6193 : USERID : UNIX : a", ResponseParseError::NoPair),
        ("1,2:USERID", ResponseParseError::ResponseType),
        ("1,2:userid:UNIX:a", ResponseParseError::ResponseType),
        ("1,2:USER ID:UNIX:a", ResponseParseError::ResponseType),
        ("1,2:USERID:UNIX", ResponseParseError::OpSys),
        ("1,2:USERID::a", ResponseParseError::OpSys),
        ("1,2:USERID:UN IX:a", ResponseParseError::OpSys),
        (&format!("1,2:USERID:{long}:a"), ResponseParseError::OpSys),
        ("1,2:USERID:UNIX,:a", ResponseParseError::Charset),
        ("1,2:USERID:UNIX,a,b:a", ResponseParseError::Charset),
        ("1,2:USERID:UNIX:", ResponseParseError::UserId(InvalidUserId)),
        ("1,2:USERID:UNIX:a\rb", ResponseParseError::UserId(InvalidUserId)),
        ("1,2:ERROR:", ResponseParseError::ErrorType),
        ("1,2:ERROR:NOBODY", ResponseParseError::ErrorType),
        ("1,2:ERROR:X", ResponseParseError::ErrorType),
        ("1,2:ERROR:NO-USER:X", ResponseParseError::ErrorType),
    ] {
        assert_eq!(IdentResponse::parse(text.as_bytes()), Err(error), "{text}");
    }
    assert_eq!(IdentResponse::parse(b"1,2:ERROR:X7").unwrap().answer.to_string(), "X7");
    assert_eq!(IdentResponse::parse(b"1,2:USERID:OTHER:a:b").unwrap().answer.to_string(), "a:b (OTHER)");
}

#[test]
fn of_a_long_identifier_the_first_512_octets_are_sent() {
    let user = UserId::new("a".repeat(MAX_USER_ID + 1)).unwrap();
    let opsys = IdentToken::new("OTHER").unwrap();
    let ports = IdentPortPair::new(65535, 65535);
    let mut buf = Vec::new();
    IdentResponse { ports, answer: ResponseBody::UserId { opsys, charset: None, user } }.emit(&mut buf);
    let ResponseBody::UserId { user, .. } = IdentResponse::parse(&single_line(&buf)).unwrap().answer else {
        panic!()
    };
    assert_eq!(user.octets().len(), MAX_USER_ID);
    assert_eq!(UserId::new([0xff, 0x20]).unwrap().to_string(), "ff20");
}

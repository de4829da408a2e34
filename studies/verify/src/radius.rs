//! RADIUS: the standards' example packets, octet by octet, and the results of their formulas.

use crate::independent::{hmac_md5, md5};
use crate::{OracleFinding, VerificationOracle};
use usher_core::{Instant, Machine, Seed};
use usher_radius::attribute::{hide_password, hide_salted, kind, reveal_salted};
use usher_radius::auth::{
    MessageAuthenticator, check_message_authenticator, covered_authenticator, response_authenticator,
};
use usher_radius::client::{
    RadiusClient, RadiusClientCommand, RadiusClientConfig, RequestTarget, ServerConfig,
};
use usher_radius::vectors::{EXCHANGES, PublishedTestVector};
use usher_radius::{AttributeList, PacketCode, RadiusPacket, SharedSecret};

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "radius",
        name: "user-password",
        description: "the hidden User-Passwords of the standard's examples are the printed octets",
        source: "RFC 2865 sections 5.2 and 7",
        run: check_hidden_passwords,
    },
    VerificationOracle {
        group: "radius",
        name: "chap",
        description: "the CHAP-Password of the standard's example: MD5 of identifier, password and challenge",
        source: "RFC 2865 sections 2.2 and 7.2",
        run: check_chap,
    },
    VerificationOracle {
        group: "radius",
        name: "response-authenticator",
        description: "the Response Authenticator of each example reply",
        source: "RFC 2865 section 7, RFC 5997 section 6",
        run: check_response_authenticators,
    },
    VerificationOracle {
        group: "radius",
        name: "code-of-5997-6.2",
        description: "the reply of RFC 5997 section 6.2 is printed with code 2, Access-Accept. Its \
                      authenticator fits code 5, Accounting-Response, and no other",
        source: "RFC 5997 section 6.2",
        run: check_code,
    },
    VerificationOracle {
        group: "radius",
        name: "message-authenticator",
        description: "the Message-Authenticator of each Status-Server example: HMAC-MD5 of the packet",
        source: "RFC 5997 section 6, RFC 3579 section 3.2",
        run: check_message_authenticators,
    },
    VerificationOracle {
        group: "radius",
        name: "message-authenticator-eap",
        description: "the Message-Authenticator at the start of an Access-Request with an EAP-Message is \
                      HMAC-MD5 of the packet with zeros in its place, computed with another library (no \
                      example is published)",
        source: "RFC 3579 section 3.2",
        run: with_eap,
    },
    VerificationOracle {
        group: "radius",
        name: "mppe-keys",
        description: "an MS-MPPE key hidden by this code equals the standard's formula, computed with \
                      another library, and can be revealed (no example is published)",
        source: "RFC 2548 section 2.4.2",
        run: check_mppe_keys,
    },
];

fn parse_exchange(
    exchange: &PublishedTestVector,
) -> Result<(RadiusPacket<'static>, RadiusPacket<'static>, SharedSecret), String> {
    let parse = |bytes| RadiusPacket::parse(bytes).map_err(|e| format!("{}: {e}", exchange.source));
    Ok((parse(exchange.request)?, parse(exchange.reply)?, SharedSecret::new(exchange.secret)))
}

fn find_example(section: &str) -> Result<&'static PublishedTestVector, String> {
    EXCHANGES.iter().find(|e| e.source.ends_with(section)).ok_or(format!("no example of {section}"))
}

fn check_hidden_passwords() -> Result<Vec<OracleFinding>, String> {
    let mut findings = Vec::new();
    for exchange in EXCHANGES {
        let Some(password) = exchange.password else { continue };
        let (request, ..) = parse_exchange(exchange)?;
        let mut hidden = password.to_vec();
        hidden.resize(password.len().next_multiple_of(16), 0);
        hide_password(exchange.secret, request.authenticator(), &mut hidden);
        let printed = request.get(kind::USER_PASSWORD).unwrap_or_default();
        let case = format!("{}, \"{}\"", exchange.source, String::from_utf8_lossy(password));
        findings.push(OracleFinding::expect_octets(case, printed, &hidden));
    }
    Ok(findings)
}

fn check_chap() -> Result<Vec<OracleFinding>, String> {
    let (request, ..) = parse_exchange(find_example("7.2")?)?;
    let printed = request.get(kind::CHAP_PASSWORD).unwrap_or_default();
    let (identifier, response) = printed.split_at_checked(1).ok_or("the example has no CHAP-Password")?;
    // In CHAP without a CHAP-Challenge attribute, the Request Authenticator is the challenge.
    let digest = usher_crypto::digest::md5(&[identifier, b"arctangent", request.authenticator()]);
    Ok(vec![OracleFinding::expect_octets("", response, &digest)])
}

fn check_response_authenticators() -> Result<Vec<OracleFinding>, String> {
    let finding = |exchange: &PublishedTestVector| {
        let (request, reply, secret) = parse_exchange(exchange)?;
        let computed = response_authenticator(exchange.reply, request.authenticator(), &secret);
        Ok(OracleFinding::expect_octets(exchange.source, reply.authenticator(), &computed))
    };
    EXCHANGES.iter().map(finding).collect()
}

fn check_code() -> Result<Vec<OracleFinding>, String> {
    let exchange = find_example("6.2")?;
    let (request, reply, secret) = parse_exchange(exchange)?;
    let authenticator = |code: u8| {
        let mut octets = exchange.reply.to_vec();
        octets[0] = code;
        response_authenticator(&octets, request.authenticator(), &secret)
    };
    let right: Vec<u8> = (0..=255).filter(|code| authenticator(*code) == *reply.authenticator()).collect();
    let with = |code| crate::to_hex(&authenticator(code));
    let mut as_printed = OracleFinding::expect_equal("with code 2, as printed", with(5), with(2));
    as_printed.expected = format!("not {}", as_printed.expected);
    as_printed.agrees = !as_printed.agrees;
    Ok(vec![
        OracleFinding::expect_octets("with code 5", reply.authenticator(), &authenticator(5)),
        as_printed,
        OracleFinding::expect_equal("codes of 0 to 255 that verify", "[5]", format!("{right:?}")),
    ])
}

fn check_message_authenticators() -> Result<Vec<OracleFinding>, String> {
    let mut findings = Vec::new();
    for exchange in EXCHANGES {
        let (request, _, secret) = parse_exchange(exchange)?;
        let Some(printed) = request.get(kind::MESSAGE_AUTHENTICATOR) else { continue };
        // The attribute is the last of each example: the packet ends with 16 octets that count as zeros.
        let (before, last) = exchange.request.split_at(exchange.request.len() - 16);
        if last != printed {
            return Err(format!("{}: its Message-Authenticator is not the last attribute", exchange.source));
        }
        let computed = hmac_md5(exchange.secret, &[before, &[0; 16]])?;
        findings.push(OracleFinding::expect_octets(exchange.source, printed, &computed));
        let covered = covered_authenticator(request.code(), request.authenticator(), None);
        let worth = check_message_authenticator(&request, &covered, &secret);
        let case = format!("{}, judged by the server's code", exchange.source);
        findings.push(OracleFinding::expect_equal(
            case,
            format!("{:?}", MessageAuthenticator::Good),
            format!("{worth:?}"),
        ));
    }
    Ok(findings)
}

fn with_eap() -> Result<Vec<OracleFinding>, String> {
    let secret = b"sixteen octets!!";
    let server = "10.0.0.2:1812".parse().map_err(|e| format!("{e}"))?;
    let config = RadiusClientConfig::for_server(ServerConfig::new(server, SharedSecret::new(secret)));
    let mut client =
        RadiusClient::new(config, Seed::new(1).derive_secure_rng("client", 0)).map_err(|e| e.to_string())?;
    let mut attributes = AttributeList::new();
    attributes.push_text(kind::USER_NAME, "alice").map_err(|e| e.to_string())?;
    attributes.push_eap(&[2, 1, 0, 10, 1, b'a', b'l', b'i', b'c', b'e']);
    let request = RadiusClientCommand::Request {
        token: 1,
        target: RequestTarget::Server(0),
        code: PacketCode::ACCESS_REQUEST,
        attributes,
    };
    client.handle_command(Instant::ZERO, request).map_err(|e| e.to_string())?;
    let mut sent = Vec::new();
    client.poll_output(&mut sent).ok_or("the client sent nothing")?;
    let (before, rest) = sent.split_at_checked(22).ok_or("the request is too short")?;
    let (authenticator, after) = rest.split_at_checked(16).ok_or("the request is too short")?;
    let computed = hmac_md5(secret, &[before, &[0; 16], after])?;
    Ok(vec![
        OracleFinding::expect_octets("the first attribute's type and length", &[80, 18], &before[20..]),
        OracleFinding::expect_octets("its value", &computed, authenticator),
    ])
}

fn check_mppe_keys() -> Result<Vec<OracleFinding>, String> {
    let (secret, authenticator, salt) = (b"xyzzy5461", core::array::from_fn(|i| i as u8 + 1), [0x9a, 0x5c]);
    let key: Vec<u8> = (0..32).map(|i| 0xe0 ^ i).collect();
    // A length octet, the key, zeros up to whole blocks of 16.
    let mut plain = vec![32];
    plain.extend(&key);
    plain.resize(48, 0);
    let mut hidden = plain.clone();
    hide_salted(secret, &authenticator, salt, &mut hidden);
    // b(1) = MD5(secret + authenticator + salt), c(i) = p(i) xor b(i), b(i+1) = MD5(secret + c(i)).
    let mut expected: Vec<u8> = Vec::new();
    let mut b = md5(&[secret, &authenticator, &salt]);
    for p in plain.chunks(16) {
        let c: Vec<u8> = p.iter().zip(b).map(|(p, b)| p ^ b).collect();
        b = md5(&[secret, &c]);
        expected.extend(c);
    }
    let value = [&salt[..], &hidden].concat();
    let revealed = reveal_salted(secret, &authenticator, &value).map_err(|e| e.to_string())?;
    Ok(vec![
        OracleFinding::expect_octets("hidden", &expected, &hidden),
        OracleFinding::expect_octets("revealed", &key, &revealed),
    ])
}

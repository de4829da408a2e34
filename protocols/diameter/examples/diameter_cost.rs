//! Prints the nanoseconds per DER or DEA encoded and decoded: `cargo run --release --example diameter_cost`.

use core::hint::black_box;
use std::time::Instant;
use usher_diameter::eap::{DiameterEapAnswer, DiameterEapRequest};
use usher_diameter::message::{CommandFlags, DiameterMessage, MessageHeader, MessageView};
use usher_diameter::nasreq::{AuthRequestType, NasInfo};
use usher_diameter::{AvpBuf, codes};

const ROUNDS: u32 = 300_000;

fn measure_calls(name: &str, mut f: impl FnMut() -> usize) {
    let bytes = f();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(f());
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
    println!("{name}: {ns:.0} ns ({bytes} bytes)");
}

fn main() {
    let request_type = AuthRequestType::AuthorizeAuthenticate;
    let nas = NasInfo {
        identifier: Some("nas1.example"),
        address: Some([192, 0, 2, 1].into()),
        port: Some(7),
        calling_station: Some("02-00-00-00-00-01"),
        ..NasInfo::default()
    };
    let eap = [2u8; 40];
    let der = DiameterEapRequest {
        request_type,
        eap: &eap,
        user_name: Some("anna@example"),
        state: Some(&[1; 16]),
        nas,
    };
    let msk = [7u8; 64];
    let mut dea = DiameterEapAnswer::new(request_type, &eap[..4]);
    dea.msk = Some(&msk);
    dea.user_name = Some("anna@example");
    let header = MessageHeader {
        flags: CommandFlags(0xc0),
        command: 268,
        application: 5,
        hop_by_hop: 1,
        end_to_end: 2,
    };
    let mut wire = Vec::new();
    let mut run = |name: &str, parse: fn(&MessageView<'_>) -> bool, body: &dyn Fn() -> AvpBuf| {
        measure_calls(name, || {
            let mut avps = AvpBuf::with_capacity(400);
            avps.push_str(codes::SESSION_ID, "nas1.example;1876543210;1")
                .push_u32(codes::AUTH_APPLICATION_ID, 5)
                .push_str(codes::ORIGIN_HOST, "nas1.example")
                .push_str(codes::ORIGIN_REALM, "example")
                .push_str(codes::DESTINATION_REALM, "example")
                .extend(&body());
            wire.clear();
            DiameterMessage { header, avps }.encode_into(&mut wire).expect("fits");
            let view = MessageView::parse(&wire).expect("valid");
            assert!(parse(&view));
            wire.len()
        });
    };
    run("DER encode + decode", |v| DiameterEapRequest::parse(v.avps()).is_ok(), &|| {
        der.to_request(1, String::new(), String::new(), None).avps
    });
    run("DEA encode + decode", |v| DiameterEapAnswer::parse(v.avps()).is_ok(), &|| dea.to_avps());
}

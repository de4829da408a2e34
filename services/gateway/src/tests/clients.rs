//! What clients of common systems propose, and what a gateway that says nothing of proposals chooses.

use super::loaded;
use serde::Deserialize;
use usher_ike::code::{ProtocolId, TransformType};
use usher_ike::machine::Connection;
use usher_ike::payload::{Proposal, Transform};
use usher_ike::suite::choose;

#[derive(Deserialize)]
struct Clients {
    client: Vec<Client>,
}

#[derive(Deserialize)]
struct Client {
    name: String,
    source: String,
    ike: Vec<Offer>,
    esp: Vec<Offer>,
    /// Of IKE, and of ESP; what is missing is refused.
    chosen: Vec<String>,
}

#[derive(Deserialize)]
struct Offer {
    encr: Vec<String>,
    #[serde(default)]
    integ: Vec<u16>,
    #[serde(default)]
    prf: Vec<u16>,
    #[serde(default)]
    ke: Vec<u16>,
    #[serde(default)]
    esn: Vec<u16>,
}

impl Offer {
    fn proposal(&self, number: u8, protocol: ProtocolId) -> Proposal {
        let encryption = |text: &String| match text.split_once('/') {
            Some((id, bits)) => {
                Transform::with_key_length(TransformType::ENCR, id.parse().unwrap(), bits.parse().unwrap())
            }
            None => Transform::new(TransformType::ENCR, text.parse().unwrap()),
        };
        let mut transforms: Vec<_> = self.encr.iter().map(encryption).collect();
        let kinds = [
            (TransformType::PRF, &self.prf),
            (TransformType::INTEG, &self.integ),
            (TransformType::KE, &self.ke),
            (TransformType::ESN, &self.esn),
        ];
        transforms.extend(
            kinds.into_iter().flat_map(|(kind, ids)| ids.iter().map(move |id| Transform::new(kind, *id))),
        );
        let spi = if protocol == ProtocolId::ESP { vec![1, 2, 3, 4] } else { Vec::new() };
        Proposal { number, protocol, spi, transforms }
    }
}

fn clients() -> Vec<Client> {
    let text = include_str!("../../../../vectors/ike/clients.toml");
    let clients: Clients = toml::from_str(text).unwrap();
    assert!(clients.client.iter().all(|client| !client.source.is_empty()));
    clients.client
}

/// What a gateway takes whose file has no word about proposals, or this one about its CHILD_SA's.
fn gateway(child: &str) -> Connection {
    let text = format!(
        "[[connection]]\nname = \"users\"\nlocal_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
         secret = \"a shared secret\"\n[[connection.child]]\nname = \"net\"\nlocal = [\"10.2.0.0/16\"]\n{child}"
    );
    (*loaded(&text).config.peers[0].connection).clone()
}

/// The transforms of a proposal, without their order.
fn transforms(proposal: &Proposal) -> Vec<(u8, u16, Option<u16>)> {
    let mut all: Vec<_> = proposal.transforms.iter().map(|t| (t.kind.0, t.id, t.key_length())).collect();
    all.sort_unstable();
    all
}

#[test]
fn the_best_is_chosen_that_a_client_proposes_and_what_is_weak_is_refused() {
    let connection = gateway("");
    for client in clients() {
        let offers = |offers: &[Offer], protocol| -> Vec<Proposal> {
            (1..).zip(offers).map(|(n, offer)| offer.proposal(n, protocol)).collect()
        };
        let ike = choose(&connection.proposals, &offers(&client.ike, ProtocolId::IKE));
        let esp = choose(&connection.children[0].proposals, &offers(&client.esp, ProtocolId::ESP));
        let wanted = |n: usize, read: fn(&str) -> Result<Proposal, _>| {
            client.chosen.get(n).map(|words| transforms(&read(words).unwrap()))
        };
        assert_eq!(ike.as_ref().map(transforms), wanted(0, Proposal::ike), "{} IKE", client.name);
        assert_eq!(esp.as_ref().map(transforms), wanted(1, Proposal::esp), "{} ESP", client.name);
    }
}

#[test]
fn windows_gets_its_child_sa_where_the_file_allows_sha1_in_it() {
    let connection = gateway("proposals = [\"aes256gcm16-aes128gcm16\", \"aes256-sha256-sha1\"]\n");
    for client in clients().iter().filter(|client| client.name.starts_with("Windows")) {
        let chosen =
            choose(&connection.children[0].proposals, &[client.esp[0].proposal(1, ProtocolId::ESP)]).unwrap();
        assert_eq!(
            transforms(&chosen),
            transforms(&Proposal::esp("aes256-sha1").unwrap()),
            "{}",
            client.name
        );
    }
}

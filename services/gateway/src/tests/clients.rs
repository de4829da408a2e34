//! Proposals of common clients, and the choice of a gateway with default proposals.

use super::load_config;
use serde::Deserialize;
use usher_ike::code::{ProtocolId, TransformType};
use usher_ike::machine::IkeConnectionConfig;
use usher_ike::payload::{Proposal, Transform};
use usher_ike::suite::choose_proposal;

#[derive(Deserialize)]
struct ClientsFile {
    client: Vec<ClientFixture>,
}

#[derive(Deserialize)]
struct ClientFixture {
    name: String,
    source: String,
    ike: Vec<ProposalFixture>,
    esp: Vec<ProposalFixture>,
    /// The choices for IKE and for ESP; a missing one is a refusal.
    chosen: Vec<String>,
}

#[derive(Deserialize)]
struct ProposalFixture {
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

impl ProposalFixture {
    fn to_proposal(&self, number: u8, protocol: ProtocolId) -> Proposal {
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

fn read_clients() -> Vec<ClientFixture> {
    let text = include_str!("../../../../vectors/ike/clients.toml");
    let clients: ClientsFile = toml::from_str(text).unwrap();
    assert!(clients.client.iter().all(|client| !client.source.is_empty()));
    clients.client
}

/// A gateway's connection with default proposals, or with this text for its CHILD_SA.
fn gateway_connection(child: &str) -> IkeConnectionConfig {
    let text = format!(
        "[[connection]]\nname = \"users\"\nlocal_id = \"gw.test\"\nlocal_auth = \"psk\"\nremote_auth = \"psk\"\n\
         secret = \"a shared secret\"\n[[connection.child]]\nname = \"net\"\nlocal = [\"10.2.0.0/16\"]\n{child}"
    );
    (*load_config(&text).config.peers[0].connection).clone()
}

/// The transforms of a proposal, sorted.
fn sorted_transforms(proposal: &Proposal) -> Vec<(u8, u16, Option<u16>)> {
    let mut all: Vec<_> = proposal.transforms.iter().map(|t| (t.kind.0, t.id, t.key_length())).collect();
    all.sort_unstable();
    all
}

#[test]
fn the_best_proposed_algorithms_win_and_weak_ones_are_refused() {
    let connection = gateway_connection("");
    for client in read_clients() {
        let offers = |offers: &[ProposalFixture], protocol| -> Vec<Proposal> {
            (1..).zip(offers).map(|(n, offer)| offer.to_proposal(n, protocol)).collect()
        };
        let ike = choose_proposal(&connection.proposals, &offers(&client.ike, ProtocolId::IKE));
        let esp = choose_proposal(&connection.children[0].proposals, &offers(&client.esp, ProtocolId::ESP));
        let wanted = |n: usize, read: fn(&str) -> Result<Proposal, _>| {
            client.chosen.get(n).map(|words| sorted_transforms(&read(words).unwrap()))
        };
        assert_eq!(
            ike.as_ref().map(sorted_transforms),
            wanted(0, Proposal::parse_ike_proposal),
            "{} IKE",
            client.name
        );
        assert_eq!(
            esp.as_ref().map(sorted_transforms),
            wanted(1, Proposal::parse_esp_proposal),
            "{} ESP",
            client.name
        );
    }
}

#[test]
fn windows_gets_its_child_sa_where_the_file_allows_sha1_in_it() {
    let connection =
        gateway_connection("proposals = [\"aes256gcm16-aes128gcm16\", \"aes256-sha256-sha1\"]\n");
    for client in read_clients().iter().filter(|client| client.name.starts_with("Windows")) {
        let chosen = choose_proposal(
            &connection.children[0].proposals,
            &[client.esp[0].to_proposal(1, ProtocolId::ESP)],
        )
        .unwrap();
        assert_eq!(
            sorted_transforms(&chosen),
            sorted_transforms(&Proposal::parse_esp_proposal("aes256-sha1").unwrap()),
            "{}",
            client.name
        );
    }
}

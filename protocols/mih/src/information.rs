//! The store of the information service: networks with their points of attachment, and the answers to binary queries
//! (IEEE 802.21-2008 clause 6.5).

use crate::{
    BinaryQuery, InformationElementType, LinkType, MihfMessage, NetworkInfo, NetworkList, Status,
    TechnologySet, Tlv, kind,
};
use alloc::vec::Vec;

/// The networks of an information server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InformationStore {
    /// The networks, in the order of the answers.
    pub networks: Vec<NetworkInfo>,
}

impl InformationStore {
    /// Returns the parameters of a Get_Information response: a list of networks for each binary query, truncated to
    /// the request's maximum response size. A request without a supported query fails.
    #[must_use]
    pub fn response_parameters(&self, request: &MihfMessage) -> Vec<Tlv> {
        let Some(Tlv::Queries(queries)) = request.get(kind::QUERY_LIST) else {
            return alloc::vec![Tlv::Status(Status::UnspecifiedFailure)];
        };
        let mut answers: Vec<NetworkList> =
            queries.iter().map(|q| NetworkList(self.find_networks(q))).collect();
        if let Some(Tlv::MaxResponseSize(most)) = request.get(kind::MAX_RESPONSE_SIZE) {
            truncate_answers(&mut answers, usize::from(*most));
        }
        alloc::vec![Tlv::Status(Status::Success), Tlv::Answers(answers)]
    }

    /// Returns the networks that match a query, with the elements that it requests. The report limit counts networks,
    /// the first as 1. This is an assumption, because the standard's text was not available.
    #[must_use]
    pub fn find_networks(&self, query: &BinaryQuery) -> Vec<NetworkInfo> {
        let wanted = |network: &&NetworkInfo| {
            let technology = network.network.as_ref().and_then(|n| n.technology);
            let technology =
                query.technologies.is_none_or(|set| technology.is_some_and(|t| has_technology(set, t)));
            let name = query.networks.as_ref();
            technology && name.is_none_or(|names| network.name.as_ref().is_some_and(|n| names.contains(n)))
        };
        let (skip, most) = match &query.limit {
            Some(limit) => (usize::from(limit.first.saturating_sub(1)), usize::from(limit.most)),
            None => (0, usize::MAX),
        };
        let found = self.networks.iter().filter(wanted).skip(skip).take(most);
        found.map(|network| apply_template(network, query.elements.as_deref())).collect()
    }
}

/// True if the set contains the technology. Bits count from the left.
fn has_technology(set: TechnologySet, technology: LinkType) -> bool {
    let bit = u32::from(technology.octet());
    bit < u32::BITS && set.has(TechnologySet(1 << (u32::BITS - 1 - bit)))
}

/// Returns the part of a network that a report template selects. A container stands for all its elements.
fn apply_template(network: &NetworkInfo, template: Option<&[InformationElementType]>) -> NetworkInfo {
    let Some(template) = template else { return network.clone() };
    let wants = |kinds: &[InformationElementType]| kinds.iter().any(|kind| template.contains(kind));
    const ALL: [InformationElementType; 2] =
        [InformationElementType::NETWORK, InformationElementType::LIST_OF_NETWORKS];
    let all = wants(&ALL);
    let location = all || wants(&[InformationElementType::POA, InformationElementType::POA_LOCATION]);
    let poas = location || wants(&[InformationElementType::POA_LINK_ADDR]);
    let mut out = NetworkInfo {
        network: network.network.clone().filter(|_| all || wants(&[InformationElementType::NETWORK_TYPE])),
        operator: network.operator.clone().filter(|_| all || wants(&[InformationElementType::OPERATOR_ID])),
        name: network.name.clone().filter(|_| all || wants(&[InformationElementType::NETWORK_ID])),
        poas: if poas { network.poas.clone() } else { Vec::new() },
    };
    if !location {
        out.poas.iter_mut().for_each(|poa| poa.location = None);
    }
    out
}

/// Removes networks from the end until the answers fit into `most` octets.
fn truncate_answers(answers: &mut [NetworkList], most: usize) {
    let mut octets = Tlv::Answers(answers.to_vec()).encoded_length();
    for i in (0..answers.len()).rev() {
        while octets > most && answers[i].0.pop().is_some() {
            octets = Tlv::Answers(answers.to_vec()).encoded_length();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkAddr, MessageId, NetworkType, PoaInfo, ReportLimit};

    fn sample_network(technology: LinkType, name: &str) -> NetworkInfo {
        NetworkInfo {
            network: Some(NetworkType::for_technology(technology)),
            operator: None,
            name: Some(name.as_bytes().to_vec()),
            poas: alloc::vec![PoaInfo {
                address: LinkAddr::Mac([2, 0, 0, 0, 0, name.len() as u8]),
                location: Some(alloc::vec![1, 2, 3]),
            }],
        }
    }

    fn sample_store() -> InformationStore {
        let networks = alloc::vec![
            sample_network(LinkType::Ieee80211, "a"),
            sample_network(LinkType::Ieee80216, "bb"),
            sample_network(LinkType::Ieee80211, "ccc"),
        ];
        InformationStore { networks }
    }

    fn found_network_names(query: &BinaryQuery) -> Vec<String> {
        let found = sample_store().find_networks(query);
        found.iter().map(|n| String::from_utf8(n.name.clone().unwrap()).unwrap()).collect()
    }

    #[test]
    fn a_query_says_which_networks() {
        assert_eq!(found_network_names(&BinaryQuery::default()), ["a", "bb", "ccc"]);
        let wifi = BinaryQuery { technologies: Some(TechnologySet::IEEE_802_11), ..BinaryQuery::default() };
        assert_eq!(found_network_names(&wifi), ["a", "ccc"]);
        let limit = Some(ReportLimit { most: 1, first: 2 });
        assert_eq!(found_network_names(&BinaryQuery { limit, ..wifi }), ["ccc"]);
        let networks = Some(alloc::vec![b"bb".to_vec(), b"x".to_vec()]);
        assert_eq!(found_network_names(&BinaryQuery { networks, ..BinaryQuery::default() }), ["bb"]);
    }

    #[test]
    fn a_template_says_which_elements() {
        let elements =
            Some(alloc::vec![InformationElementType::NETWORK_TYPE, InformationElementType::POA_LINK_ADDR]);
        let found = sample_store().find_networks(&BinaryQuery { elements, ..BinaryQuery::default() });
        assert!(found[0].network.is_some() && found[0].name.is_none());
        assert_eq!((found[0].poas.len(), &found[0].poas[0].location), (1, &None));
        let elements = Some(alloc::vec![InformationElementType::NETWORK]);
        assert_eq!(
            sample_store().find_networks(&BinaryQuery { elements, ..BinaryQuery::default() }),
            sample_store().networks
        );
        let elements = Some(alloc::vec![InformationElementType::NETWORK_ID]);
        assert!(
            sample_store().find_networks(&BinaryQuery { elements, ..BinaryQuery::default() })[1]
                .poas
                .is_empty()
        );
    }

    #[test]
    fn an_answer_is_no_longer_than_wanted() {
        let query = Tlv::Queries(alloc::vec![BinaryQuery::default(); 2]);
        let ask = |params: Vec<Tlv>| {
            sample_store().response_parameters(&MihfMessage::new(MessageId::GET_INFORMATION_REQUEST, params))
        };
        let full = ask(alloc::vec![query.clone()]);
        assert_eq!(full[0], Tlv::Status(Status::Success));
        let most = full[1].encoded_length() as u16 - 1;
        let short = ask(alloc::vec![query.clone(), Tlv::MaxResponseSize(most)]);
        assert!(short[1].encoded_length() <= usize::from(most));
        let Tlv::Answers(answers) = &short[1] else { panic!("{short:?}") };
        assert_eq!(answers.iter().map(|a| a.0.len()).collect::<Vec<_>>(), [3, 2]);
        let none = ask(alloc::vec![query, Tlv::MaxResponseSize(0)]);
        let Tlv::Answers(answers) = &none[1] else { panic!("{none:?}") };
        assert!(answers.iter().all(|a| a.0.is_empty()));
    }

    #[test]
    fn without_a_query_there_is_no_answer() {
        let failed = [Tlv::Status(Status::UnspecifiedFailure)];
        assert_eq!(
            sample_store().response_parameters(&MihfMessage::new(MessageId::GET_INFORMATION_REQUEST, [])),
            failed
        );
    }
}

//! Information elements: binary queries of the information service and their answers.
//!
//! An element has a type of four octets, a length and a value. A container's value is a series of elements. This
//! module types the elements that a station needs to find a network: type, operator, name, and points of attachment
//! with their addresses and locations. The parser skips all others.

use crate::handover::NetworkType;
use crate::link::LinkAddr;
use crate::wire::{
    ValueError, WireValue, bitmap, codes, read_mih_length, read_whole_value, sequence, write_mih_length,
};
use alloc::vec::Vec;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

/// The type of an information element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InformationElementType(pub u32);

impl InformationElementType {
    /// IE_NETWORK_TYPE.
    pub const NETWORK_TYPE: Self = Self(0x1000_0000);
    /// IE_OPERATOR_ID.
    pub const OPERATOR_ID: Self = Self(0x1000_0001);
    /// IE_NETWORK_ID.
    pub const NETWORK_ID: Self = Self(0x1000_0100);
    /// IE_POA_LINK_ADDR.
    pub const POA_LINK_ADDR: Self = Self(0x1000_0200);
    /// IE_POA_LOCATION.
    pub const POA_LOCATION: Self = Self(0x1000_0201);
    /// IE_CONTAINER_LIST_OF_NETWORKS.
    pub const LIST_OF_NETWORKS: Self = Self(0x1000_0300);
    /// IE_CONTAINER_NETWORK.
    pub const NETWORK: Self = Self(0x1000_0301);
    /// IE_CONTAINER_POA.
    pub const POA: Self = Self(0x1000_0302);
}

impl WireValue for InformationElementType {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        w.write_u32(self.0);
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        Ok(Self(r.read_u32()?))
    }
}

bitmap! {
    /// Technologies to which an answer is limited (NET_TYPE_INC): bit n of [`crate::LinkType`] n, up to 31. The bit
    /// numbers are not checked against the standard, because its text was not available.
    TechnologySet: u32 {
        /// Ethernet.
        ETHERNET = 15,
        /// 802.11.
        IEEE_802_11 = 19,
        /// 802.16.
        IEEE_802_16 = 27,
    }
}

sequence! {
    /// Limits of an answer (RPT_LIMIT).
    ReportLimit {
        /// Maximum number of elements.
        most: u16,
        /// Index of the first element.
        first: u16,
    }
}

/// A binary query (IQ_BIN_DATA). A query with the location of its station (QUERIER_LOC) is not of this type: its
/// parameter stays untyped.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BinaryQuery {
    /// Only networks of these technologies.
    pub technologies: Option<TechnologySet>,
    /// Only these networks.
    pub networks: Option<Vec<Vec<u8>>>,
    /// Only these elements (RPT_TEMPL).
    pub elements: Option<Vec<InformationElementType>>,
    /// Only this part of the answer.
    pub limit: Option<ReportLimit>,
    /// The currency of costs (CURR_PREF), three letters.
    pub currency: Option<[u8; 3]>,
}

impl WireValue for BinaryQuery {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        w.write_u8(0);
        self.technologies.write_to(w);
        self.networks.write_to(w);
        self.elements.write_to(w);
        self.limit.write_to(w);
        self.currency.write_to(w);
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        match r.read_u8()? {
            0 => Ok(Self {
                technologies: WireValue::read_from(r)?,
                networks: WireValue::read_from(r)?,
                elements: WireValue::read_from(r)?,
                limit: WireValue::read_from(r)?,
                currency: WireValue::read_from(r)?,
            }),
            other => Err(ValueError::Choice(other)),
        }
    }
}

codes! {
    /// The namespace of an operator's name (OP_NAMESPACE).
    OperatorSpace {
        /// GSM and UMTS.
        Gsm = 0 "GSM",
        /// CDMA.
        Cdma = 1 "CDMA",
        /// Realms.
        Realm = 2 "realm",
        /// ITU-T and TSB.
        Itu = 3 "ITU-T",
        /// Others.
        General = 4 "general",
    }
}

sequence! {
    /// A network's operator (OPERATOR_ID).
    Operator {
        /// The operator's name.
        name: Vec<u8>,
        /// The name space of the name.
        space: OperatorSpace,
    }
}

/// A point of attachment (IE_CONTAINER_POA).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PoaInfo {
    /// Its address.
    pub address: LinkAddr,
    /// Its location (LOCATION), as unparsed octets.
    pub location: Option<Vec<u8>>,
}

/// A network (IE_CONTAINER_NETWORK).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NetworkInfo {
    /// The network type.
    pub network: Option<NetworkType>,
    /// Its operator.
    pub operator: Option<Operator>,
    /// Its name.
    pub name: Option<Vec<u8>>,
    /// Its points of attachment.
    pub poas: Vec<PoaInfo>,
}

/// An answer to a binary query (IR_BIN_DATA): the networks found (IE_CONTAINER_LIST_OF_NETWORKS).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NetworkList(pub Vec<NetworkInfo>);

fn write_information_element(
    w: &mut OctetWriter<'_>,
    kind: InformationElementType,
    fill: impl FnOnce(&mut OctetWriter<'_>),
) {
    let mut value = Vec::new();
    fill(&mut OctetWriter::new(&mut value));
    kind.write_to(w);
    write_mih_length(w, value.len());
    w.write_bytes(&value);
}

/// Returns the type and value of the next element.
fn read_element<'a>(r: &mut OctetReader<'a>) -> Result<(InformationElementType, &'a [u8]), ValueError> {
    let kind = InformationElementType::read_from(r)?;
    let n = read_mih_length(r)?;
    if n > r.remaining() {
        return Err(TruncatedInputError { needed: n, left: r.remaining() }.into());
    }
    Ok((kind, r.read_bytes(n)?))
}

impl PoaInfo {
    fn write_elements(&self, w: &mut OctetWriter<'_>) {
        write_information_element(w, InformationElementType::POA_LINK_ADDR, |w| self.address.write_to(w));
        if let Some(location) = &self.location {
            write_information_element(w, InformationElementType::POA_LOCATION, |w| {
                w.write_bytes(location);
            });
        }
    }
    fn read_elements(octets: &[u8]) -> Result<Self, ValueError> {
        let mut r = OctetReader::new(octets);
        let (mut address, mut location) = (None, None);
        while !r.is_empty() {
            match read_element(&mut r)? {
                (InformationElementType::POA_LINK_ADDR, value) => address = Some(read_whole_value(value)?),
                (InformationElementType::POA_LOCATION, value) => location = Some(value.to_vec()),
                _ => {}
            }
        }
        let address = address.ok_or(ValueError::Form(InformationElementType::POA.0.into()))?;
        Ok(Self { address, location })
    }
}

impl NetworkInfo {
    fn write_elements(&self, w: &mut OctetWriter<'_>) {
        if let Some(network) = &self.network {
            write_information_element(w, InformationElementType::NETWORK_TYPE, |w| network.write_to(w));
        }
        if let Some(operator) = &self.operator {
            write_information_element(w, InformationElementType::OPERATOR_ID, |w| operator.write_to(w));
        }
        if let Some(name) = &self.name {
            write_information_element(w, InformationElementType::NETWORK_ID, |w| name.write_to(w));
        }
        for poa in &self.poas {
            write_information_element(w, InformationElementType::POA, |w| poa.write_elements(w));
        }
    }
    fn read_elements(octets: &[u8]) -> Result<Self, ValueError> {
        let mut r = OctetReader::new(octets);
        let mut info = Self::default();
        while !r.is_empty() {
            match read_element(&mut r)? {
                (InformationElementType::NETWORK_TYPE, value) => {
                    info.network = Some(read_whole_value(value)?)
                }
                (InformationElementType::OPERATOR_ID, value) => {
                    info.operator = Some(read_whole_value(value)?)
                }
                (InformationElementType::NETWORK_ID, value) => info.name = Some(read_whole_value(value)?),
                (InformationElementType::POA, value) => info.poas.push(PoaInfo::read_elements(value)?),
                _ => {}
            }
        }
        Ok(info)
    }
}

impl WireValue for NetworkList {
    fn write_to(&self, w: &mut OctetWriter<'_>) {
        write_information_element(w, InformationElementType::LIST_OF_NETWORKS, |w| {
            for network in &self.0 {
                write_information_element(w, InformationElementType::NETWORK, |w| network.write_elements(w));
            }
        });
    }
    fn read_from(r: &mut OctetReader<'_>) -> Result<Self, ValueError> {
        let (kind, value) = read_element(r)?;
        if kind != InformationElementType::LIST_OF_NETWORKS {
            return Err(ValueError::Form(kind.0.into()));
        }
        let mut networks = Vec::new();
        let mut r = OctetReader::new(value);
        while !r.is_empty() {
            if let (InformationElementType::NETWORK, value) = read_element(&mut r)? {
                networks.push(NetworkInfo::read_elements(value)?);
            }
        }
        Ok(Self(networks))
    }
}

//! Information elements: binary queries of the information service, and what answers them.
//!
//! An element has a type of four octets, a length and a value; a container's value is elements again. Of the
//! standard's elements those are typed here that a station needs to find a network: type, operator, name, points of
//! attachment with their addresses and places. Others are passed over when a response is read.

use crate::handover::NetworkType;
use crate::link::LinkAddr;
use crate::wire::{ValueError, Wire, bitmap, codes, get_length, put_length, sequence, whole};
use alloc::vec::Vec;
use usher_core::{Reader, Truncated, Writer};

/// The type of an information element.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ElementType(pub u32);

impl ElementType {
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

impl Wire for ElementType {
    fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.0);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, ValueError> {
        Ok(Self(r.u32()?))
    }
}

bitmap! {
    /// Technologies to which an answer is confined (NET_TYPE_INC): bit n of [`crate::LinkType`] n, up to 31. The
    /// standard's own numbering of these bits was not at hand.
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
    /// How much of an answer is wanted (RPT_LIMIT).
    ReportLimit {
        /// At most so many elements.
        most: u16,
        /// Beginning with this one.
        first: u16,
    }
}

/// A binary query (IQ_BIN_DATA). One that says where the asking station is (QUERIER_LOC) is not of this type: its
/// parameter is kept as it came.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Query {
    /// Networks of these technologies alone.
    pub technologies: Option<TechnologySet>,
    /// These networks alone.
    pub networks: Option<Vec<Vec<u8>>>,
    /// These elements alone (RPT_TEMPL).
    pub elements: Option<Vec<ElementType>>,
    /// So much alone.
    pub limit: Option<ReportLimit>,
    /// The currency of costs (CURR_PREF), three letters.
    pub currency: Option<[u8; 3]>,
}

impl Wire for Query {
    fn put(&self, w: &mut Writer<'_>) {
        w.u8(0);
        self.technologies.put(w);
        self.networks.put(w);
        self.elements.put(w);
        self.limit.put(w);
        self.currency.put(w);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, ValueError> {
        match r.u8()? {
            0 => Ok(Self {
                technologies: Wire::get(r)?,
                networks: Wire::get(r)?,
                elements: Wire::get(r)?,
                limit: Wire::get(r)?,
                currency: Wire::get(r)?,
            }),
            other => Err(ValueError::Choice(other)),
        }
    }
}

codes! {
    /// Whose names an operator's are (OP_NAMESPACE).
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
        /// Its name.
        name: Vec<u8>,
        /// Whose name it is.
        space: OperatorSpace,
    }
}

/// A point of attachment (IE_CONTAINER_POA).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PoaInfo {
    /// Its address.
    pub address: LinkAddr,
    /// Where it is: a LOCATION, whose octets are not looked into.
    pub location: Option<Vec<u8>>,
}

/// A network (IE_CONTAINER_NETWORK).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NetworkInfo {
    /// Its kind.
    pub network: Option<NetworkType>,
    /// Its operator.
    pub operator: Option<Operator>,
    /// Its name.
    pub name: Option<Vec<u8>>,
    /// Its points of attachment.
    pub poas: Vec<PoaInfo>,
}

/// An answer to a binary query (IR_BIN_DATA): the networks there are (IE_CONTAINER_LIST_OF_NETWORKS).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Networks(pub Vec<NetworkInfo>);

fn put_element(w: &mut Writer<'_>, kind: ElementType, fill: impl FnOnce(&mut Writer<'_>)) {
    let mut value = Vec::new();
    fill(&mut Writer::new(&mut value));
    kind.put(w);
    put_length(w, value.len());
    w.bytes(&value);
}

/// The next element's type and value.
fn element<'a>(r: &mut Reader<'a>) -> Result<(ElementType, &'a [u8]), ValueError> {
    let kind = ElementType::get(r)?;
    let n = get_length(r)?;
    if n > r.remaining() {
        return Err(Truncated { needed: n, left: r.remaining() }.into());
    }
    Ok((kind, r.bytes(n)?))
}

impl PoaInfo {
    fn put(&self, w: &mut Writer<'_>) {
        put_element(w, ElementType::POA_LINK_ADDR, |w| self.address.put(w));
        if let Some(location) = &self.location {
            put_element(w, ElementType::POA_LOCATION, |w| {
                w.bytes(location);
            });
        }
    }
    fn read(octets: &[u8]) -> Result<Self, ValueError> {
        let mut r = Reader::new(octets);
        let (mut address, mut location) = (None, None);
        while !r.is_empty() {
            match element(&mut r)? {
                (ElementType::POA_LINK_ADDR, value) => address = Some(whole(value)?),
                (ElementType::POA_LOCATION, value) => location = Some(value.to_vec()),
                _ => {}
            }
        }
        let address = address.ok_or(ValueError::Form(ElementType::POA.0.into()))?;
        Ok(Self { address, location })
    }
}

impl NetworkInfo {
    fn put(&self, w: &mut Writer<'_>) {
        if let Some(network) = &self.network {
            put_element(w, ElementType::NETWORK_TYPE, |w| network.put(w));
        }
        if let Some(operator) = &self.operator {
            put_element(w, ElementType::OPERATOR_ID, |w| operator.put(w));
        }
        if let Some(name) = &self.name {
            put_element(w, ElementType::NETWORK_ID, |w| name.put(w));
        }
        for poa in &self.poas {
            put_element(w, ElementType::POA, |w| poa.put(w));
        }
    }
    fn read(octets: &[u8]) -> Result<Self, ValueError> {
        let mut r = Reader::new(octets);
        let mut info = Self::default();
        while !r.is_empty() {
            match element(&mut r)? {
                (ElementType::NETWORK_TYPE, value) => info.network = Some(whole(value)?),
                (ElementType::OPERATOR_ID, value) => info.operator = Some(whole(value)?),
                (ElementType::NETWORK_ID, value) => info.name = Some(whole(value)?),
                (ElementType::POA, value) => info.poas.push(PoaInfo::read(value)?),
                _ => {}
            }
        }
        Ok(info)
    }
}

impl Wire for Networks {
    fn put(&self, w: &mut Writer<'_>) {
        put_element(w, ElementType::LIST_OF_NETWORKS, |w| {
            for network in &self.0 {
                put_element(w, ElementType::NETWORK, |w| network.put(w));
            }
        });
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, ValueError> {
        let (kind, value) = element(r)?;
        if kind != ElementType::LIST_OF_NETWORKS {
            return Err(ValueError::Form(kind.0.into()));
        }
        let mut networks = Vec::new();
        let mut r = Reader::new(value);
        while !r.is_empty() {
            if let (ElementType::NETWORK, value) = element(&mut r)? {
                networks.push(NetworkInfo::read(value)?);
            }
        }
        Ok(Self(networks))
    }
}

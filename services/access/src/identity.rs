//! The identity of an access server, and the port of a user.

use alloc::string::String;
use core::net::IpAddr;
use usher_diameter::nasreq::NasInfo;
use usher_radius::attribute::{AttributeList, ValueTooLong, kind};

/// NAS-Port-Type Ethernet (RFC 2865 §5.41).
pub const PORT_TYPE_ETHERNET: u32 = 15;
/// NAS-Port-Type Wireless - IEEE 802.11 (RFC 2865 §5.41).
pub const PORT_TYPE_WIRELESS_80211: u32 = 19;
/// NAS-Port-Type Wireless - IEEE 802.16 (RFC 5580 registry value).
pub const PORT_TYPE_WIRELESS_80216: u32 = 27;
/// NAS-Port-Type Virtual (RFC 2865 §5.41), for example of an IKEv2 gateway.
pub const PORT_TYPE_VIRTUAL: u32 = 5;

/// Service-Type Framed: the user gets a link (RFC 2865 §5.6, RFC 3580 §3.6).
const FRAMED: u32 = 2;

/// The identity of a NAS in its requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NasIdentity {
    /// NAS-Identifier, omitted if empty. RFC 2865 §4.1 requires this or the address.
    pub identifier: String,
    /// NAS-IP-Address or NAS-IPv6-Address, omitted if `None`.
    pub address: Option<IpAddr>,
    /// NAS-Port-Type.
    pub port_type: Option<u32>,
    /// Framed-MTU: the longest EAP packet of the user's link, octets. The server fragments by it (RFC 3579 §2.4).
    pub framed_mtu: Option<u32>,
    /// Service-Type.
    pub service_type: Option<u32>,
    /// Further attributes of every request and record.
    pub attributes: AttributeList,
}

impl NasIdentity {
    /// Returns an Ethernet switch of this name: EAP packets up to 1400 octets, framed service.
    #[must_use]
    pub fn for_ethernet(identifier: &str) -> Self {
        Self {
            identifier: identifier.into(),
            port_type: Some(PORT_TYPE_ETHERNET),
            framed_mtu: Some(1400),
            service_type: Some(FRAMED),
            ..Self::default()
        }
    }
    /// Returns an 802.16 base station of this name: EAP packets up to 1400 octets, framed service.
    #[must_use]
    pub fn for_wimax(identifier: &str) -> Self {
        Self { port_type: Some(PORT_TYPE_WIRELESS_80216), ..Self::for_ethernet(identifier) }
    }
    /// True if it has an identifier or an address (RFC 2865 §4.1).
    pub(crate) fn is_named(&self) -> bool {
        let names = [kind::NAS_IDENTIFIER, kind::NAS_IP_ADDRESS, kind::NAS_IPV6_ADDRESS];
        let said = || names.iter().any(|kind| self.attributes.get(*kind).is_some());
        !self.identifier.is_empty() || self.address.is_some() || said()
    }
    /// Appends the attributes of the NAS and the port.
    pub(crate) fn append_identity(
        &self,
        port: &NasPort<'_>,
        a: &mut AttributeList,
    ) -> Result<(), ValueTooLong> {
        match self.address {
            Some(IpAddr::V4(address)) => drop(a.push_ipv4(kind::NAS_IP_ADDRESS, address)),
            Some(IpAddr::V6(address)) => drop(a.push_ipv6(kind::NAS_IPV6_ADDRESS, address)),
            None => {}
        }
        if !self.identifier.is_empty() {
            a.push_text(kind::NAS_IDENTIFIER, &self.identifier)?;
        }
        if let Some(number) = port.number {
            a.push_u32(kind::NAS_PORT, number);
        }
        if let Some(port_type) = self.port_type {
            a.push_u32(kind::NAS_PORT_TYPE, port_type);
        }
        if let Some(service) = self.service_type {
            a.push_u32(kind::SERVICE_TYPE, service);
        }
        Ok(())
    }
    /// Returns the same for Diameter.
    pub(crate) fn nas_info<'a>(&'a self, port: &NasPort<'a>) -> NasInfo<'a> {
        NasInfo {
            identifier: (!self.identifier.is_empty()).then_some(&self.identifier),
            address: self.address,
            port: port.number,
            port_id: port.id,
            port_type: self.port_type,
            called_station: port.called_station,
            calling_station: port.calling_station,
            framed_mtu: None,
            service_type: self.service_type,
        }
    }
}

/// The port of a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NasPort<'a> {
    /// NAS-Port.
    pub number: Option<u32>,
    /// NAS-Port-Id (RFC 2869 §5.17).
    pub id: Option<&'a str>,
    /// Calling-Station-Id: the user's address in the access network.
    pub calling_station: Option<&'a str>,
    /// Called-Station-Id: the NAS's address there.
    pub called_station: Option<&'a str>,
    /// The longest packet of this user's link, octets, if known.
    pub mtu: Option<u16>,
}

impl NasPort<'_> {
    /// Framed-MTU: the smaller limit of this link and of the NAS.
    pub(crate) fn framed_mtu(&self, nas: &NasIdentity) -> Option<u32> {
        let own = self.mtu.map(u32::from);
        own.into_iter().chain(nas.framed_mtu).min()
    }

    /// Appends the station attributes, after those of [`NasIdentity::append_identity`].
    pub(crate) fn append_stations(&self, a: &mut AttributeList) -> Result<(), ValueTooLong> {
        let texts = [
            (kind::CALLING_STATION_ID, self.calling_station),
            (kind::CALLED_STATION_ID, self.called_station),
            (kind::NAS_PORT_ID, self.id),
        ];
        for (kind, text) in texts {
            if let Some(text) = text {
                a.push_text(kind, text)?;
            }
        }
        Ok(())
    }
}

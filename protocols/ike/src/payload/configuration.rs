//! Configuration payloads (RFC 7296 §3.15).

use crate::ParseError;
use crate::code::{CfgType, ConfigurationType};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::{OctetReader, OctetWriter};

/// An attribute with a value, or a request for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurationAttribute {
    /// Its type, in 15 bits.
    pub kind: ConfigurationType,
    /// The value, at most 65535 octets. Empty in a request for any value.
    pub value: Vec<u8>,
}

impl ConfigurationAttribute {
    /// Creates a request for any value.
    #[must_use]
    pub const fn requested_attribute(kind: ConfigurationType) -> Self {
        Self { kind, value: Vec::new() }
    }
    /// Creates an internal address. An IPv6 address is followed by its prefix length.
    #[must_use]
    pub fn from_address(address: IpAddr, prefix: u8) -> Self {
        match address {
            IpAddr::V4(v4) => {
                Self { kind: ConfigurationType::INTERNAL_IP4_ADDRESS, value: v4.octets().to_vec() }
            }
            IpAddr::V6(v6) => {
                let mut value = v6.octets().to_vec();
                value.push(prefix);
                Self { kind: ConfigurationType::INTERNAL_IP6_ADDRESS, value }
            }
        }
    }
    /// Creates a name server.
    #[must_use]
    pub fn from_name_server(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self { kind: ConfigurationType::INTERNAL_IP4_DNS, value: v4.octets().to_vec() },
            IpAddr::V6(v6) => Self { kind: ConfigurationType::INTERNAL_IP6_DNS, value: v6.octets().to_vec() },
        }
    }
    /// Returns the internal address, if it is such an attribute with a value.
    #[must_use]
    pub fn internal_address(&self) -> Option<IpAddr> {
        let internal = [ConfigurationType::INTERNAL_IP4_ADDRESS, ConfigurationType::INTERNAL_IP6_ADDRESS]
            .contains(&self.kind);
        self.as_address().filter(|_| internal)
    }
    /// Returns the name server, if it is such an attribute with a value.
    #[must_use]
    pub fn name_server(&self) -> Option<IpAddr> {
        let servers = [ConfigurationType::INTERNAL_IP4_DNS, ConfigurationType::INTERNAL_IP6_DNS];
        self.as_address().filter(|_| servers.contains(&self.kind))
    }
    /// Returns the address at the start of the value, if the length fits.
    #[must_use]
    pub fn as_address(&self) -> Option<IpAddr> {
        match (self.value.len(), &self.value[..]) {
            (4 | 8, v4) => v4.first_chunk::<4>().map(|v4| Ipv4Addr::from(*v4).into()),
            (16 | 17, v6) => v6.first_chunk::<16>().map(|v6| Ipv6Addr::from(*v6).into()),
            _ => None,
        }
    }
}

/// A Configuration payload: a request or its reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurationPayload {
    /// Request, reply, set or acknowledgement.
    pub kind: CfgType,
    /// The attributes.
    pub attributes: Vec<ConfigurationAttribute>,
}

impl ConfigurationPayload {
    /// The attributes of a type.
    pub fn attributes_of_kind(
        &self,
        kind: ConfigurationType,
    ) -> impl Iterator<Item = &ConfigurationAttribute> {
        self.attributes.iter().filter(move |attribute| attribute.kind == kind)
    }

    pub(super) fn parse(mut reader: OctetReader<'_>) -> Result<Self, ParseError> {
        let (kind, _) = (CfgType(reader.read_u8()?), reader.read_bytes(3)?);
        let mut attributes = Vec::new();
        while !reader.is_empty() {
            // The highest bit is reserved.
            let kind = ConfigurationType(reader.read_u16()? & !(1 << 15));
            let length = reader.read_u16()?;
            attributes
                .push(ConfigurationAttribute { kind, value: reader.read_bytes(length.into())?.to_vec() });
        }
        Ok(Self { kind, attributes })
    }
    pub(super) fn emit(&self, writer: &mut OctetWriter<'_>) {
        writer.write_u8(self.kind.0).write_zeros(3);
        for attribute in &self.attributes {
            writer
                .write_u16(attribute.kind.0)
                .write_u16(attribute.value.len() as u16)
                .write_bytes(&attribute.value);
        }
    }
}

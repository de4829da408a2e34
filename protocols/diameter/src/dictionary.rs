//! Names, types and rules of applications, AVPs, enumerations and commands as data, and the checks by them. The head of
//! `base.txt` explains the data's format.

mod check;
mod parse;

use crate::avp::AvpView;
use crate::message::MessageView;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

pub use parse::DictionarySyntaxError;

/// The built-in dictionary's text.
pub const BASE: &str = include_str!("dictionary/base.txt");

/// A data format of RFC 6733 §4.2 to §4.4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AvpDataFormat {
    /// Any bytes.
    OctetString,
    /// 32 bits, signed.
    Integer32,
    /// 64 bits, signed.
    Integer64,
    /// 32 bits.
    Unsigned32,
    /// 64 bits.
    Unsigned64,
    /// IEEE single precision.
    Float32,
    /// IEEE double precision.
    Float64,
    /// AVPs.
    Grouped,
    /// Family and address.
    Address,
    /// Seconds since 1900.
    Time,
    /// UTF-8 text.
    Utf8String,
    /// A host or realm name.
    DiameterIdentity,
    /// An `aaa://` URI.
    DiameterUri,
    /// 32 bits with names.
    Enumerated,
    /// A packet filter rule.
    IpFilterRule,
}

/// The rule on an AVP's M flag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AvpFlagRule {
    /// Must be set.
    Must,
    /// Must not be set.
    MustNot,
    /// Either.
    May,
}

/// The definition of an AVP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AvpDef {
    /// AVP Code (of the IETF).
    pub code: u32,
    /// Name.
    pub name: String,
    /// Data format.
    pub kind: AvpDataFormat,
    /// Rule on the M flag.
    pub mandatory: AvpFlagRule,
    /// Names of an enumeration's values.
    pub values: BTreeMap<u32, String>,
}

/// The permitted number of an AVP in a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AvpOccurrence {
    /// The AVP's code.
    pub code: u32,
    /// The minimum number.
    pub min: u32,
    /// The maximum number.
    pub max: u32,
}

/// The definition of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiameterCommandDef {
    /// Command code.
    pub code: u32,
    /// Name without `-Request` or `-Answer`.
    pub name: String,
    /// The application that defines it.
    pub application: u32,
    /// True if its P flag is set.
    pub proxiable: bool,
    /// Rules on the request's AVPs; others are allowed.
    pub request: Vec<AvpOccurrence>,
    /// Rules on the answer's AVPs; others are allowed.
    pub answer: Vec<AvpOccurrence>,
}

/// AVP codes below this have an array of formats. All codes of [`BASE`] are below.
const SMALL: usize = 512;

/// A dictionary with lookups by number and by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiameterDictionary {
    avps: BTreeMap<u32, AvpDef>,
    /// Data formats for codes below [`SMALL`]. An array, since every AVP of every request is looked up.
    kinds: Vec<Option<AvpDataFormat>>,
    avp_names: BTreeMap<String, u32>,
    commands: BTreeMap<u32, DiameterCommandDef>,
    applications: BTreeMap<u32, String>,
}

impl DiameterDictionary {
    /// Returns the built-in dictionary: RFC 6733, 7155, 4072.
    pub fn builtin() -> Self {
        Self::parse(BASE).unwrap_or_default()
    }
    /// The AVP of this code.
    pub fn avp_by_code(&self, code: u32) -> Option<&AvpDef> {
        self.avps.get(&code)
    }
    /// The data format of the AVP of this code.
    fn data_format(&self, code: u32) -> Option<AvpDataFormat> {
        match self.kinds.get(code as usize) {
            Some(kind) => *kind,
            None => self.avp_by_code(code).map(|def| def.kind),
        }
    }
    /// The AVP of this name.
    pub fn avp_by_name(&self, name: &str) -> Option<&AvpDef> {
        self.avp_by_code(*self.avp_names.get(name)?)
    }
    /// The command of this code.
    pub fn command_by_code(&self, code: u32) -> Option<&DiameterCommandDef> {
        self.commands.get(&code)
    }
    /// The command of this name.
    pub fn command_by_name(&self, name: &str) -> Option<&DiameterCommandDef> {
        self.commands.values().find(|c| c.name == name)
    }
    /// The name of an application.
    pub fn application_name(&self, id: u32) -> Option<&str> {
        self.applications.get(&id).map(String::as_str)
    }
    /// All AVPs in the order of their codes.
    pub fn avps(&self) -> impl Iterator<Item = &AvpDef> {
        self.avps.values()
    }
    /// All commands in the order of their codes.
    pub fn commands(&self) -> impl Iterator<Item = &DiameterCommandDef> {
        self.commands.values()
    }
    /// Formats a message with names: one line for the header and one for each AVP.
    pub fn display_message<'a>(&'a self, message: &'a MessageView<'a>) -> impl fmt::Display + 'a {
        DiameterMessageDisplay { dictionary: self, message }
    }

    fn write_avp(&self, f: &mut fmt::Formatter<'_>, avp: AvpView<'_>, depth: usize) -> fmt::Result {
        write!(f, "\n{:1$}", "", 2 * depth)?;
        let def = self.avp_by_code(avp.code).filter(|_| avp.vendor == 0);
        let Some(def) = def else { return write!(f, "{avp}") };
        f.write_str(&def.name)?;
        match def.kind {
            AvpDataFormat::Grouped if depth <= crate::avp::MAX_DEPTH => match avp.as_group() {
                Ok(mut inner) => inner.try_for_each(|a| self.write_avp(f, a, depth + 1)),
                Err(_) => f.write_str(" (malformed)"),
            },
            AvpDataFormat::Unsigned32 | AvpDataFormat::Enumerated => match avp.as_u32() {
                Ok(n) => match def.values.get(&n) {
                    Some(name) => write!(f, " {name} ({n})"),
                    None if def.code == 268 => write!(f, " {}", crate::ResultCode(n)),
                    None => write!(f, " {n}"),
                },
                Err(_) => f.write_str(" (malformed)"),
            },
            AvpDataFormat::Unsigned64 => match avp.as_u64() {
                Ok(n) => write!(f, " {n}"),
                Err(_) => f.write_str(" (malformed)"),
            },
            AvpDataFormat::Address => match avp.as_address() {
                Ok(crate::data::AvpAddress::Ip(ip)) => write!(f, " {ip}"),
                _ => write!(f, " {avp}"),
            },
            _ => {
                f.write_str(" ")?;
                crate::avp::write_bytes(f, avp.data)
            }
        }
    }
}

struct DiameterMessageDisplay<'a> {
    dictionary: &'a DiameterDictionary,
    message: &'a MessageView<'a>,
}

impl fmt::Display for DiameterMessageDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = self.message.header();
        let name = self.dictionary.command_by_code(h.command).map(|c| c.name.to_string());
        write!(
            f,
            "{}-{} {} application {} hop-by-hop {:#010x} end-to-end {:#010x}",
            name.unwrap_or_else(|| h.command.to_string()),
            if h.flags.is_request() { "Request" } else { "Answer" },
            h.flags,
            self.dictionary
                .application_name(h.application)
                .map_or_else(|| h.application.to_string(), ToString::to_string),
            h.hop_by_hop,
            h.end_to_end
        )?;
        self.message.avps().try_for_each(|a| self.dictionary.write_avp(f, a, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;

    #[test]
    fn names_and_numbers_both_ways() {
        let d = DiameterDictionary::parse(BASE).unwrap();
        assert_eq!(d.avps().count(), d.avp_names.len());
        for a in d.avps() {
            assert_eq!(d.avp_by_name(&a.name), Some(a));
        }
        for c in d.commands() {
            assert_eq!(d.command_by_name(&c.name), Some(c));
            assert!(!c.request.is_empty() && !c.answer.is_empty(), "{}", c.name);
        }
        assert_eq!(d.application_name(5), Some("EAP"));
        assert_eq!(d.command_by_code(268).map(|c| (c.application, c.proxiable)), Some((5, true)));
    }

    #[test]
    fn the_constants_agree_with_the_dictionary() {
        let d = DiameterDictionary::builtin();
        for (id, name) in [
            (codes::USER_NAME, "User-Name"),
            (codes::STATE, "State"),
            (codes::ORIGIN_HOST, "Origin-Host"),
            (codes::ORIGIN_REALM, "Origin-Realm"),
            (codes::DESTINATION_REALM, "Destination-Realm"),
            (codes::RESULT_CODE, "Result-Code"),
            (codes::PRODUCT_NAME, "Product-Name"),
            (codes::ERROR_MESSAGE, "Error-Message"),
            (codes::FIRMWARE_REVISION, "Firmware-Revision"),
            (codes::EAP_PAYLOAD, "EAP-Payload"),
            (codes::EAP_MASTER_SESSION_KEY, "EAP-Master-Session-Key"),
            (codes::FAILED_AVP, "Failed-AVP"),
        ] {
            let def = d.avp_by_name(name).unwrap();
            assert_eq!(def.code, id.code, "{name}");
            match def.mandatory {
                AvpFlagRule::Must => assert!(id.mandatory, "{name}"),
                AvpFlagRule::MustNot => assert!(!id.mandatory, "{name}"),
                AvpFlagRule::May => {}
            }
        }
    }
}

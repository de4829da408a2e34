//! The links of a host: as its configuration has them, and as its kernel tells of them.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::Duration;
use usher_mih::{
    LinkAddr, LinkId, LinkParam, LinkParamType, LinkParamValue, LinkState, LinkStatus, LinkStatusRequest,
    LinkTupleId, LinkType, OperationMode,
};

/// An interface as the configuration has it.
#[derive(Clone, PartialEq, Debug)]
pub struct InterfaceConfig {
    /// What the kernel calls it.
    pub name: String,
    /// Its technology; `None`: as the kernel shows it, 802.11 or Ethernet.
    pub technology: Option<LinkType>,
    /// Its MAC address, where the kernel is not to say.
    pub address: Option<[u8; 6]>,
    /// The point of attachment at its other end.
    pub poa: Option<[u8; 6]>,
    /// Others may switch it off and on.
    pub may_act: bool,
    /// When its loss is foreseen.
    pub watch: Option<WatchConfig>,
}

impl InterfaceConfig {
    /// An interface of which nothing but the name is set.
    #[must_use]
    pub fn with_name(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            technology: None,
            address: None,
            poa: None,
            may_act: false,
            watch: None,
        }
    }
}

/// A measured value of an interface below which its loss is foreseen.
#[derive(Clone, PartialEq, Debug)]
pub struct WatchConfig {
    /// The file that holds the value: a number, in whatever unit. `None`: the signal level that the kernel has of a wireless
    /// interface, in dBm.
    pub file: Option<String>,
    /// Below this the link is going down.
    pub below: f64,
    /// It has recovered when the value is higher than [`below`](Self::below) by this.
    pub hysteresis: f64,
    /// How often the value is read.
    pub interval: Duration,
    /// The forecast of the time until the link is lost.
    pub time_to_loss: Duration,
}

/// What a kernel says of an interface, when something of it has changed or somebody asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkReport {
    /// What it calls it.
    pub name: String,
    /// It is there.
    pub present: bool,
    /// It is switched on.
    pub enabled: bool,
    /// It is switched on and carries packets.
    pub up: bool,
    /// It is a wireless one.
    pub wireless: bool,
    /// Its MAC address.
    pub address: Option<[u8; 6]>,
    /// Its data rate, in kb/s.
    pub rate: Option<u64>,
    /// Its signal level, in dBm.
    pub signal: Option<i16>,
}

/// What is known of an interface.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceState {
    pub(crate) settings: InterfaceConfig,
    pub(crate) report: LinkReport,
    /// Its loss is foreseen, and it has not recovered since.
    pub(crate) going_down: bool,
}

impl InterfaceState {
    pub(crate) fn new(settings: InterfaceConfig) -> Self {
        Self { settings, report: LinkReport::default(), going_down: false }
    }
    /// Its identifier; `None` while its address is not known.
    pub(crate) fn link_id(&self) -> Option<LinkId> {
        let shown = if self.report.wireless { LinkType::Ieee80211 } else { LinkType::Ethernet };
        let address = self.settings.address.or(self.report.address)?;
        Some(LinkId::from_mac(self.settings.technology.unwrap_or(shown), address))
    }
    /// The link: the interface at its point of attachment.
    pub(crate) fn link_tuple_id(&self) -> Option<LinkTupleId> {
        Some(LinkTupleId { link: self.link_id()?, poa: self.settings.poa.map(LinkAddr::Mac) })
    }
}

/// What a status request asks of a link, as far as it is known. Numbers beyond what the parameter can say are cut to that:
/// a data rate to 65535 kb/s; a signal level is said as the 16 bits of its negative number.
pub(crate) fn link_status(link: LinkId, report: &LinkReport, asked: &LinkStatusRequest) -> LinkStatus {
    let value = |kind: &LinkParamType| match *kind {
        LinkParamType::DATA_RATE => report.rate.map(|rate| u16::try_from(rate).unwrap_or(u16::MAX)),
        LinkParamType::SIGNAL_STRENGTH | LinkParamType::RSSI_80211 => report.signal.map(i16::cast_unsigned),
        _ => None,
    };
    let param = |kind: &LinkParamType| {
        Some(LinkParam { kind: kind.clone(), value: LinkParamValue::Number(value(kind)?) })
    };
    let mode = if report.enabled { OperationMode::Normal } else { OperationMode::PoweredDown };
    let mut states = Vec::new();
    if asked.states.has(usher_mih::LinkStates::OPERATION_MODE) {
        states.push(LinkState::Operation(mode));
    }
    let params = asked.params.iter().filter_map(param).collect();
    LinkStatus { link, states, params, descriptors: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_mih::{LinkDescriptors, LinkStates};

    #[test]
    fn what_the_kernel_says_is_told_and_no_more() {
        let asked = LinkStatusRequest {
            states: LinkStates::OPERATION_MODE,
            params: alloc::vec![
                LinkParamType::DATA_RATE,
                LinkParamType::SIGNAL_STRENGTH,
                LinkParamType::THROUGHPUT
            ],
            descriptors: LinkDescriptors::default(),
        };
        let mut known = InterfaceState::new(InterfaceConfig::with_name("eth0"));
        assert_eq!(known.link_id(), None);
        known.report = LinkReport { address: Some([2; 6]), rate: Some(10_000_000), ..LinkReport::default() };
        let link = known.link_id().unwrap();
        assert_eq!(link.to_string(), "Ethernet 02:02:02:02:02:02");
        let told = link_status(link.clone(), &known.report, &asked);
        assert_eq!(told.states, [LinkState::Operation(OperationMode::PoweredDown)]);
        let rate = LinkParam { kind: LinkParamType::DATA_RATE, value: LinkParamValue::Number(65_535) };
        assert_eq!(told.params, [rate]);
        known.report = LinkReport { enabled: true, wireless: true, signal: Some(-70), ..known.report };
        assert_eq!(known.link_id().unwrap().technology, LinkType::Ieee80211);
        let told = link_status(link, &LinkReport { rate: None, ..known.report }, &asked);
        let signal =
            LinkParam { kind: LinkParamType::SIGNAL_STRENGTH, value: LinkParamValue::Number(0xffba) };
        assert_eq!(
            (told.states, told.params),
            (alloc::vec![LinkState::Operation(OperationMode::Normal)], alloc::vec![signal])
        );
    }
}

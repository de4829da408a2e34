//! The links of a host: their configuration and the kernel's reports.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::Duration;
use usher_mih::{
    LinkAddr, LinkId, LinkParam, LinkParamType, LinkParamValue, LinkState, LinkStatus, LinkStatusRequest,
    LinkTupleId, LinkType, OperationMode,
};

/// A configured interface.
#[derive(Clone, PartialEq, Debug)]
pub struct InterfaceConfig {
    /// The kernel's name of the interface.
    pub name: String,
    /// Its technology; `None`: 802.11 or Ethernet, as the kernel reports.
    pub technology: Option<LinkType>,
    /// Its MAC address, which overrides the kernel's.
    pub address: Option<[u8; 6]>,
    /// The MAC address of its point of attachment.
    pub poa: Option<[u8; 6]>,
    /// True if peers may switch it off and on.
    pub allow_actions: bool,
    /// The condition that predicts its loss.
    pub watch: Option<LinkThresholdConfig>,
}

impl InterfaceConfig {
    /// Returns an interface with a name and defaults.
    #[must_use]
    pub fn with_name(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            technology: None,
            address: None,
            poa: None,
            allow_actions: false,
            watch: None,
        }
    }
}

/// A measured value and the threshold that predicts the loss of a link.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkThresholdConfig {
    /// The file that holds the value: a number in any unit. `None`: the kernel's signal level of a wireless
    /// interface, in dBm.
    pub file: Option<String>,
    /// The link is going down while the value is below this.
    pub below: f64,
    /// The link has recovered when the value exceeds [`below`](Self::below) by this.
    pub hysteresis: f64,
    /// The interval at which the value is read.
    pub interval: Duration,
    /// The predicted time until the link is lost.
    pub time_to_loss: Duration,
}

/// The kernel's report of an interface, after a change or on request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelLinkReport {
    /// Its name.
    pub name: String,
    /// True if the interface exists.
    pub present: bool,
    /// True if it is switched on.
    pub enabled: bool,
    /// True if it is switched on and carries packets.
    pub up: bool,
    /// True if it is wireless.
    pub wireless: bool,
    /// Its MAC address.
    pub address: Option<[u8; 6]>,
    /// Its data rate, in kb/s.
    pub rate: Option<u64>,
    /// Its signal level, in dBm.
    pub signal: Option<i16>,
}

/// The state of an interface.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceState {
    pub(crate) settings: InterfaceConfig,
    pub(crate) report: KernelLinkReport,
    /// True if its loss is predicted and it has not recovered since.
    pub(crate) going_down: bool,
}

impl InterfaceState {
    pub(crate) fn new(settings: InterfaceConfig) -> Self {
        Self { settings, report: KernelLinkReport::default(), going_down: false }
    }
    /// Returns its identifier; `None` while its address is unknown.
    pub(crate) fn link_id(&self) -> Option<LinkId> {
        let shown = if self.report.wireless { LinkType::Ieee80211 } else { LinkType::Ethernet };
        let address = self.settings.address.or(self.report.address)?;
        Some(LinkId::from_mac(self.settings.technology.unwrap_or(shown), address))
    }
    /// Returns the link: the interface at its point of attachment.
    pub(crate) fn link_tuple_id(&self) -> Option<LinkTupleId> {
        Some(LinkTupleId { link: self.link_id()?, poa: self.settings.poa.map(LinkAddr::Mac) })
    }
}

/// Returns the requested status of a link, as far as it is known. Values are limited to the parameter's range: a data
/// rate to 65535 kb/s. A negative signal level is encoded as 16 bits in two's complement.
pub(crate) fn link_status(link: LinkId, report: &KernelLinkReport, asked: &LinkStatusRequest) -> LinkStatus {
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
    if asked.states.has(usher_mih::ReportedLinkStates::OPERATION_MODE) {
        states.push(LinkState::Operation(mode));
    }
    let params = asked.params.iter().filter_map(param).collect();
    LinkStatus { link, states, params, descriptors: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_mih::{LinkDescriptors, ReportedLinkStates};

    #[test]
    fn what_the_kernel_says_is_told_and_no_more() {
        let asked = LinkStatusRequest {
            states: ReportedLinkStates::OPERATION_MODE,
            params: alloc::vec![
                LinkParamType::DATA_RATE,
                LinkParamType::SIGNAL_STRENGTH,
                LinkParamType::THROUGHPUT
            ],
            descriptors: LinkDescriptors::default(),
        };
        let mut known = InterfaceState::new(InterfaceConfig::with_name("eth0"));
        assert_eq!(known.link_id(), None);
        known.report =
            KernelLinkReport { address: Some([2; 6]), rate: Some(10_000_000), ..KernelLinkReport::default() };
        let link = known.link_id().unwrap();
        assert_eq!(link.to_string(), "Ethernet 02:02:02:02:02:02");
        let told = link_status(link.clone(), &known.report, &asked);
        assert_eq!(told.states, [LinkState::Operation(OperationMode::PoweredDown)]);
        let rate = LinkParam { kind: LinkParamType::DATA_RATE, value: LinkParamValue::Number(65_535) };
        assert_eq!(told.params, [rate]);
        known.report = KernelLinkReport { enabled: true, wireless: true, signal: Some(-70), ..known.report };
        assert_eq!(known.link_id().unwrap().technology, LinkType::Ieee80211);
        let told = link_status(link, &KernelLinkReport { rate: None, ..known.report }, &asked);
        let signal =
            LinkParam { kind: LinkParamType::SIGNAL_STRENGTH, value: LinkParamValue::Number(0xffba) };
        assert_eq!(
            (told.states, told.params),
            (alloc::vec![LinkState::Operation(OperationMode::Normal)], alloc::vec![signal])
        );
    }
}

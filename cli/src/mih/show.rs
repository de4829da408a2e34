//! Formats MIH messages for people and for programs. Only the parameters that this program queries are shown.

use serde_json::{Map, Value, json};
use usher_mih::{
    CommandList, EventList, LinkAddr, LinkId, LinkParam, LinkParamType, LinkParamValue, LinkState,
    LinkStatus, LinkTupleId, MihfMessage, Tlv, TransportList,
};

const EVENTS: [(EventList, &str); 8] = [
    (EventList::LINK_DETECTED, "link-detected"),
    (EventList::LINK_UP, "link-up"),
    (EventList::LINK_DOWN, "link-down"),
    (EventList::LINK_PARAMETERS_REPORT, "link-parameters-report"),
    (EventList::LINK_GOING_DOWN, "link-going-down"),
    (EventList::LINK_HANDOVER_IMMINENT, "link-handover-imminent"),
    (EventList::LINK_HANDOVER_COMPLETE, "link-handover-complete"),
    (EventList::LINK_PDU_TRANSMIT_STATUS, "link-pdu-transmit-status"),
];
const COMMANDS: [(CommandList, &str); 5] = [
    (CommandList::LINK_GET_PARAMETERS, "link-get-parameters"),
    (CommandList::LINK_CONFIGURE_THRESHOLDS, "link-configure-thresholds"),
    (CommandList::LINK_ACTIONS, "link-actions"),
    (CommandList::NET_HO, "net-ho"),
    (CommandList::MN_HO, "mn-ho"),
];
const TRANSPORTS: [(TransportList, &str); 3] =
    [(TransportList::UDP, "udp"), (TransportList::TCP, "tcp"), (TransportList::SCTP, "sctp")];

fn flag_names<T: Copy>(all: &[(T, &'static str)], has: impl Fn(T) -> bool) -> Vec<&'static str> {
    all.iter().filter(|(flag, _)| has(*flag)).map(|(_, name)| *name).collect()
}

fn link_json(link: &LinkId) -> Value {
    json!({ "technology": link.technology.to_string(), "address": address_text(&link.address) })
}

fn address_text(address: &LinkAddr) -> String {
    address.to_string()
}

fn link_tuple_json(of: &LinkTupleId) -> Value {
    let mut value = link_json(&of.link);
    if let Some(poa) = &of.poa {
        value["poa"] = address_text(poa).into();
    }
    value
}

/// Returns a measurement's name with its unit, and its value.
fn measurement_entry(of: &LinkParam) -> Option<(&'static str, Value)> {
    let LinkParamValue::Number(number) = of.value else { return None };
    Some(match of.kind {
        LinkParamType::DATA_RATE => ("data_rate_kbps", number.into()),
        // The signal strength is a signed number.
        LinkParamType::SIGNAL_STRENGTH => ("signal_dbm", number.cast_signed().into()),
        LinkParamType::RSSI_80211 => ("rssi_dbm", number.cast_signed().into()),
        _ => return None,
    })
}

fn link_status_json(of: &LinkStatus) -> Value {
    let mut value = link_json(&of.link);
    for state in &of.states {
        match state {
            LinkState::Operation(mode) => value["operation"] = mode.to_string().into(),
            LinkState::Channel(channel) => value["channel"] = (*channel).into(),
        }
    }
    for (name, number) in of.params.iter().filter_map(measurement_entry) {
        value[name] = number;
    }
    value
}

/// Returns a parameter's name and value, or `None` if it is not shown.
fn parameter_entry(tlv: &Tlv) -> Option<(&'static str, Value)> {
    Some(match tlv {
        Tlv::Status(status) => ("status", status.to_string().into()),
        Tlv::EventList(events) => ("events", flag_names(&EVENTS, |e| events.has(e)).into()),
        Tlv::CommandList(commands) => ("commands", flag_names(&COMMANDS, |c| commands.has(c)).into()),
        Tlv::TransportList(all) => ("transports", flag_names(&TRANSPORTS, |t| all.has(t)).into()),
        Tlv::LinkAddressList(all) => {
            let one = |of: &usher_mih::NetTypeAddr| {
                let technology = of.network.technology.map(|technology| technology.to_string());
                json!({ "technology": technology, "address": address_text(&of.address) })
            };
            ("links", all.iter().map(one).collect())
        }
        Tlv::ValidTimeInterval(seconds) => ("valid_s", (*seconds).into()),
        Tlv::LinkIdentifier(of) => ("link", link_tuple_json(of)),
        Tlv::NewLinkIdentifier(of) => ("new_link", link_tuple_json(of)),
        Tlv::LinkDownReason(reason) => ("reason", reason.to_string().into()),
        Tlv::LinkGoingDownReason(reason) => ("reason", reason.to_string().into()),
        Tlv::TimeInterval(milliseconds) => ("within_ms", (*milliseconds).into()),
        Tlv::StatusResponses(all) => ("links", all.iter().map(link_status_json).collect()),
        Tlv::LinkParameterReports(all) => {
            let values = all.iter().filter_map(|report| measurement_entry(&report.param));
            let map: Map<String, Value> = values.map(|(name, value)| (name.to_owned(), value)).collect();
            ("parameters", map.into())
        }
        Tlv::LinkActionOutcomes(all) => {
            let one = |of: &usher_mih::LinkActionOutcome| {
                let mut value = link_json(&of.link);
                value["result"] = of.result.to_string().into();
                value
            };
            ("results", all.iter().map(one).collect())
        }
        Tlv::HandoverStatus(status) => ("handover", status.to_string().into()),
        Tlv::PreferredLinks(all) => ("preferred", all.iter().map(|of| link_json(&of.poas.link)).collect()),
        _ => return None,
    })
}

/// Converts a message to JSON.
pub(super) fn message_json(message: &MihfMessage) -> Value {
    let mut value = json!({ "message": message.id.name(), "kind": message.id.opcode.to_string() });
    for (name, of) in message.params.iter().filter_map(parameter_entry) {
        value[name] = of;
    }
    value
}

/// Formats a value for people.
fn format_json_for_people(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(format_json_for_people).collect::<Vec<_>>().join(", "),
        Value::Object(map) => {
            let one = |(name, value): (&String, &Value)| match name.as_str() {
                "technology" | "address" => format_json_for_people(value),
                name => format!("{} {}", name.replace('_', " "), format_json_for_people(value)),
            };
            map.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        Value::Null => "unknown".to_owned(),
        other => other.to_string(),
    }
}

/// Formats a message for people: its name, and a line for each parameter and for each link of a list.
pub(super) fn message_text(message: &MihfMessage) -> String {
    let mut text = format!("{}\n", message.id);
    for (name, value) in message.params.iter().filter_map(parameter_entry) {
        let name = name.replace('_', " ");
        match &value {
            Value::Array(all) if all.iter().any(Value::is_object) => {
                for one in all {
                    text.push_str(&format!("  {name}: {}\n", format_json_for_people(one)));
                }
            }
            other => text.push_str(&format!("  {name}: {}\n", format_json_for_people(other))),
        }
    }
    text
}

/// Formats a message for people, in one line.
pub(super) fn message_line(message: &MihfMessage) -> String {
    let name = message.id.name().unwrap_or("an unknown message");
    let params = message.params.iter().filter_map(parameter_entry);
    let params =
        params.map(|(name, value)| format!("{} {}", name.replace('_', " "), format_json_for_people(&value)));
    format!("{name}: {}\n", params.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_mih::{LinkDownReason, LinkType, MessageId};

    #[test]
    fn messages_are_shown_to_people_and_programs() {
        let link = LinkTupleId { link: LinkId::from_mac(LinkType::Ethernet, [2, 0, 0, 0, 0, 1]), poa: None };
        let params = [Tlv::LinkIdentifier(link), Tlv::LinkDownReason(LinkDownReason::PacketTimeout)];
        let message = MihfMessage::new(MessageId::LINK_DOWN_INDICATION, params);
        let said = "MIH_Link_Down: link 02:00:00:00:00:01 Ethernet, reason packet timeout\n";
        assert_eq!(message_line(&message), said);
        let value = message_json(&message);
        assert_eq!(
            (&value["message"], &value["link"]["address"]),
            (&"MIH_Link_Down".into(), &"02:00:00:00:00:01".into())
        );
        let kind = LinkParamType::SIGNAL_STRENGTH;
        let status = LinkStatus {
            link: LinkId::from_mac(LinkType::Ieee80211, [2; 6]),
            states: Vec::new(),
            params: vec![LinkParam { kind, value: LinkParamValue::Number(0xffba) }],
            descriptors: Vec::new(),
        };
        let message =
            MihfMessage::new(MessageId::LINK_GET_PARAMETERS_RESPONSE, [Tlv::StatusResponses(vec![status])]);
        assert_eq!(message_json(&message)["links"][0]["signal_dbm"], -70);
        assert!(
            message_text(&message).contains("\n  links: 02:02:02:02:02:02"),
            "{}",
            message_text(&message)
        );
    }
}

use super::*;
use crate::client::{self, MihClient, MihClientRequest};
use crate::config::{LoadedMihConfig, parse};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use usher_config::EmptyConfigEnvironment;
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::{ChannelConfig, LossModel};
use usher_core::{ListenerId, Seed, SocketId, TransportProtocol};
use usher_mih::{
    HandoverStatus, LinkAction, LinkActionAttributes, LinkActionType, LinkParamType, LinkParamValue,
    LinkPoaList, PORT, PeerRoute, PreferredLink, kind,
};

const SERVER: &str = "192.0.2.1";
const ASKER: &str = "192.0.2.9";
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn parse_ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn load_config(text: &str) -> LoadedMihConfig {
    parse("mih.toml", text, &EmptyConfigEnvironment).unwrap_or_else(|faults| panic!("{faults}"))
}

/// The common configuration of these tests' functions.
fn config_text(id: &str, may: &str, more: &str) -> String {
    format!(
        "id = \"{id}\"\n[listen]\nudp = [\"0.0.0.0:4551\"]\ntcp = [\"0.0.0.0:4551\"]\n\
         [[allow]]\nprefix = \"192.0.2.0/24\"\nrights = [{may}]\n{more}"
    )
}

const ALL: &str = "\"events\", \"parameters\", \"actions\", \"handover\"";
const ETH0: &str =
    "[[interface]]\nname = \"eth0\"\nallow_actions = true\nwatch = { below = -75, within = \"2 s\" }\n";

fn test_service(text: &str, seed: u64) -> MihService {
    let loaded = load_config(text);
    let id = loaded.id.clone().unwrap();
    MihService::new(loaded.service_config(id), Seed::new(seed).derive_rng("mih", 0))
}

/// A function in a network, whose host measures and switches at once; switching is told as the kernel does.
fn add_service(net: &mut MachineNetwork, text: &str, address: &str) -> NetworkHostHandle<MihService> {
    let at = net.add_host(test_service(text, 1), &[parse_ip(address)]);
    net.bind_socket(at, SocketId::from_number(0), SocketAddr::new(parse_ip(address), PORT));
    net.add_listener(at, ListenerId::from_number(0), SocketAddr::new(parse_ip(address), PORT));
    net.on_job(at, |usher_core::JobRequest { token, job: what, .. }| {
        let answer = match what {
            MihServiceJob::Measure { interfaces } => {
                let reports = interfaces.iter().map(|name| link_up_report(name)).collect();
                MihServiceCommand::Measured { token, reports }
            }
            MihServiceJob::Switch { interface, .. } => {
                MihServiceCommand::Acted { token, done: interface == "eth0" }
            }
        };
        Some((Duration::from_millis(1), answer))
    });
    at
}

fn link_up_report(name: &str) -> KernelLinkReport {
    KernelLinkReport {
        name: name.into(),
        present: true,
        enabled: true,
        up: true,
        address: Some(MAC),
        rate: Some(54_000),
        signal: None,
        wireless: false,
    }
}

fn link_down_report(name: &str) -> KernelLinkReport {
    KernelLinkReport { up: false, ..link_up_report(name) }
}

fn add_client(
    net: &mut MachineNetwork,
    question: MihClientRequest,
    transport: TransportProtocol,
    follow: bool,
) -> NetworkHostHandle<MihClient> {
    let mut mih = mih::MihfConfig::new(MihfId::new("asker").unwrap());
    (mih.by_transport, mih.locals) = (true, vec![parse_ip(ASKER)]);
    mih.timing.response = Some(Duration::from_secs(5));
    mih.timing.unanswered = mih::ResponseTimeoutPolicy::Abort;
    let route = PeerRoute {
        transport,
        local: Some(parse_ip(ASKER)),
        remote: SocketAddr::new(parse_ip(SERVER), PORT),
    };
    let config = client::MihClientConfig { mih, route, to: None, question, links: Vec::new(), follow };
    let at = net.add_host(MihClient::new(config, Seed::new(2).derive_rng("mih", 0)), &[parse_ip(ASKER)]);
    net.bind_socket(at, SocketId::from_number(0), SocketAddr::new(parse_ip(ASKER), 40_000));
    net.send_command(at, client::MihClientCommand::Start).unwrap();
    at
}

/// Returns the latest response to an asker.
fn last_response(
    net: &mut MachineNetwork,
    at: NetworkHostHandle<MihClient>,
) -> Result<MihfMessage, client::MihClientEvent> {
    net.run_for(Duration::from_secs(30));
    let said = net.take_events(at);
    let answer = said.iter().rev().find_map(|(_, event)| match event {
        client::MihClientEvent::Answered { answer } => Some(answer.clone()),
        _ => None,
    });
    answer.ok_or_else(|| said[said.len().saturating_sub(2)].1.clone())
}

fn received_indications(net: &mut MachineNetwork, at: NetworkHostHandle<MihClient>) -> Vec<String> {
    let said = net.take_events(at);
    let name = |event: &client::MihClientEvent| match event {
        client::MihClientEvent::Indication { message, .. } => message.id.name().map(ToString::to_string),
        _ => None,
    };
    said.iter().filter_map(|(_, event)| name(event)).collect()
}

#[test]
fn what_becomes_of_a_link_is_told_to_who_subscribed() {
    for transport in [TransportProtocol::Udp, TransportProtocol::Tcp] {
        let mut net = MachineNetwork::new(ChannelConfig::default());
        let server = add_service(&mut net, &config_text("pos", ALL, ETH0), SERVER);
        net.send_command(server, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
        let asker = add_client(&mut net, MihClientRequest::Subscribe(EventList(u32::MAX)), transport, true);
        let answer = last_response(&mut net, asker).unwrap();
        assert_eq!(answer.id, MessageId::EVENT_SUBSCRIBE_RESPONSE, "{transport}");
        assert_eq!(net[server].subscription_count(), 1);
        for (command, expected) in [
            (MihServiceCommand::Link(link_down_report("eth0")), vec!["MIH_Link_Down"]),
            (MihServiceCommand::Link(link_down_report("eth0")), vec![]),
            (MihServiceCommand::Link(link_up_report("eth0")), vec!["MIH_Link_Up"]),
            (
                MihServiceCommand::Link(KernelLinkReport { rate: Some(11_000), ..link_up_report("eth0") }),
                vec!["MIH_Link_Parameters_Report"],
            ),
            (MihServiceCommand::Watched { interface: "eth0".into(), value: -70.0 }, vec![]),
            (
                MihServiceCommand::Watched { interface: "eth0".into(), value: -76.0 },
                vec!["MIH_Link_Going_Down"],
            ),
            (MihServiceCommand::Watched { interface: "eth0".into(), value: -80.0 }, vec![]),
            (MihServiceCommand::Watched { interface: "eth0".into(), value: -71.0 }, vec![]),
            (
                MihServiceCommand::Watched { interface: "eth0".into(), value: -76.0 },
                vec!["MIH_Link_Going_Down"],
            ),
            (
                MihServiceCommand::Link(KernelLinkReport {
                    present: false,
                    enabled: false,
                    ..link_down_report("eth0")
                }),
                vec!["MIH_Link_Down"],
            ),
        ] {
            net.send_command(server, command.clone()).unwrap();
            net.run_for(Duration::from_secs(1));
            assert_eq!(received_indications(&mut net, asker), expected, "{transport} {command:?}");
        }
        // RFC 5677, 6: by UDP all is acknowledged, by TCP nothing is.
        let acks = net[asker].counters().acks;
        assert_eq!(acks > 0, transport == TransportProtocol::Udp, "{transport}: {acks}");
        net.send_command(asker, client::MihClientCommand::Leave).unwrap();
        net.run_for(Duration::from_secs(1));
        assert_eq!(net[server].subscription_count(), 0);
        assert!(net.take_events(asker).iter().any(|(_, event)| *event == client::MihClientEvent::Finished));
    }
}

#[test]
fn other_requests_are_answered_by_the_rights_of_the_address() {
    let ask = |may: &str, question: MihClientRequest| {
        let mut net = MachineNetwork::new(ChannelConfig::default());
        let server = add_service(&mut net, &config_text("pos", may, ETH0), SERVER);
        net.send_command(server, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
        let asker = add_client(&mut net, question.clone(), TransportProtocol::Udp, false);
        let answer = last_response(&mut net, asker).unwrap();
        let refused = answer.status() != Some(Status::Success);
        assert_eq!(net[server].counters().0.refused, u64::from(refused), "{question:?}");
        answer
    };
    let every = EventList::LINK_UP;
    let act = MihClientRequest::Act(LinkActionType::PowerDown, 0);
    for question in [
        MihClientRequest::Subscribe(every),
        MihClientRequest::Parameters,
        act.clone(),
        MihClientRequest::Candidates,
        MihClientRequest::Unsubscribe(every),
    ] {
        let answer = ask("", question.clone());
        assert_eq!(answer.status(), Some(Status::AuthorizationFailure), "{question:?}");
        let answer = ask(ALL, question.clone());
        assert_eq!(answer.status(), Some(Status::Success), "{question:?}");
    }
    let answer = ask(ALL, MihClientRequest::Parameters);
    let Some(Tlv::StatusResponses(all)) = answer.get(kind::STATUS_RESPONSE_LIST) else {
        panic!("{answer:?}")
    };
    assert_eq!(all[0].params[0].value, LinkParamValue::Number(54_000));
    let answer = ask(ALL, act);
    let Some(Tlv::LinkActionOutcomes(all)) = answer.get(kind::LINK_ACTION_RESULT_LIST) else { panic!() };
    assert_eq!(all[0].result, LinkActionResult::Success);
    for (action, result) in [
        (LinkActionType::LowPower, LinkActionResult::Incapable),
        (LinkActionType::None, LinkActionResult::Success),
    ] {
        let answer = ask(ALL, MihClientRequest::Act(action, 0));
        let Some(Tlv::LinkActionOutcomes(all)) = answer.get(kind::LINK_ACTION_RESULT_LIST) else { panic!() };
        assert_eq!(all[0].result, result);
    }
    assert_eq!(ask("", MihClientRequest::Register).status(), Some(Status::Success), "all may register");
}

#[test]
fn foreign_networks_and_unregistered_peers_get_no_service() {
    for transport in [TransportProtocol::Udp, TransportProtocol::Tcp] {
        let mut net = MachineNetwork::new(ChannelConfig::default());
        let text = config_text("pos", ALL, ETH0).replace("192.0.2.0/24", "198.51.100.0/24");
        let server = add_service(&mut net, &text, SERVER);
        let asker = add_client(&mut net, MihClientRequest::Capabilities, transport, false);
        let failed = last_response(&mut net, asker).unwrap_err();
        assert!(matches!(failed, client::MihClientEvent::Failed { .. }), "{failed:?}");
        assert!(net[server].counters().0.not_allowed > 0);
    }
    let mut service = test_service(&config_text("pos", ALL, ETH0), 1);
    service.handle_command(Instant::ZERO, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let link = LinkTupleId { link: service.link_id("eth0").unwrap(), poa: None };
    let params = [Tlv::LinkIdentifier(link), Tlv::EventList(EventList::LINK_UP)];
    let asked = MihfMessage::new(MessageId::EVENT_SUBSCRIBE_REQUEST, params);
    let stranger = MihfId::new("stranger").unwrap();
    assert_eq!(service.update_subscription(&stranger, &asked), [Tlv::Status(Status::Rejected)]);
}

#[test]
fn a_forbidden_action_is_refused_and_a_delayed_one_done_later() {
    let mut net = MachineNetwork::new(ChannelConfig::default());
    let server = add_service(&mut net, &config_text("pos", ALL, &ETH0.replace("true", "false")), SERVER);
    net.send_command(server, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let act = |delay| MihClientRequest::Act(LinkActionType::PowerDown, delay);
    let at = add_client(&mut net, act(0), TransportProtocol::Udp, false);
    let answer = last_response(&mut net, at).unwrap();
    let Some(Tlv::LinkActionOutcomes(all)) = answer.get(kind::LINK_ACTION_RESULT_LIST) else { panic!() };
    assert_eq!(all[0].result, LinkActionResult::Refused);

    let mut service = test_service(&config_text("pos", ALL, ETH0), 1);
    service.handle_command(Instant::ZERO, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let link = service.link_id("eth0").unwrap();
    let action = LinkAction {
        link,
        poa: None,
        action: LinkActionType::PowerDown,
        attributes: LinkActionAttributes::NONE,
        delay: 2000,
    };
    let asked = RequestingPeer { peer: MihfId::new("x").unwrap(), address: None, is_configured: false };
    // The transaction is one that has been forgotten: what is done does not hang on its answer.
    let message = MihfMessage::new(MessageId::LINK_ACTIONS_REQUEST, [Tlv::LinkActions(vec![action])]);
    let mut heard = deliver_request(&mut service, &message);
    let transaction = heard.pop().unwrap();
    service.handle_link_actions(Instant::ZERO, asked, transaction, &message);
    let due = service.poll_timeout().unwrap();
    let mut buf = Vec::new();
    let mut jobs = Vec::new();
    let mut changes = Vec::new();
    let mut drain = |service: &mut MihService| {
        while let Some(output) = service.poll_output(&mut buf) {
            match output {
                usher_core::MachineOutput::Job(job) => jobs.push(job.job),
                usher_core::MachineOutput::Event(MihServiceEvent::Link { change, .. }) => {
                    changes.push(change)
                }
                _ => {}
            }
        }
    };
    drain(&mut service);
    let mut now = due;
    while now < Instant::ZERO + Duration::from_secs(2) {
        service.handle_input(now, MachineInput::Timeout);
        now = service.poll_timeout().unwrap();
    }
    service.handle_input(Instant::ZERO + Duration::from_secs(2), MachineInput::Timeout);
    drain(&mut service);
    let foreseen = LinkChange::GoingDown(LinkGoingDownReason::ExplicitDisconnect, Duration::from_secs(2));
    assert!(changes.contains(&foreseen), "{changes:?}");
    assert_eq!(jobs, [MihServiceJob::Switch { interface: "eth0".into(), on: false }]);
}

/// Has a function hear a request, and gives the names of those that its user would have to answer.
fn deliver_request(service: &mut MihService, message: &MihfMessage) -> Vec<IncomingRequestId> {
    let (from, to) = (MihfId::new("x").unwrap(), MihfId::new("pos").unwrap());
    let mut octets = Vec::new();
    message.encode(mih::HeaderFlags::default(), mih::TransactionId::new(1), &from, &to, &mut octets).unwrap();
    let (conn, remote) = (ConnId::nth_accepted_connection(99), SocketAddr::new(parse_ip(ASKER), 40_000));
    let listener = ListenerId::from_number(0);
    let accepted = StreamEvent::Accepted { listener, remote, local: None, certificate: None };
    for event in [accepted, StreamEvent::Data(&octets)] {
        service.mihf.handle_input(Instant::ZERO, MachineInput::Stream { conn, event });
    }
    let mut all = Vec::new();
    while let Some(event) = service.outputs.next_event(&mut service.mihf) {
        if let mih::MihfEvent::Request { transaction, .. } = event {
            all.push(transaction);
        }
    }
    all
}

#[test]
fn a_peer_is_registered_and_subscribed_again_after_it_forgets() {
    let peer = "[[peer]]\nid = \"pos\"\naddress = \"192.0.2.1\"\nregister = true\nsubscribe = [\"link-down\"]\n\
                [timers]\nretransmission = \"0.2 s\"\nretry = \"1 s\"\nrefresh = \"20 s\"\n";
    for transport in ["udp", "tcp"] {
        let mut net = MachineNetwork::new(ChannelConfig {
            loss: LossModel::Bernoulli(0.1),
            ..ChannelConfig::default()
        });
        net.set_retransmission_delay(Duration::from_millis(200));
        let pos = add_service(&mut net, &config_text("pos", ALL, ETH0), SERVER);
        let mn = peer.replace("register", &format!("transport = \"{transport}\"\nregister"));
        let mn = add_service(&mut net, &config_text("mn", "", &mn), ASKER);
        net.send_command(pos, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
        net.run_for(Duration::from_secs(40));
        assert_eq!(net[pos].subscription_count(), 1, "{transport}");
        net.take_events(mn);
        net.send_command(pos, MihServiceCommand::Link(link_down_report("eth0"))).unwrap();
        net.run_for(Duration::from_secs(5));
        let told = |net: &mut MachineNetwork| {
            let said = net.take_events(mn);
            said.iter().filter(|(_, event)| matches!(event, MihServiceEvent::Indication { .. })).count()
        };
        assert_eq!(told(&mut net), 1, "{transport}");
        // It restarts without registrations; the next renewal restores them.
        net[pos] = test_service(&config_text("pos", ALL, ETH0), 7);
        net.reset_connections(pos);
        net.send_command(pos, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
        net.run_for(Duration::from_secs(60));
        assert_eq!(net[pos].subscription_count(), 1, "{transport}");
        net.send_command(mn, MihServiceCommand::Leave).unwrap();
        net.run_for(Duration::from_secs(10));
        assert_eq!(net[pos].subscription_count(), 0, "{transport}: it has said goodbye");
    }
}

#[test]
fn other_settings_hold_at_once() {
    let mut net = MachineNetwork::new(ChannelConfig::default());
    let server = add_service(&mut net, &config_text("pos", ALL, ETH0), SERVER);
    net.send_command(server, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let configure = |net: &mut MachineNetwork, text: &str| {
        let config = load_config(text).service_config(MihfId::new("pos").unwrap());
        net.send_command(server, MihServiceCommand::Configure(Box::new(config))).unwrap();
    };
    configure(&mut net, &config_text("pos", "\"parameters\"", &ETH0.replace("eth0", "eth1")));
    let at = add_client(&mut net, MihClientRequest::Parameters, TransportProtocol::Udp, false);
    assert!(
        matches!(last_response(&mut net, at), Err(client::MihClientEvent::NoLinks)),
        "eth0 is told of no more"
    );
    net.send_command(server, MihServiceCommand::Link(link_up_report("eth1"))).unwrap();
    let at = add_client(&mut net, MihClientRequest::Parameters, TransportProtocol::Udp, false);
    assert_eq!(last_response(&mut net, at).unwrap().status(), Some(Status::Success));
    // A peer that is new is asked; one that is there no more is not.
    let peer = "[[peer]]\nid = \"mn\"\naddress = \"192.0.2.50\"\nregister = true\n";
    let sent = net.sent_transmits().len();
    configure(&mut net, &config_text("pos", "", &format!("{ETH0}{peer}")));
    net.run_for(Duration::from_secs(2));
    assert!(net.sent_transmits().len() > sent);
    configure(&mut net, &config_text("pos", "", ETH0));
    net.run_for(Duration::from_secs(60));
    let sent = net.sent_transmits().len();
    net.run_for(Duration::from_secs(600));
    assert_eq!(net.sent_transmits().len(), sent);
}

#[test]
fn nobody_exceeds_the_limits() {
    let limits = "[limits]\nconnections = 2\nconnections_per_network = 1\nrequests = 1\nrequests_per_peer = 1\n\
                  indications_per_peer = 2\n";
    let mut service = test_service(&config_text("pos", ALL, &format!("{ETH0}{limits}")), 1);
    service.handle_command(Instant::ZERO, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let remote = |last| SocketAddr::new(IpAddr::from([192, 0, 2, last]), 1);
    let admitted = [(0, 1), (1, 1), (2, 2), (3, 3)]
        .map(|(n, last)| service.admit_connection(ConnId::nth_accepted_connection(n), remote(last)));
    assert_eq!(admitted, [true, false, true, false]);
    service.remove_connection(ConnId::nth_accepted_connection(0));
    assert!(service.admit_connection(ConnId::nth_accepted_connection(4), remote(3)), "there is room again");

    let link = service.link_id("eth0").unwrap();
    let wanted = LinkStatusRequest {
        states: mih::ReportedLinkStates::NONE,
        params: vec![LinkParamType::DATA_RATE],
        descriptors: mih::LinkDescriptors::NONE,
    };
    let params = [Tlv::LinkIdentifierList(vec![link]), Tlv::StatusRequest(wanted)];
    let message = MihfMessage::new(MessageId::LINK_GET_PARAMETERS_REQUEST, params);
    let asked =
        || RequestingPeer { peer: MihfId::new("x").unwrap(), address: Some(remote(9)), is_configured: false };
    let transaction = deliver_request(&mut service, &message)[0];
    service.handle_request(Instant::ZERO, asked(), transaction, &message);
    service.handle_request(Instant::ZERO, asked(), transaction, &message);
    assert_eq!((service.pending.len(), service.counters.requests_full), (1, 1));
    // A request without an answer is dropped with its transaction.
    let later = Instant::ZERO + Duration::from_secs(60);
    service.handle_request(later, asked(), transaction, &message);
    assert_eq!((service.pending.len(), service.jobs.len(), service.counters.requests_full), (1, 1, 1));
    service.handle_command(later, MihServiceCommand::Measured { token: 999, reports: Vec::new() }).unwrap();
    assert_eq!(service.counters.late, 1);

    // Of a peer that does not acknowledge two indications wait, and no more.
    let peer = "[[peer]]\nid = \"mn\"\naddress = \"192.0.2.50\"\n";
    let config = load_config(&config_text("pos", ALL, &format!("{ETH0}{peer}{limits}")))
        .service_config(MihfId::new("pos").unwrap());
    service.handle_command(later, MihServiceCommand::Configure(Box::new(config))).unwrap();
    let subscriber = MihfId::new("mn").unwrap();
    assert!(service.subscriptions.add("eth0", &subscriber, EventList::LINK_UP, (9, 9)));
    for _ in 0..4 {
        service.handle_command(later, MihServiceCommand::Link(link_down_report("eth0"))).unwrap();
        service.handle_command(later, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    }
    assert_eq!((service.counters.indications, service.counters.indications_dropped), (2, 2));
}

#[test]
fn a_peer_is_told_of_new_addresses() {
    let peer = "[[peer]]\nid = \"pos\"\naddress = \"192.0.2.1\"\nregister = true\n";
    let mut net = MachineNetwork::new(ChannelConfig::default());
    let pos = add_service(&mut net, &config_text("pos", "", ETH0), SERVER);
    let mn = add_service(&mut net, &config_text("mn", "", peer), ASKER);
    net.run_for(Duration::from_secs(5));
    let registered = |net: &mut MachineNetwork| {
        let said = net.take_events(pos);
        said.iter().filter(|(_, event)| matches!(event, MihServiceEvent::Registered(_))).count()
    };
    assert_eq!(registered(&mut net), 1);
    net.send_command(mn, MihServiceCommand::Moved).unwrap();
    net.run_for(Duration::from_secs(5));
    assert_eq!(registered(&mut net), 1, "again, and at once");
}

/// A permitted handover's response has the requested items; a declined one has none.
#[test]
fn candidates_are_links_that_are_up_and_not_where_the_host_is() {
    let eth1 = "[[interface]]\nname = \"eth1\"\n";
    let mut service = test_service(&config_text("mn", ALL, &format!("{ETH0}{eth1}")), 1);
    let other = KernelLinkReport { address: Some([2, 0, 0, 0, 0, 2]), ..link_up_report("eth1") };
    service.handle_command(Instant::ZERO, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    service.handle_command(Instant::ZERO, MihServiceCommand::Link(other.clone())).unwrap();
    let [here, there] = ["eth0", "eth1"].map(|name| service.link_id(name).unwrap());
    let list = LinkPoaList { link: there, poas: Vec::new() };
    let lists = Tlv::LinkPoaLists(vec![list.clone()]);
    let asked = MihfMessage::new(MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, [lists]);
    let said = |status| {
        let here = LinkTupleId { link: here.clone(), poa: None };
        vec![Tlv::Status(Status::Success), Tlv::LinkIdentifier(here), Tlv::HandoverStatus(status)]
    };
    let mut permitted = said(HandoverStatus::Permitted);
    permitted.push(Tlv::PreferredLinks(vec![PreferredLink::new(list)]));
    assert_eq!(service.candidate_query_params(&asked), permitted);
    service
        .handle_command(Instant::ZERO, MihServiceCommand::Link(KernelLinkReport { up: false, ..other }))
        .unwrap();
    assert_eq!(service.candidate_query_params(&asked), said(HandoverStatus::Declined));
}

#[test]
fn an_answer_whose_request_is_forgotten_is_counted() {
    let mut service = test_service(&config_text("pos", ALL, ETH0), 1);
    let asked = || RequestingPeer { peer: MihfId::new("x").unwrap(), address: None, is_configured: false };
    service.handle_command(Instant::ZERO, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let list = LinkPoaList { link: service.link_id("eth0").unwrap(), poas: Vec::new() };
    let params = [Tlv::LinkPoaLists(vec![list]), Tlv::QueryResourceReport(false)];
    let message = MihfMessage::new(MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, params);
    let transaction = deliver_request(&mut service, &message)[0];
    for late in [0, 1] {
        service.handle_request(Instant::ZERO, asked(), transaction, &message);
        assert_eq!((service.counters.refused, service.counters.late), (1, late));
    }
}

/// An asker in a network, under a name and at an address of its own.
fn named_asker(
    net: &mut MachineNetwork,
    address: &str,
    question: MihClientRequest,
    follow: bool,
) -> NetworkHostHandle<MihClient> {
    let mut mih = mih::MihfConfig::new(MihfId::new("asker").unwrap());
    (mih.by_transport, mih.locals) = (true, vec![parse_ip(address)]);
    (mih.timing.response, mih.timing.retransmission) = (Some(Duration::from_secs(9)), Duration::from_secs(3));
    let remote = SocketAddr::new(parse_ip(SERVER), PORT);
    let route = PeerRoute { transport: TransportProtocol::Udp, local: Some(parse_ip(address)), remote };
    let config = client::MihClientConfig { mih, route, to: None, question, links: Vec::new(), follow };
    let at = net.add_host(MihClient::new(config, Seed::new(5).derive_rng("mih", 0)), &[parse_ip(address)]);
    net.bind_socket(at, SocketId::from_number(0), SocketAddr::new(parse_ip(address), 40_000));
    net.send_command(at, client::MihClientCommand::Start).unwrap();
    at
}

/// A stranger with a subscriber's identifier, at an address with the same rights, receives no events and ends no
/// subscription.
#[test]
fn indications_stay_with_the_address_that_subscribed() {
    let mut net = MachineNetwork::new(ChannelConfig::default());
    let server = add_service(&mut net, &config_text("pos", ALL, ETH0), SERVER);
    net.send_command(server, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let honest = named_asker(&mut net, ASKER, MihClientRequest::Subscribe(EventList::LINK_DOWN), true);
    last_response(&mut net, honest).unwrap();
    for question in [
        MihClientRequest::Subscribe(EventList::LINK_DOWN),
        MihClientRequest::Unsubscribe(EventList::LINK_DOWN),
        MihClientRequest::Deregister,
        MihClientRequest::Act(LinkActionType::PowerDown, 0),
    ] {
        let stranger = named_asker(&mut net, "192.0.2.66", question.clone(), false);
        let answer = last_response(&mut net, stranger).unwrap();
        assert_eq!(answer.status(), Some(Status::AuthorizationFailure), "{question:?}");
    }
    let stranger = named_asker(&mut net, "192.0.2.66", MihClientRequest::Capabilities, true);
    net.run_for(Duration::from_secs(5));
    net.take_events(stranger);
    net.take_events(honest);
    net.send_command(server, MihServiceCommand::Link(link_down_report("eth0"))).unwrap();
    net.run_for(Duration::from_secs(10));
    assert_eq!(received_indications(&mut net, honest), ["MIH_Link_Down"]);
    assert_eq!(received_indications(&mut net, stranger), [] as [&str; 0]);
    assert_eq!(net[server].counters().0.indications_lost, 0);
    let said = net.take_events(server);
    let claim = said.iter().find_map(|(_, event)| match event {
        MihServiceEvent::ClaimRefused(asked) => asked.address.map(|address| address.ip()),
        _ => None,
    });
    assert_eq!(claim, Some(parse_ip("192.0.2.66")));
}

/// A subscriber that has moved is accepted at its new address once the old one does not answer. Its subscriptions end.
#[test]
fn a_subscriber_that_has_moved_subscribes_anew() {
    let mut net = MachineNetwork::new(ChannelConfig::default());
    let server = add_service(&mut net, &config_text("pos", ALL, ETH0), SERVER);
    net.send_command(server, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let subscribe = MihClientRequest::Subscribe(EventList::LINK_DOWN);
    let old = named_asker(&mut net, ASKER, subscribe.clone(), true);
    last_response(&mut net, old).unwrap();
    net.set_address_down(parse_ip(ASKER), true);
    let new = named_asker(&mut net, "192.0.2.66", subscribe, true);
    assert_eq!(last_response(&mut net, new).unwrap().status(), Some(Status::Success));
    assert_eq!(net[server].subscription_count(), 1);
    net.take_events(new);
    net.send_command(server, MihServiceCommand::Link(link_down_report("eth0"))).unwrap();
    net.run_for(Duration::from_secs(10));
    assert_eq!(received_indications(&mut net, new), ["MIH_Link_Down"]);
}

/// A function from which datagrams come one at a time, and which answers each probe that its address gets.
struct TestPeer<'a> {
    service: &'a mut MihService,
    transaction: u16,
    events: Vec<MihServiceEvent>,
}

impl<'a> TestPeer<'a> {
    fn new(service: &'a mut MihService) -> Self {
        Self { service, transaction: 0, events: Vec::new() }
    }
}

impl TestPeer<'_> {
    fn drain_sent(&mut self) -> Vec<(SocketAddr, mih::DecodedMessage)> {
        let (mut sent, mut buf) = (Vec::new(), Vec::new());
        while let Some(output) = self.service.poll_output(&mut buf) {
            match output {
                usher_core::MachineOutput::Transmit(usher_core::Transmit::Datagram { path }) => {
                    sent.push((path.remote, MihfMessage::decode(&buf).unwrap()));
                }
                usher_core::MachineOutput::Event(event) => self.events.push(event),
                _ => {}
            }
            buf.clear();
        }
        sent
    }
    fn deliver_message(
        &mut self,
        now: Instant,
        (name, from): (&str, &str),
        message: &MihfMessage,
    ) -> Vec<(SocketAddr, mih::DecodedMessage)> {
        self.transaction += 1;
        let (name, remote) = (MihfId::new(name).unwrap(), SocketAddr::new(parse_ip(from), PORT));
        let mut next = Some((message.clone(), mih::TransactionId::new(self.transaction)));
        let mut sent = Vec::new();
        while let Some((message, tid)) = next.take() {
            let mut octets = Vec::new();
            message
                .encode(mih::HeaderFlags::default(), tid, &name, &MihfId::new("pos").unwrap(), &mut octets)
                .unwrap();
            let path = usher_core::DatagramPath {
                socket: SocketId::from_number(0),
                local: SocketAddr::new(parse_ip(SERVER), PORT),
                remote,
            };
            self.service.handle_input(now, MachineInput::Datagram { path, data: &octets });
            sent = self.drain_sent();
            let probe = sent
                .iter()
                .find(|(to, sent)| *to == remote && sent.header.id == MessageId::CAPABILITY_DISCOVER_REQUEST);
            next = probe.map(|(_, sent)| {
                let params = [Tlv::Status(Status::Success)];
                (MihfMessage::new(MessageId::CAPABILITY_DISCOVER_RESPONSE, params), sent.header.transaction)
            });
        }
        sent
    }
    /// Returns the status of the response to a request.
    fn request_status(&mut self, now: Instant, who: (&str, &str), message: &MihfMessage) -> Option<Status> {
        let answer = message.id.to_response();
        let sent = self.deliver_message(now, who, message);
        sent.iter().find(|(_, sent)| sent.header.id == answer).and_then(|(_, sent)| sent.message.status())
    }
    /// Returns the subscribers that receive a link-down event. The link then comes up again.
    fn notified_subscribers(&mut self, now: Instant) -> Vec<String> {
        self.service.handle_command(now, MihServiceCommand::Link(link_down_report("eth0"))).unwrap();
        let sent = self.drain_sent();
        self.service.handle_command(now, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
        self.drain_sent();
        let told = sent.iter().filter(|(_, sent)| sent.header.id == MessageId::LINK_DOWN_INDICATION);
        told.map(|(to, _)| to.ip().to_string()).collect()
    }
}

fn register_request() -> MihfMessage {
    let params = [Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(mih::RegisterCode::Register)];
    MihfMessage::new(MessageId::REGISTER_REQUEST, params)
}

fn subscribe_to(link: LinkId) -> MihfMessage {
    let link = Tlv::LinkIdentifier(LinkTupleId { link, poa: None });
    MihfMessage::new(MessageId::EVENT_SUBSCRIBE_REQUEST, [link, Tlv::EventList(EventList::LINK_DOWN)])
}

/// A subscription ends with its subscriber's registration, so that a later user of the identifier does not inherit it.
#[test]
fn a_subscription_ends_with_the_registration() {
    let all =
        format!("{}[[allow]]\nprefix = \"192.0.2.9/32\"\nrights = [{ALL}]\n", config_text("pos", "", ETH0));
    let mut service = test_service(&all, 1);
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    service.handle_command(at(1), MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let subscribe = subscribe_to(service.link_id("eth0").unwrap());
    let mut talker = TestPeer::new(&mut service);
    let (honest, stranger) = (("asker", ASKER), ("asker", "192.0.2.66"));
    assert_eq!(
        talker.request_status(at(1), ("other", stranger.1), &register_request()),
        Some(Status::Success)
    );
    assert_eq!(
        talker.request_status(at(1), ("other", stranger.1), &subscribe),
        Some(Status::AuthorizationFailure)
    );
    assert_eq!(talker.request_status(at(1), honest, &register_request()), Some(Status::Success));
    assert_eq!(talker.request_status(at(1), honest, &subscribe), Some(Status::Success));
    assert_eq!(talker.notified_subscribers(at(2)), [ASKER]);
    assert_eq!(talker.service.subscription_count(), 1);
    // It goes without a word.
    for minute in 1..61 {
        talker.service.handle_input(at(60 * minute), MachineInput::Timeout);
    }
    talker.service.handle_input(at(3601), MachineInput::Timeout);
    assert_eq!(talker.service.subscription_count(), 0, "what nobody wants to hear takes nobody's place");
    assert_eq!(talker.request_status(at(3602), stranger, &register_request()), Some(Status::Success));
    assert_eq!(talker.notified_subscribers(at(3603)), [] as [&str; 0]);
    // It also expires without any input in between.
    assert_eq!(talker.request_status(at(3604), ("late", ASKER), &register_request()), Some(Status::Success));
    assert_eq!(talker.request_status(at(3604), ("late", ASKER), &subscribe), Some(Status::Success));
    assert_eq!(
        talker.request_status(at(7300), ("late", stranger.1), &register_request()),
        Some(Status::Success)
    );
    assert_eq!(talker.notified_subscribers(at(7300)), [] as [&str; 0]);
    assert_eq!(talker.service.subscription_count(), 0);
}

/// The same where the configuration names a subscriber no more, or takes away the right to hear of events.
#[test]
fn a_subscription_ends_with_what_the_configuration_granted() {
    let peer = "[[peer]]\nid = \"asker\"\naddress = \"192.0.2.9\"\n";
    let now = Instant::ZERO + Duration::from_secs(1);
    for (registers, text, left) in [
        (false, config_text("pos", ALL, &format!("{ETH0}{peer}")), 1),
        (false, config_text("pos", ALL, ETH0), 0),
        (true, config_text("pos", ALL, ETH0), 1),
        (true, config_text("pos", "\"parameters\"", ETH0), 0),
    ] {
        let mut service = test_service(&config_text("pos", ALL, &format!("{ETH0}{peer}")), 1);
        service.handle_command(now, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
        let subscribe = subscribe_to(service.link_id("eth0").unwrap());
        let mut talker = TestPeer::new(&mut service);
        if registers {
            assert_eq!(
                talker.request_status(now, ("asker", ASKER), &register_request()),
                Some(Status::Success)
            );
        }
        assert_eq!(talker.request_status(now, ("asker", ASKER), &subscribe), Some(Status::Success));
        let config = load_config(&text).service_config(MihfId::new("pos").unwrap());
        service.handle_command(now, MihServiceCommand::Configure(Box::new(config))).unwrap();
        assert_eq!(service.subscription_count(), left, "{registers} {text}");
    }
}

fn link_actions_request(service: &MihService, actions: &[(LinkActionType, u16)]) -> MihfMessage {
    let link = service.link_id("eth0").unwrap();
    let action = |(action, delay): &(LinkActionType, u16)| LinkAction {
        link: link.clone(),
        poa: None,
        action: *action,
        attributes: LinkActionAttributes::NONE,
        delay: *delay,
    };
    MihfMessage::new(
        MessageId::LINK_ACTIONS_REQUEST,
        [Tlv::LinkActions(actions.iter().map(action).collect())],
    )
}

/// The jobs that a service wants done by now.
fn drain_jobs(service: &mut MihService) -> Vec<(u64, MihServiceJob)> {
    let (mut jobs, mut buf) = (Vec::new(), Vec::new());
    while let Some(output) = service.poll_output(&mut buf) {
        if let usher_core::MachineOutput::Job(job) = output {
            jobs.push((job.token, job.job));
        }
    }
    jobs
}

/// A link action that waits for its time has the place of a request.
#[test]
fn delayed_actions_are_within_the_limits() {
    let limits = "[limits]\nrequests = 3\nrequests_per_peer = 2\n";
    let mut service = test_service(&config_text("pos", ALL, &format!("{ETH0}{limits}")), 1);
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    service.handle_command(at(0), MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let (down, up) = (LinkActionType::PowerDown, LinkActionType::PowerUp);
    let one = link_actions_request(&service, &[(down, 1000)]);
    let both = link_actions_request(&service, &[(down, 1000), (up, 2000)]);
    let three = link_actions_request(&service, &[(down, 1000), (up, 2000), (down, 3000)]);
    let now = link_actions_request(&service, &[(down, 0)]);
    let mixed = link_actions_request(&service, &[(down, 0), (up, 2000), (up, 3000)]);
    let transaction = deliver_request(&mut service, &one)[0];
    let ask = |service: &mut MihService, ms, peer: &str, message: &MihfMessage| {
        let address = Some(SocketAddr::new(parse_ip(ASKER), 1));
        let asked = RequestingPeer { peer: MihfId::new(peer).unwrap(), address, is_configured: false };
        let full = service.counters.requests_full;
        service.handle_request(at(ms), asked, transaction, message);
        assert!(service.delayed.len() + service.pending.len() <= 3);
        service.counters.requests_full == full
    };
    assert!(!ask(&mut service, 0, "x", &three), "all of a request or nothing");
    assert!(!ask(&mut service, 0, "x", &mixed));
    assert_eq!((service.delayed.len(), service.pending.len()), (0, 0));
    assert!(ask(&mut service, 0, "x", &both));
    assert!(!ask(&mut service, 0, "x", &one) && !ask(&mut service, 0, "x", &now));
    assert!(ask(&mut service, 0, "y", &one));
    assert!(!ask(&mut service, 0, "y", &now), "of all together there are three");
    assert_eq!(drain_jobs(&mut service), []);
    service.handle_input(at(1000), MachineInput::Timeout);
    let switch = |on| MihServiceJob::Switch { interface: "eth0".into(), on };
    let due: Vec<MihServiceJob> = drain_jobs(&mut service).into_iter().map(|(_, job)| job).collect();
    assert_eq!(due, [switch(false), switch(false)]);
    assert!(ask(&mut service, 1000, "y", &now), "there is room again");
    drain_jobs(&mut service);
    // A delayed action that is no longer permitted when due is not performed.
    let text = config_text("pos", ALL, &ETH0.replace("true", "false"));
    let config = load_config(&text).service_config(MihfId::new("pos").unwrap());
    service.handle_command(at(1500), MihServiceCommand::Configure(Box::new(config))).unwrap();
    service.handle_input(at(2000), MachineInput::Timeout);
    assert_eq!((drain_jobs(&mut service), service.delayed.len()), (Vec::new(), 0));
}

/// However many actions a request has, an interface is switched once each way, and all of them are answered.
#[test]
fn actions_of_one_request_on_one_interface_are_done_once() {
    let mut service = test_service(&config_text("pos", ALL, ETH0), 1);
    service.handle_command(Instant::ZERO, MihServiceCommand::Link(link_up_report("eth0"))).unwrap();
    let (down, up) = ((LinkActionType::PowerDown, 0), (LinkActionType::PowerUp, 0));
    let message = link_actions_request(&service, &[down, up].repeat(500));
    let transaction = deliver_request(&mut service, &message)[0];
    let address = Some(SocketAddr::new(parse_ip(ASKER), 1));
    let asked = RequestingPeer { peer: MihfId::new("x").unwrap(), address, is_configured: false };
    service.handle_request(Instant::ZERO, asked, transaction, &message);
    let wanted = drain_jobs(&mut service);
    assert_eq!(wanted.len(), 2);
    for (n, (token, _)) in wanted.into_iter().enumerate() {
        assert_eq!(service.counters.answered, 0);
        service.handle_command(Instant::ZERO, MihServiceCommand::Acted { token, done: n == 0 }).unwrap();
    }
    assert_eq!((service.counters.answered, service.counters.late, service.pending.len()), (1, 0, 0));
}

/// Events tell the few configured functions from all others.
#[test]
fn events_say_whether_their_function_is_configured() {
    let peer = "[[peer]]\nid = \"mn\"\naddress = \"192.0.2.9\"\n";
    let mut service = test_service(&config_text("pos", "", &format!("{ETH0}{peer}")), 1);
    let now = Instant::ZERO + Duration::from_secs(1);
    let link = LinkId::from_mac(mih::LinkType::Ethernet, MAC);
    let up = Tlv::LinkIdentifier(LinkTupleId { link, poa: None });
    let indication = MihfMessage::new(MessageId::LINK_UP_INDICATION, [up]);
    let deregister = MihfMessage::new(MessageId::DEREGISTER_REQUEST, []);
    for (name, from, is_configured) in [("mn", ASKER, true), ("other", "192.0.2.66", false)] {
        let mut events = Vec::new();
        let mut talker = TestPeer::new(&mut service);
        for message in [&indication, &deregister, &register_request(), &deregister] {
            talker.transaction += 1;
            talker.deliver_message(now, (name, from), message);
            events.append(&mut talker.events);
        }
        let peer = MihfId::new(name).unwrap();
        let asked =
            RequestingPeer { peer, address: Some(SocketAddr::new(parse_ip(from), PORT)), is_configured };
        let from = asked.clone();
        let told = MihServiceEvent::Indication { from, message: indication.clone() };
        assert_eq!(
            events,
            [told, MihServiceEvent::Registered(asked.clone()), MihServiceEvent::Deregistered(asked)]
        );
    }
}

use super::*;
use crate::client::{self, Client, Question};
use crate::config::{Loaded, parse};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use usher_config::Alone;
use usher_core::bench::{At, Network};
use usher_core::impair::{ChannelConfig, Loss};
use usher_core::{ListenerId, Seed, SocketId, TransportProtocol};
use usher_mih::{
    HandoverStatus, LinkAction, LinkActionAttributes, LinkActionType, LinkParamType, LinkParamValue,
    LinkPoaList, PORT, PreferredLink, Route, kind,
};

const SERVER: &str = "192.0.2.1";
const ASKER: &str = "192.0.2.9";
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn loaded(text: &str) -> Loaded {
    parse("mih.toml", text, &Alone).unwrap_or_else(|faults| panic!("{faults}"))
}

/// What all of these tests' functions have in common.
fn file(id: &str, may: &str, more: &str) -> String {
    format!(
        "id = \"{id}\"\n[listen]\nudp = [\"0.0.0.0:4551\"]\ntcp = [\"0.0.0.0:4551\"]\n\
         [[allow]]\nprefix = \"192.0.2.0/24\"\nmay = [{may}]\n{more}"
    )
}

const ALL: &str = "\"events\", \"parameters\", \"actions\", \"handover\"";
const ETH0: &str =
    "[[interface]]\nname = \"eth0\"\nmay_act = true\nwatch = { below = -75, within = \"2 s\" }\n";

fn service(text: &str, seed: u64) -> MihService {
    let loaded = loaded(text);
    let id = loaded.id.clone().unwrap();
    MihService::new(loaded.config(id), Seed::new(seed).stream("mih", 0))
}

/// A function in a network, whose host measures and switches at once; switching is told as the kernel does.
fn serve(net: &mut Network, text: &str, address: &str) -> At<MihService> {
    let at = net.add(service(text, 1), &[ip(address)]);
    net.bind(at, SocketId::own(0), SocketAddr::new(ip(address), PORT));
    net.listen(at, ListenerId::own(0), SocketAddr::new(ip(address), PORT));
    net.on_job(at, |usher_core::Job { token, what, .. }| {
        let answer = match what {
            Job::Measure { interfaces } => {
                let reports = interfaces.iter().map(|name| up(name)).collect();
                Command::Measured { token, reports }
            }
            Job::Switch { interface, .. } => Command::Acted { token, done: interface == "eth0" },
        };
        Some((Duration::from_millis(1), answer))
    });
    at
}

fn up(name: &str) -> LinkReport {
    LinkReport {
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

fn down(name: &str) -> LinkReport {
    LinkReport { up: false, ..up(name) }
}

fn asker(net: &mut Network, question: Question, transport: TransportProtocol, follow: bool) -> At<Client> {
    let mut mih = mih::Config::new(MihfId::new("asker").unwrap());
    (mih.by_transport, mih.locals) = (true, vec![ip(ASKER)]);
    mih.timing.response = Some(Duration::from_secs(5));
    mih.timing.unanswered = mih::Unanswered::Abort;
    let route = Route { transport, local: Some(ip(ASKER)), remote: SocketAddr::new(ip(SERVER), PORT) };
    let config = client::Config { mih, route, to: None, question, links: Vec::new(), follow };
    let at = net.add(Client::new(config, Seed::new(2).stream("mih", 0)), &[ip(ASKER)]);
    net.bind(at, SocketId::own(0), SocketAddr::new(ip(ASKER), 40_000));
    net.command(at, client::Command::Start).unwrap();
    at
}

/// What an asker's last answer was.
fn answered(net: &mut Network, at: At<Client>) -> Result<Message, client::Event> {
    net.run(Duration::from_secs(30));
    let said = net.take(at);
    let answer = said.iter().rev().find_map(|(_, event)| match event {
        client::Event::Answered { answer } => Some(answer.clone()),
        _ => None,
    });
    answer.ok_or_else(|| said[said.len().saturating_sub(2)].1.clone())
}

fn indications(net: &mut Network, at: At<Client>) -> Vec<String> {
    let said = net.take(at);
    let name = |event: &client::Event| match event {
        client::Event::Indication { message, .. } => message.id.name().map(ToString::to_string),
        _ => None,
    };
    said.iter().filter_map(|(_, event)| name(event)).collect()
}

#[test]
fn what_becomes_of_a_link_is_told_to_who_subscribed() {
    for transport in [TransportProtocol::Udp, TransportProtocol::Tcp] {
        let mut net = Network::new(ChannelConfig::default());
        let server = serve(&mut net, &file("pos", ALL, ETH0), SERVER);
        net.command(server, Command::Link(up("eth0"))).unwrap();
        let asker = asker(&mut net, Question::Subscribe(EventList(u32::MAX)), transport, true);
        let answer = answered(&mut net, asker).unwrap();
        assert_eq!(answer.id, MessageId::EVENT_SUBSCRIBE_RESPONSE, "{transport}");
        assert_eq!(net[server].subscriptions(), 1);
        for (command, expected) in [
            (Command::Link(down("eth0")), vec!["MIH_Link_Down"]),
            (Command::Link(down("eth0")), vec![]),
            (Command::Link(up("eth0")), vec!["MIH_Link_Up"]),
            (
                Command::Link(LinkReport { rate: Some(11_000), ..up("eth0") }),
                vec!["MIH_Link_Parameters_Report"],
            ),
            (Command::Watched { interface: "eth0".into(), value: -70.0 }, vec![]),
            (Command::Watched { interface: "eth0".into(), value: -76.0 }, vec!["MIH_Link_Going_Down"]),
            (Command::Watched { interface: "eth0".into(), value: -80.0 }, vec![]),
            (Command::Watched { interface: "eth0".into(), value: -71.0 }, vec![]),
            (Command::Watched { interface: "eth0".into(), value: -76.0 }, vec!["MIH_Link_Going_Down"]),
            (
                Command::Link(LinkReport { present: false, enabled: false, ..down("eth0") }),
                vec!["MIH_Link_Down"],
            ),
        ] {
            net.command(server, command.clone()).unwrap();
            net.run(Duration::from_secs(1));
            assert_eq!(indications(&mut net, asker), expected, "{transport} {command:?}");
        }
        // RFC 5677, 6: by UDP all is acknowledged, by TCP nothing is.
        let acks = net[asker].counters().acks;
        assert_eq!(acks > 0, transport == TransportProtocol::Udp, "{transport}: {acks}");
        net.command(asker, client::Command::Leave).unwrap();
        net.run(Duration::from_secs(1));
        assert_eq!(net[server].subscriptions(), 0);
        assert!(net.take(asker).iter().any(|(_, event)| *event == client::Event::Finished));
    }
}

#[test]
fn the_rest_of_what_is_asked_is_answered_by_the_rights_of_the_address() {
    let ask = |may: &str, question: Question| {
        let mut net = Network::new(ChannelConfig::default());
        let server = serve(&mut net, &file("pos", may, ETH0), SERVER);
        net.command(server, Command::Link(up("eth0"))).unwrap();
        let asker = asker(&mut net, question.clone(), TransportProtocol::Udp, false);
        let answer = answered(&mut net, asker).unwrap();
        let refused = answer.status() != Some(Status::Success);
        assert_eq!(net[server].counters().0.refused, u64::from(refused), "{question:?}");
        answer
    };
    let every = EventList::LINK_UP;
    let act = Question::Act(LinkActionType::PowerDown, 0);
    for question in [
        Question::Subscribe(every),
        Question::Parameters,
        act.clone(),
        Question::Candidates,
        Question::Unsubscribe(every),
    ] {
        let answer = ask("", question.clone());
        assert_eq!(answer.status(), Some(Status::AuthorizationFailure), "{question:?}");
        let answer = ask(ALL, question.clone());
        assert_eq!(answer.status(), Some(Status::Success), "{question:?}");
    }
    let answer = ask(ALL, Question::Parameters);
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
        let answer = ask(ALL, Question::Act(action, 0));
        let Some(Tlv::LinkActionOutcomes(all)) = answer.get(kind::LINK_ACTION_RESULT_LIST) else { panic!() };
        assert_eq!(all[0].result, result);
    }
    assert_eq!(ask("", Question::Register).status(), Some(Status::Success), "all may register");
}

#[test]
fn who_is_of_no_network_is_not_heard_and_who_is_not_registered_is_told_nothing() {
    for transport in [TransportProtocol::Udp, TransportProtocol::Tcp] {
        let mut net = Network::new(ChannelConfig::default());
        let text = file("pos", ALL, ETH0).replace("192.0.2.0/24", "198.51.100.0/24");
        let server = serve(&mut net, &text, SERVER);
        let asker = asker(&mut net, Question::Capabilities, transport, false);
        let failed = answered(&mut net, asker).unwrap_err();
        assert!(matches!(failed, client::Event::Failed { .. }), "{failed:?}");
        assert!(net[server].counters().0.not_allowed > 0);
    }
    let mut service = service(&file("pos", ALL, ETH0), 1);
    service.command(Instant::ZERO, Command::Link(up("eth0"))).unwrap();
    let link = LinkTupleId { link: service.link("eth0").unwrap(), poa: None };
    let params = [Tlv::LinkIdentifier(link), Tlv::EventList(EventList::LINK_UP)];
    let asked = Message::new(MessageId::EVENT_SUBSCRIBE_REQUEST, params);
    let stranger = MihfId::new("stranger").unwrap();
    assert_eq!(service.subscribe(&stranger, &asked), [Tlv::Status(Status::Rejected)]);
}

#[test]
fn an_action_is_refused_where_the_interface_allows_none_and_done_later_when_it_is_to_be() {
    let mut net = Network::new(ChannelConfig::default());
    let server = serve(&mut net, &file("pos", ALL, &ETH0.replace("true", "false")), SERVER);
    net.command(server, Command::Link(up("eth0"))).unwrap();
    let act = |delay| Question::Act(LinkActionType::PowerDown, delay);
    let at = asker(&mut net, act(0), TransportProtocol::Udp, false);
    let answer = answered(&mut net, at).unwrap();
    let Some(Tlv::LinkActionOutcomes(all)) = answer.get(kind::LINK_ACTION_RESULT_LIST) else { panic!() };
    assert_eq!(all[0].result, LinkActionResult::Refused);

    let mut service = service(&file("pos", ALL, ETH0), 1);
    service.command(Instant::ZERO, Command::Link(up("eth0"))).unwrap();
    let link = service.link("eth0").unwrap();
    let action = LinkAction {
        link,
        poa: None,
        action: LinkActionType::PowerDown,
        attributes: LinkActionAttributes::NONE,
        delay: 2000,
    };
    let asked = Asked { peer: MihfId::new("x").unwrap(), address: None, is_configured: false };
    // The transaction is one that has been forgotten: what is done does not hang on its answer.
    let message = Message::new(MessageId::LINK_ACTIONS_REQUEST, [Tlv::LinkActions(vec![action])]);
    let mut heard = hear_one(&mut service, &message);
    let transaction = heard.pop().unwrap();
    service.actions(Instant::ZERO, asked, transaction, &message);
    let due = service.poll_timeout().unwrap();
    let mut buf = Vec::new();
    let mut jobs = Vec::new();
    let mut changes = Vec::new();
    let mut drain = |service: &mut MihService| {
        while let Some(output) = service.poll_output(&mut buf) {
            match output {
                usher_core::Output::Job(job) => jobs.push(job.what),
                usher_core::Output::Event(Event::Link { change, .. }) => changes.push(change),
                _ => {}
            }
        }
    };
    drain(&mut service);
    let mut now = due;
    while now < Instant::ZERO + Duration::from_secs(2) {
        service.handle(now, Input::Timeout);
        now = service.poll_timeout().unwrap();
    }
    service.handle(Instant::ZERO + Duration::from_secs(2), Input::Timeout);
    drain(&mut service);
    let foreseen = LinkChange::GoingDown(LinkGoingDownReason::ExplicitDisconnect, Duration::from_secs(2));
    assert!(changes.contains(&foreseen), "{changes:?}");
    assert_eq!(jobs, [Job::Switch { interface: "eth0".into(), on: false }]);
}

/// Has a function hear a request, and gives the names of those that its user would have to answer.
fn hear_one(service: &mut MihService, message: &Message) -> Vec<Incoming> {
    let (from, to) = (MihfId::new("x").unwrap(), MihfId::new("pos").unwrap());
    let mut octets = Vec::new();
    message.encode(mih::Bits::default(), mih::TransactionId::new(1), &from, &to, &mut octets).unwrap();
    let (conn, remote) = (ConnId::accepted(99), SocketAddr::new(ip(ASKER), 40_000));
    let listener = ListenerId::own(0);
    let accepted = StreamEvent::Accepted { listener, remote, local: None, certificate: None };
    for event in [accepted, StreamEvent::Data(&octets)] {
        service.mihf.handle(Instant::ZERO, Input::Stream { conn, event });
    }
    let mut all = Vec::new();
    while let Some(event) = service.outputs.next_event(&mut service.mihf) {
        if let mih::Event::Request { transaction, .. } = event {
            all.push(transaction);
        }
    }
    all
}

#[test]
fn a_peer_is_registered_with_and_subscribed_to_until_it_forgets_and_again() {
    let peer = "[[peer]]\nid = \"pos\"\naddress = \"192.0.2.1\"\nregister = true\nsubscribe = [\"link-down\"]\n\
                [timers]\nretransmission = \"0.2 s\"\nretry = \"1 s\"\nrefresh = \"20 s\"\n";
    for transport in ["udp", "tcp"] {
        let mut net = Network::new(ChannelConfig { loss: Loss::Bernoulli(0.1), ..ChannelConfig::default() });
        net.resend(Duration::from_millis(200));
        let pos = serve(&mut net, &file("pos", ALL, ETH0), SERVER);
        let mn = peer.replace("register", &format!("transport = \"{transport}\"\nregister"));
        let mn = serve(&mut net, &file("mn", "", &mn), ASKER);
        net.command(pos, Command::Link(up("eth0"))).unwrap();
        net.run(Duration::from_secs(40));
        assert_eq!(net[pos].subscriptions(), 1, "{transport}");
        net.take(mn);
        net.command(pos, Command::Link(down("eth0"))).unwrap();
        net.run(Duration::from_secs(5));
        let told = |net: &mut Network| {
            let said = net.take(mn);
            said.iter().filter(|(_, event)| matches!(event, Event::Indication { .. })).count()
        };
        assert_eq!(told(&mut net), 1, "{transport}");
        // It starts again and knows nobody; the next renewal tells it.
        net[pos] = service(&file("pos", ALL, ETH0), 7);
        net.cut(pos);
        net.command(pos, Command::Link(up("eth0"))).unwrap();
        net.run(Duration::from_secs(60));
        assert_eq!(net[pos].subscriptions(), 1, "{transport}");
        net.command(mn, Command::Leave).unwrap();
        net.run(Duration::from_secs(10));
        assert_eq!(net[pos].subscriptions(), 0, "{transport}: it has said goodbye");
    }
}

#[test]
fn other_settings_hold_at_once() {
    let mut net = Network::new(ChannelConfig::default());
    let server = serve(&mut net, &file("pos", ALL, ETH0), SERVER);
    net.command(server, Command::Link(up("eth0"))).unwrap();
    let configure = |net: &mut Network, text: &str| {
        let config = loaded(text).config(MihfId::new("pos").unwrap());
        net.command(server, Command::Configure(Box::new(config))).unwrap();
    };
    configure(&mut net, &file("pos", "\"parameters\"", &ETH0.replace("eth0", "eth1")));
    let at = asker(&mut net, Question::Parameters, TransportProtocol::Udp, false);
    assert!(matches!(answered(&mut net, at), Err(client::Event::NoLinks)), "eth0 is told of no more");
    net.command(server, Command::Link(up("eth1"))).unwrap();
    let at = asker(&mut net, Question::Parameters, TransportProtocol::Udp, false);
    assert_eq!(answered(&mut net, at).unwrap().status(), Some(Status::Success));
    // A peer that is new is asked; one that is there no more is not.
    let peer = "[[peer]]\nid = \"mn\"\naddress = \"192.0.2.50\"\nregister = true\n";
    let sent = net.sent().len();
    configure(&mut net, &file("pos", "", &format!("{ETH0}{peer}")));
    net.run(Duration::from_secs(2));
    assert!(net.sent().len() > sent);
    configure(&mut net, &file("pos", "", ETH0));
    net.run(Duration::from_secs(60));
    let sent = net.sent().len();
    net.run(Duration::from_secs(600));
    assert_eq!(net.sent().len(), sent);
}

#[test]
fn nobody_exceeds_the_limits() {
    let limits = "[limits]\nconnections = 2\nconnections_per_network = 1\nrequests = 1\nrequests_per_peer = 1\n\
                  indications_per_peer = 2\n";
    let mut service = service(&file("pos", ALL, &format!("{ETH0}{limits}")), 1);
    service.command(Instant::ZERO, Command::Link(up("eth0"))).unwrap();
    let remote = |last| SocketAddr::new(IpAddr::from([192, 0, 2, last]), 1);
    let admitted =
        [(0, 1), (1, 1), (2, 2), (3, 3)].map(|(n, last)| service.admit(ConnId::accepted(n), remote(last)));
    assert_eq!(admitted, [true, false, true, false]);
    service.closed(ConnId::accepted(0));
    assert!(service.admit(ConnId::accepted(4), remote(3)), "there is room again");

    let link = service.link("eth0").unwrap();
    let wanted = LinkStatusRequest {
        states: mih::LinkStates::NONE,
        params: vec![LinkParamType::DATA_RATE],
        descriptors: mih::LinkDescriptors::NONE,
    };
    let params = [Tlv::LinkIdentifierList(vec![link]), Tlv::StatusRequest(wanted)];
    let message = Message::new(MessageId::LINK_GET_PARAMETERS_REQUEST, params);
    let asked = || Asked { peer: MihfId::new("x").unwrap(), address: Some(remote(9)), is_configured: false };
    let transaction = hear_one(&mut service, &message)[0];
    service.request(Instant::ZERO, asked(), transaction, &message);
    service.request(Instant::ZERO, asked(), transaction, &message);
    assert_eq!((service.pending.len(), service.counters.requests_full), (1, 1));
    // One whose answer never comes is forgotten with its transaction.
    let later = Instant::ZERO + Duration::from_secs(60);
    service.request(later, asked(), transaction, &message);
    assert_eq!((service.pending.len(), service.jobs.len(), service.counters.requests_full), (1, 1, 1));
    service.command(later, Command::Measured { token: 999, reports: Vec::new() }).unwrap();
    assert_eq!(service.counters.late, 1);

    // Of a peer that does not acknowledge two indications wait, and no more.
    let peer = "[[peer]]\nid = \"mn\"\naddress = \"192.0.2.50\"\n";
    let config =
        loaded(&file("pos", ALL, &format!("{ETH0}{peer}{limits}"))).config(MihfId::new("pos").unwrap());
    service.command(later, Command::Configure(Box::new(config))).unwrap();
    let subscriber = MihfId::new("mn").unwrap();
    assert!(service.subscriptions.add("eth0", &subscriber, EventList::LINK_UP, (9, 9)));
    for _ in 0..4 {
        service.command(later, Command::Link(down("eth0"))).unwrap();
        service.command(later, Command::Link(up("eth0"))).unwrap();
    }
    assert_eq!((service.counters.indications, service.counters.indications_dropped), (2, 2));
}

#[test]
fn a_peer_is_told_of_new_addresses() {
    let peer = "[[peer]]\nid = \"pos\"\naddress = \"192.0.2.1\"\nregister = true\n";
    let mut net = Network::new(ChannelConfig::default());
    let pos = serve(&mut net, &file("pos", "", ETH0), SERVER);
    let mn = serve(&mut net, &file("mn", "", peer), ASKER);
    net.run(Duration::from_secs(5));
    let registered = |net: &mut Network| {
        let said = net.take(pos);
        said.iter().filter(|(_, event)| matches!(event, Event::Registered(_))).count()
    };
    assert_eq!(registered(&mut net), 1);
    net.command(mn, Command::Moved).unwrap();
    net.run(Duration::from_secs(5));
    assert_eq!(registered(&mut net), 1, "again, and at once");
}

/// What is asked for is in the answer where a handover is permitted, and nothing where it is declined.
#[test]
fn candidates_are_links_that_are_up_and_not_where_the_host_is() {
    let eth1 = "[[interface]]\nname = \"eth1\"\n";
    let mut service = service(&file("mn", ALL, &format!("{ETH0}{eth1}")), 1);
    let other = LinkReport { address: Some([2, 0, 0, 0, 0, 2]), ..up("eth1") };
    service.command(Instant::ZERO, Command::Link(up("eth0"))).unwrap();
    service.command(Instant::ZERO, Command::Link(other.clone())).unwrap();
    let [here, there] = ["eth0", "eth1"].map(|name| service.link(name).unwrap());
    let list = LinkPoaList { link: there, poas: Vec::new() };
    let lists = Tlv::LinkPoaLists(vec![list.clone()]);
    let asked = Message::new(MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, [lists]);
    let said = |status| {
        let here = LinkTupleId { link: here.clone(), poa: None };
        vec![Tlv::Status(Status::Success), Tlv::LinkIdentifier(here), Tlv::HandoverStatus(status)]
    };
    let mut permitted = said(HandoverStatus::Permitted);
    permitted.push(Tlv::PreferredLinks(vec![PreferredLink::new(list)]));
    assert_eq!(service.candidates(&asked), permitted);
    service.command(Instant::ZERO, Command::Link(LinkReport { up: false, ..other })).unwrap();
    assert_eq!(service.candidates(&asked), said(HandoverStatus::Declined));
}

#[test]
fn an_answer_whose_request_is_forgotten_is_counted() {
    let mut service = service(&file("pos", ALL, ETH0), 1);
    let asked = || Asked { peer: MihfId::new("x").unwrap(), address: None, is_configured: false };
    service.command(Instant::ZERO, Command::Link(up("eth0"))).unwrap();
    let list = LinkPoaList { link: service.link("eth0").unwrap(), poas: Vec::new() };
    let params = [Tlv::LinkPoaLists(vec![list]), Tlv::QueryResourceReport(false)];
    let message = Message::new(MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, params);
    let transaction = hear_one(&mut service, &message)[0];
    for late in [0, 1] {
        service.request(Instant::ZERO, asked(), transaction, &message);
        assert_eq!((service.counters.refused, service.counters.late), (1, late));
    }
}

/// An asker in a network, under a name and at an address of its own.
fn named_asker(net: &mut Network, address: &str, question: Question, follow: bool) -> At<Client> {
    let mut mih = mih::Config::new(MihfId::new("asker").unwrap());
    (mih.by_transport, mih.locals) = (true, vec![ip(address)]);
    (mih.timing.response, mih.timing.retransmission) = (Some(Duration::from_secs(9)), Duration::from_secs(3));
    let remote = SocketAddr::new(ip(SERVER), PORT);
    let route = Route { transport: TransportProtocol::Udp, local: Some(ip(address)), remote };
    let config = client::Config { mih, route, to: None, question, links: Vec::new(), follow };
    let at = net.add(Client::new(config, Seed::new(5).stream("mih", 0)), &[ip(address)]);
    net.bind(at, SocketId::own(0), SocketAddr::new(ip(address), 40_000));
    net.command(at, client::Command::Start).unwrap();
    at
}

/// A stranger who calls itself what a subscriber is called, at an address with the same rights, is told nothing and ends nothing.
#[test]
fn indications_stay_with_the_address_that_subscribed() {
    let mut net = Network::new(ChannelConfig::default());
    let server = serve(&mut net, &file("pos", ALL, ETH0), SERVER);
    net.command(server, Command::Link(up("eth0"))).unwrap();
    let honest = named_asker(&mut net, ASKER, Question::Subscribe(EventList::LINK_DOWN), true);
    answered(&mut net, honest).unwrap();
    for question in [
        Question::Subscribe(EventList::LINK_DOWN),
        Question::Unsubscribe(EventList::LINK_DOWN),
        Question::Deregister,
        Question::Act(LinkActionType::PowerDown, 0),
    ] {
        let stranger = named_asker(&mut net, "192.0.2.66", question.clone(), false);
        let answer = answered(&mut net, stranger).unwrap();
        assert_eq!(answer.status(), Some(Status::AuthorizationFailure), "{question:?}");
    }
    let stranger = named_asker(&mut net, "192.0.2.66", Question::Capabilities, true);
    net.run(Duration::from_secs(5));
    net.take(stranger);
    net.take(honest);
    net.command(server, Command::Link(down("eth0"))).unwrap();
    net.run(Duration::from_secs(10));
    assert_eq!(indications(&mut net, honest), ["MIH_Link_Down"]);
    assert_eq!(indications(&mut net, stranger), [] as [&str; 0]);
    assert_eq!(net[server].counters().0.indications_lost, 0);
    let said = net.take(server);
    let claim = said.iter().find_map(|(_, event)| match event {
        Event::ClaimRefused(asked) => asked.address.map(|address| address.ip()),
        _ => None,
    });
    assert_eq!(claim, Some(ip("192.0.2.66")));
}

/// A subscriber that has moved is heard at its new address once the old one is silent; what it had subscribed to ends with that.
#[test]
fn a_subscriber_that_has_moved_subscribes_anew() {
    let mut net = Network::new(ChannelConfig::default());
    let server = serve(&mut net, &file("pos", ALL, ETH0), SERVER);
    net.command(server, Command::Link(up("eth0"))).unwrap();
    let subscribe = Question::Subscribe(EventList::LINK_DOWN);
    let old = named_asker(&mut net, ASKER, subscribe.clone(), true);
    answered(&mut net, old).unwrap();
    net.down(ip(ASKER), true);
    let new = named_asker(&mut net, "192.0.2.66", subscribe, true);
    assert_eq!(answered(&mut net, new).unwrap().status(), Some(Status::Success));
    assert_eq!(net[server].subscriptions(), 1);
    net.take(new);
    net.command(server, Command::Link(down("eth0"))).unwrap();
    net.run(Duration::from_secs(10));
    assert_eq!(indications(&mut net, new), ["MIH_Link_Down"]);
}

/// A function from which datagrams come one at a time, and which answers each probe that its address gets.
struct Talker<'a> {
    service: &'a mut MihService,
    transaction: u16,
    events: Vec<Event>,
}

impl<'a> Talker<'a> {
    fn new(service: &'a mut MihService) -> Self {
        Self { service, transaction: 0, events: Vec::new() }
    }
}

impl Talker<'_> {
    fn drain(&mut self) -> Vec<(SocketAddr, mih::Decoded)> {
        let (mut sent, mut buf) = (Vec::new(), Vec::new());
        while let Some(output) = self.service.poll_output(&mut buf) {
            match output {
                usher_core::Output::Transmit(usher_core::Transmit::Datagram { path }) => {
                    sent.push((path.remote, Message::decode(&buf).unwrap()));
                }
                usher_core::Output::Event(event) => self.events.push(event),
                _ => {}
            }
            buf.clear();
        }
        sent
    }
    fn hear(
        &mut self,
        now: Instant,
        (name, from): (&str, &str),
        message: &Message,
    ) -> Vec<(SocketAddr, mih::Decoded)> {
        self.transaction += 1;
        let (name, remote) = (MihfId::new(name).unwrap(), SocketAddr::new(ip(from), PORT));
        let mut next = Some((message.clone(), mih::TransactionId::new(self.transaction)));
        let mut sent = Vec::new();
        while let Some((message, tid)) = next.take() {
            let mut octets = Vec::new();
            message
                .encode(mih::Bits::default(), tid, &name, &MihfId::new("pos").unwrap(), &mut octets)
                .unwrap();
            let path = usher_core::Path {
                socket: SocketId::own(0),
                local: SocketAddr::new(ip(SERVER), PORT),
                remote,
            };
            self.service.handle(now, Input::Datagram { path, data: &octets });
            sent = self.drain();
            let probe = sent
                .iter()
                .find(|(to, sent)| *to == remote && sent.header.id == MessageId::CAPABILITY_DISCOVER_REQUEST);
            next = probe.map(|(_, sent)| {
                let params = [Tlv::Status(Status::Success)];
                (Message::new(MessageId::CAPABILITY_DISCOVER_RESPONSE, params), sent.header.transaction)
            });
        }
        sent
    }
    /// The status of the answer to a request.
    fn ask(&mut self, now: Instant, who: (&str, &str), message: &Message) -> Option<Status> {
        let answer = message.id.response();
        let sent = self.hear(now, who, message);
        sent.iter().find(|(_, sent)| sent.header.id == answer).and_then(|(_, sent)| sent.message.status())
    }
    /// To whom it says that a link is down, which is up again then.
    fn told(&mut self, now: Instant) -> Vec<String> {
        self.service.command(now, Command::Link(down("eth0"))).unwrap();
        let sent = self.drain();
        self.service.command(now, Command::Link(up("eth0"))).unwrap();
        self.drain();
        let told = sent.iter().filter(|(_, sent)| sent.header.id == MessageId::LINK_DOWN_INDICATION);
        told.map(|(to, _)| to.ip().to_string()).collect()
    }
}

fn register() -> Message {
    let params = [Tlv::LinkIdentifierList(Vec::new()), Tlv::RegisterCode(mih::RegisterCode::Register)];
    Message::new(MessageId::REGISTER_REQUEST, params)
}

fn subscribe_to(link: LinkId) -> Message {
    let link = Tlv::LinkIdentifier(LinkTupleId { link, poa: None });
    Message::new(MessageId::EVENT_SUBSCRIBE_REQUEST, [link, Tlv::EventList(EventList::LINK_DOWN)])
}

/// A subscription ends with the registration of whoever made it, so that nobody inherits it with the identifier.
#[test]
fn a_subscription_ends_with_the_registration() {
    let all = format!("{}[[allow]]\nprefix = \"192.0.2.9/32\"\nmay = [{ALL}]\n", file("pos", "", ETH0));
    let mut service = service(&all, 1);
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    service.command(at(1), Command::Link(up("eth0"))).unwrap();
    let subscribe = subscribe_to(service.link("eth0").unwrap());
    let mut talker = Talker::new(&mut service);
    let (honest, stranger) = (("asker", ASKER), ("asker", "192.0.2.66"));
    assert_eq!(talker.ask(at(1), ("other", stranger.1), &register()), Some(Status::Success));
    assert_eq!(talker.ask(at(1), ("other", stranger.1), &subscribe), Some(Status::AuthorizationFailure));
    assert_eq!(talker.ask(at(1), honest, &register()), Some(Status::Success));
    assert_eq!(talker.ask(at(1), honest, &subscribe), Some(Status::Success));
    assert_eq!(talker.told(at(2)), [ASKER]);
    assert_eq!(talker.service.subscriptions(), 1);
    // It goes without a word.
    for minute in 1..61 {
        talker.service.handle(at(60 * minute), Input::Timeout);
    }
    talker.service.handle(at(3601), Input::Timeout);
    assert_eq!(talker.service.subscriptions(), 0, "what nobody wants to hear takes nobody's place");
    assert_eq!(talker.ask(at(3602), stranger, &register()), Some(Status::Success));
    assert_eq!(talker.told(at(3603)), [] as [&str; 0]);
    // By itself it ends, too, where nothing has happened in between.
    assert_eq!(talker.ask(at(3604), ("late", ASKER), &register()), Some(Status::Success));
    assert_eq!(talker.ask(at(3604), ("late", ASKER), &subscribe), Some(Status::Success));
    assert_eq!(talker.ask(at(7300), ("late", stranger.1), &register()), Some(Status::Success));
    assert_eq!(talker.told(at(7300)), [] as [&str; 0]);
    assert_eq!(talker.service.subscriptions(), 0);
}

/// The same where the configuration names a subscriber no more, or takes away the right to hear of events.
#[test]
fn a_subscription_ends_with_what_the_configuration_granted() {
    let peer = "[[peer]]\nid = \"asker\"\naddress = \"192.0.2.9\"\n";
    let now = Instant::ZERO + Duration::from_secs(1);
    for (registers, text, left) in [
        (false, file("pos", ALL, &format!("{ETH0}{peer}")), 1),
        (false, file("pos", ALL, ETH0), 0),
        (true, file("pos", ALL, ETH0), 1),
        (true, file("pos", "\"parameters\"", ETH0), 0),
    ] {
        let mut service = service(&file("pos", ALL, &format!("{ETH0}{peer}")), 1);
        service.command(now, Command::Link(up("eth0"))).unwrap();
        let subscribe = subscribe_to(service.link("eth0").unwrap());
        let mut talker = Talker::new(&mut service);
        if registers {
            assert_eq!(talker.ask(now, ("asker", ASKER), &register()), Some(Status::Success));
        }
        assert_eq!(talker.ask(now, ("asker", ASKER), &subscribe), Some(Status::Success));
        let config = loaded(&text).config(MihfId::new("pos").unwrap());
        service.command(now, Command::Configure(Box::new(config))).unwrap();
        assert_eq!(service.subscriptions(), left, "{registers} {text}");
    }
}

fn act(service: &MihService, actions: &[(LinkActionType, u16)]) -> Message {
    let link = service.link("eth0").unwrap();
    let action = |(action, delay): &(LinkActionType, u16)| LinkAction {
        link: link.clone(),
        poa: None,
        action: *action,
        attributes: LinkActionAttributes::NONE,
        delay: *delay,
    };
    Message::new(MessageId::LINK_ACTIONS_REQUEST, [Tlv::LinkActions(actions.iter().map(action).collect())])
}

/// The jobs that a service wants done by now.
fn jobs(service: &mut MihService) -> Vec<(u64, Job)> {
    let (mut jobs, mut buf) = (Vec::new(), Vec::new());
    while let Some(output) = service.poll_output(&mut buf) {
        if let usher_core::Output::Job(job) = output {
            jobs.push((job.token, job.what));
        }
    }
    jobs
}

/// A link action that waits for its time has the place of a request.
#[test]
fn delayed_actions_are_within_the_limits() {
    let limits = "[limits]\nrequests = 3\nrequests_per_peer = 2\n";
    let mut service = service(&file("pos", ALL, &format!("{ETH0}{limits}")), 1);
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    service.command(at(0), Command::Link(up("eth0"))).unwrap();
    let (down, up) = (LinkActionType::PowerDown, LinkActionType::PowerUp);
    let one = act(&service, &[(down, 1000)]);
    let both = act(&service, &[(down, 1000), (up, 2000)]);
    let three = act(&service, &[(down, 1000), (up, 2000), (down, 3000)]);
    let now = act(&service, &[(down, 0)]);
    let mixed = act(&service, &[(down, 0), (up, 2000), (up, 3000)]);
    let transaction = hear_one(&mut service, &one)[0];
    let ask = |service: &mut MihService, ms, peer: &str, message: &Message| {
        let address = Some(SocketAddr::new(ip(ASKER), 1));
        let asked = Asked { peer: MihfId::new(peer).unwrap(), address, is_configured: false };
        let full = service.counters.requests_full;
        service.request(at(ms), asked, transaction, message);
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
    assert_eq!(jobs(&mut service), []);
    service.handle(at(1000), Input::Timeout);
    let switch = |on| Job::Switch { interface: "eth0".into(), on };
    let due: Vec<Job> = jobs(&mut service).into_iter().map(|(_, job)| job).collect();
    assert_eq!(due, [switch(false), switch(false)]);
    assert!(ask(&mut service, 1000, "y", &now), "there is room again");
    jobs(&mut service);
    // What may not be done any more when its time comes is not done.
    let text = file("pos", ALL, &ETH0.replace("true", "false"));
    let config = loaded(&text).config(MihfId::new("pos").unwrap());
    service.command(at(1500), Command::Configure(Box::new(config))).unwrap();
    service.handle(at(2000), Input::Timeout);
    assert_eq!((jobs(&mut service), service.delayed.len()), (Vec::new(), 0));
}

/// However many actions a request has, an interface is switched once each way, and all of them are answered.
#[test]
fn actions_of_one_request_on_one_interface_are_done_once() {
    let mut service = service(&file("pos", ALL, ETH0), 1);
    service.command(Instant::ZERO, Command::Link(up("eth0"))).unwrap();
    let (down, up) = ((LinkActionType::PowerDown, 0), (LinkActionType::PowerUp, 0));
    let message = act(&service, &[down, up].repeat(500));
    let transaction = hear_one(&mut service, &message)[0];
    let address = Some(SocketAddr::new(ip(ASKER), 1));
    let asked = Asked { peer: MihfId::new("x").unwrap(), address, is_configured: false };
    service.request(Instant::ZERO, asked, transaction, &message);
    let wanted = jobs(&mut service);
    assert_eq!(wanted.len(), 2);
    for (n, (token, _)) in wanted.into_iter().enumerate() {
        assert_eq!(service.counters.answered, 0);
        service.command(Instant::ZERO, Command::Acted { token, done: n == 0 }).unwrap();
    }
    assert_eq!((service.counters.answered, service.counters.late, service.pending.len()), (1, 0, 0));
}

/// Who reads the events can tell functions of the configuration, which are few, from all others.
#[test]
fn events_say_whether_their_function_is_configured() {
    let peer = "[[peer]]\nid = \"mn\"\naddress = \"192.0.2.9\"\n";
    let mut service = service(&file("pos", "", &format!("{ETH0}{peer}")), 1);
    let now = Instant::ZERO + Duration::from_secs(1);
    let link = LinkId::mac(mih::LinkType::Ethernet, MAC);
    let up = Tlv::LinkIdentifier(LinkTupleId { link, poa: None });
    let indication = Message::new(MessageId::LINK_UP_INDICATION, [up]);
    let deregister = Message::new(MessageId::DEREGISTER_REQUEST, []);
    for (name, from, is_configured) in [("mn", ASKER, true), ("other", "192.0.2.66", false)] {
        let mut events = Vec::new();
        let mut talker = Talker::new(&mut service);
        for message in [&indication, &deregister, &register(), &deregister] {
            talker.transaction += 1;
            talker.hear(now, (name, from), message);
            events.append(&mut talker.events);
        }
        let peer = MihfId::new(name).unwrap();
        let asked = Asked { peer, address: Some(SocketAddr::new(ip(from), PORT)), is_configured };
        let from = asked.clone();
        let told = Event::Indication { from, message: indication.clone() };
        assert_eq!(events, [told, Event::Registered(asked.clone()), Event::Deregistered(asked)]);
    }
}

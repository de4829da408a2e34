//! `usher mih`: the MIH function of a host, and questions to another host's.

mod show;

use crate::output::{Failure, Output};
use crate::service::check;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;
use usher_config::Prefix;
use usher_config::units::Time;
use usher_core::{Duration, TransportProtocol};
use usher_host::mih::{self, MihError};
use usher_mih::{
    EventList, LinkActionResult, LinkActionType, LinkAddr, MessageId, MihfId, PORT, Route, Service, Status,
    Timing, Tlv, Unanswered, kind,
};
use usher_mih_service::client::{self, Question};
use usher_mih_service::config::{self, DEFAULT_PATH, EventName};

#[derive(Subcommand, Debug)]
pub(crate) enum MihCommand {
    /// Tell others of this host's links, and let those who may ask and act, until told to end.
    #[command(after_help = "Examples:
  usher mih serve
  usher mih serve --config ./mih.toml
  usher mih serve --listen 0.0.0.0:4551

Without a configuration the function serves loopback, tells of all interfaces, and is called as the host is. SIGHUP has the
configuration read again, SIGTERM ends it. To switch interfaces for others it needs CAP_NET_ADMIN.")]
    Serve {
        /// The configuration file [default: /etc/usher/mih.toml].
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// An address with its port, for UDP and TCP, in place of those of the configuration; may be repeated.
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Vec<SocketAddr>,
    },
    /// Check a configuration file without serving: every fault with its line.
    #[command(after_help = "Examples:\n  usher mih check\n  usher mih check ./mih.toml")]
    Check {
        /// The file [default: /etc/usher/mih.toml].
        file: Option<PathBuf>,
    },
    /// Be a mobile node that hands over from one interface to another, until told to end.
    #[command(after_help = "Examples:
  usher mih node
  usher mih node --config ./mn.toml

The table [handover] of the configuration names both interfaces, the points of service and the correspondent. When the serving
link is lost, or a watched value says that it will be, the node asks its point of service, moves its default route to the other
interface and tells the correspondent by a Binding Update. Needs CAP_NET_ADMIN.")]
    Node {
        /// The configuration file [default: /etc/usher/mih.toml].
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Send a flow to a mobile node, wherever its Binding Updates say that it is, until told to end.
    #[command(
        after_help = "Example:\n  usher mih flow 192.0.2.10:5000 --from 198.51.100.9 --interval '20 ms'"
    )]
    Flow {
        /// The node's home address, with the port of its flow.
        node: SocketAddr,
        /// Our address, which is the node's `correspondent`.
        #[arg(long, value_name = "ADDRESS")]
        from: IpAddr,
        /// Networks to which the node may have the flow sent [default: anywhere that it proves to receive at].
        #[arg(long, value_name = "PREFIX", value_parser = Prefix::parse)]
        care_of: Vec<Prefix>,
        /// From one packet to the next.
        #[arg(long, value_name = "TIME", value_parser = Time::parse, default_value = "20 ms")]
        interval: Time,
        /// Octets of a packet, without UDP's header; 4 at least, for its number.
        #[arg(long, value_name = "N", default_value = "200")]
        size: u16,
        /// So many packets [default: without end].
        #[arg(long, value_name = "N")]
        packets: Option<u32>,
    },
    /// Ask another MIH function, and print what it says.
    #[command(after_help = "Examples:
  usher mih send 192.0.2.7 discover
  usher mih send 192.0.2.7 subscribe --follow
  usher mih send 192.0.2.7 parameters --link 02:00:00:00:00:01 --json
  usher mih send 192.0.2.7 act power-down --link 02:00:00:00:00:01 --delay '2 s'
  usher mih send --tcp 192.0.2.7 candidates

What it is called and which links it has is discovered first. Ends with code 1 when it does not answer, or answers that it will
not.")]
    Send(Send),
}

#[derive(Args, Debug)]
pub(crate) struct Send {
    /// The other function's host: HOST or HOST:PORT, [ADDRESS]:PORT for IPv6.
    host: String,
    /// What is asked.
    #[command(subcommand)]
    question: Asked,
    /// By TCP; otherwise by UDP, with MIH acknowledgements.
    #[arg(long)]
    tcp: bool,
    /// What the other function is called [default: whoever answers there].
    #[arg(long, value_name = "ID", value_parser = config::identifier)]
    to: Option<MihfId>,
    /// What this one calls itself [default: mih-send with the process's number, at this host's name].
    #[arg(long, value_name = "ID", value_parser = config::identifier)]
    id: Option<MihfId>,
    /// The address to ask from [default: the system's choice].
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// How long an answer may take.
    #[arg(long, value_name = "TIME", value_parser = Time::parse, default_value = "5 s")]
    timeout: Time,
    /// How long an acknowledgement is waited for before a message is sent again, twice at most.
    #[arg(long, value_name = "TIME", value_parser = Time::parse, default_value = "1 s")]
    retransmission: Time,
}

/// Which links, and which events.
#[derive(Args, Debug)]
pub(crate) struct Events {
    /// Which of its links, by their MAC addresses [default: all].
    #[arg(long, value_name = "MAC", value_parser = mac)]
    link: Vec<LinkAddr>,
    /// Which events.
    #[arg(long, value_name = "EVENT,...", value_delimiter = ',', value_parser = event,
        default_value = "link-up,link-down,link-going-down,link-parameters-report")]
    events: Vec<EventName>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Asked {
    /// MIH_Capability_Discover: its identifier, links, events and commands.
    Discover,
    /// MIH_Register, until its time is over.
    Register,
    /// MIH_DeRegister.
    Deregister,
    /// MIH_Event_Subscribe, after MIH_Register: to be told is for who is registered.
    Subscribe {
        #[command(flatten)]
        events: Events,
        /// Print indications as they come, until interrupted; then unsubscribe.
        #[arg(long)]
        follow: bool,
    },
    /// MIH_Event_Unsubscribe.
    Unsubscribe(Events),
    /// MIH_Link_Get_Parameters: how its links are.
    Parameters {
        /// Which of its links, by their MAC addresses [default: all].
        #[arg(long, value_name = "MAC", value_parser = mac)]
        link: Vec<LinkAddr>,
    },
    /// MIH_Link_Actions: switch links off or on, where its configuration lets us.
    Act {
        /// What they shall do.
        #[arg(value_enum)]
        action: Action,
        /// Which of its links, by their MAC addresses.
        #[arg(long, value_name = "MAC", value_parser = mac, required = true)]
        link: Vec<LinkAddr>,
        /// How long from now, up to 65 s; who subscribed to it hears MIH_Link_Going_Down at once.
        #[arg(long, value_name = "TIME", value_parser = delay, default_value = "0 s")]
        delay: u16,
    },
    /// MIH_Net_HO_Candidate_Query: to which of its links it could go.
    Candidates {
        /// Which of its links, by their MAC addresses [default: all].
        #[arg(long, value_name = "MAC", value_parser = mac)]
        link: Vec<LinkAddr>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Action {
    /// Break the connection.
    Disconnect,
    /// Switch off.
    PowerDown,
    /// Switch on, and connect.
    PowerUp,
    /// Go to sleep.
    LowPower,
}

fn mac(text: &str) -> Result<LinkAddr, String> {
    let mac = config::mac(text).map(LinkAddr::Mac);
    mac.ok_or_else(|| "a MAC address is needed, such as 02:00:00:00:00:01".to_owned())
}

fn event(text: &str) -> Result<EventName, String> {
    let names = || EventName::ALL.map(EventName::name).join(", ");
    EventName::from_name(text).ok_or_else(|| format!("the events are {}", names()))
}

fn delay(text: &str) -> Result<u16, String> {
    let time = Time::parse(text)?.get().as_millis();
    u16::try_from(time).map_err(|_| "65.535 s at most, since the message has no room for more".to_owned())
}

pub(crate) fn mih(output: &Output, command: MihCommand) -> Result<(), Failure> {
    match command {
        MihCommand::Serve { config, listen } => mih::serve(config, &listen).map_err(failure),
        MihCommand::Node { config } => mih::node::node(config).map_err(failure),
        MihCommand::Flow { node, from, care_of, interval, size, packets } => {
            if interval.get().is_zero() {
                return Err(Failure::usage("--interval: a flow needs time between its packets"));
            }
            let networks = care_of.iter().map(|prefix| (prefix.network, prefix.bits)).collect();
            let config = usher_mobility::correspondent::Config {
                station: node,
                size: size.into(),
                interval: interval.get(),
                packets,
                longest_binding: Duration::from_secs(24 * 3600),
                proof: None,
            };
            mih::node::flow(from, networks, config).map_err(failure)
        }
        MihCommand::Check { file } => {
            let file = file.unwrap_or_else(|| DEFAULT_PATH.into());
            check(output, &file, mih::check(&file))
        }
        MihCommand::Send(send) => ask(output, send),
    }
}

fn failure(error: MihError) -> Failure {
    match error {
        MihError::Serve(_) => Failure::failed(error),
        other => Failure::usage(other),
    }
}

fn address(send: &Send) -> Result<SocketAddr, Failure> {
    let host = &send.host;
    let fits = |address: &SocketAddr| send.from.is_none_or(|from| from.is_ipv4() == address.is_ipv4());
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let all = host.to_socket_addrs().or_else(|_| (host.as_str(), PORT).to_socket_addrs());
    let mut all = all.map_err(|error| Failure::failed(format!("{host}: {error}")))?;
    all.find(fits).ok_or_else(|| {
        Failure::usage(format!("{host} has no address of the family that is asked from (--from)"))
    })
}

fn question(asked: Asked) -> (Question, Vec<LinkAddr>, bool) {
    let all = |events: &[EventName]| events.iter().fold(EventList::NONE, |all, e| all.with(e.events()));
    match asked {
        Asked::Discover => (Question::Capabilities, Vec::new(), false),
        Asked::Register => (Question::Register, Vec::new(), false),
        Asked::Deregister => (Question::Deregister, Vec::new(), false),
        Asked::Subscribe { events, follow } => {
            (Question::Subscribe(all(&events.events)), events.link, follow)
        }
        Asked::Unsubscribe(events) => (Question::Unsubscribe(all(&events.events)), events.link, false),
        Asked::Parameters { link } => (Question::Parameters, link, false),
        Asked::Act { action, link, delay } => {
            let action = match action {
                Action::Disconnect => LinkActionType::Disconnect,
                Action::PowerDown => LinkActionType::PowerDown,
                Action::PowerUp => LinkActionType::PowerUp,
                Action::LowPower => LinkActionType::LowPower,
            };
            (Question::Act(action, delay), link, false)
        }
        Asked::Candidates { link } => (Question::Candidates, link, false),
    }
}

/// The timers of a client: discovery, which goes to whoever hears it and cannot be acknowledged, is sent again for want of its
/// answer.
fn function(id: MihfId, retransmission: Duration, timeout: Duration) -> usher_mih::Config {
    let mut config = usher_mih::Config::new(id);
    config.by_transport = true;
    config.timing =
        Timing { retransmission, retransmissions: 2, response: Some(timeout), unanswered: Unanswered::Abort };
    let discovery =
        Timing { response: Some(retransmission), unanswered: Unanswered::Retransmit, ..config.timing };
    config.by_message.insert((Service::Management, MessageId::CAPABILITY_DISCOVER_REQUEST.action), discovery);
    config
}

/// What is known of the conversation so far.
#[derive(Default)]
struct Said {
    peer: Option<MihfId>,
    answers: Vec<Value>,
    failure: Option<String>,
    broken: Option<Failure>,
}

fn ask(output: &Output, send: Send) -> Result<(), Failure> {
    let remote = address(&send)?;
    let transport = if send.tcp { TransportProtocol::Tcp } else { TransportProtocol::Udp };
    let own = match send.id {
        Some(id) => id,
        // Of its own for each client: who asks meanwhile is not to be taken for the one who follows.
        None => config::identifier(&format!("mih-send-{}@{}", std::process::id(), mih::host_name()))
            .map_err(|_| {
                Failure::usage(format!("the host's name {} is no identifier; give --id", mih::host_name()))
            })?,
    };
    let (question, links, follow) = question(send.question);
    let discovers = question == Question::Capabilities;
    let config = client::Config {
        mih: function(own, send.retransmission.get(), send.timeout.get()),
        route: Route { transport, local: None, remote },
        to: send.to,
        question,
        links,
        follow,
    };
    let said = Rc::new(RefCell::new(Said::default()));
    let (heard, printed) = (said.clone(), *output);
    mih::ask(config, send.from, move |event| {
        hear(&mut heard.borrow_mut(), &printed, event, discovers, follow)
    })
    .map_err(|error| Failure::failed(format!("{remote} cannot be asked: {error}")))?;
    let said = said.take();
    if let Some(broken) = said.broken {
        return Err(broken);
    }
    if output.json && !follow {
        let peer = said.peer.map(|peer| peer.to_string());
        output.value(&json!({
            "address": remote, "transport": transport.name(), "peer": peer, "answers": said.answers,
            "failure": said.failure,
        }))?;
    }
    match said.failure {
        Some(failure) => Err(Failure::failed(format!("{remote}: {failure}"))),
        None => Ok(()),
    }
}

fn hear(said: &mut Said, output: &Output, event: client::Event, discovers: bool, follow: bool) {
    let print = |said: &mut Said, value: Value, text: &str| {
        let done = match (output.json, follow) {
            (true, true) => output.text(&format!("{value}\n")),
            (true, false) => {
                said.answers.push(value);
                Ok(())
            }
            (false, _) => output.text(text),
        };
        if let Err(failure) = done {
            said.broken.get_or_insert(failure);
        }
    };
    match event {
        client::Event::Discovered { peer, answer } => {
            said.peer = Some(peer.clone());
            if discovers {
                print(said, show::json(&answer), &format!("{peer}\n{}", show::text(&answer)));
            }
            refused(said, &answer);
        }
        client::Event::Answered { answer } => {
            print(said, show::json(&answer), &show::text(&answer));
            refused(said, &answer);
        }
        client::Event::Indication { peer, message } => {
            let mut value = show::json(&message);
            value["peer"] = peer.to_string().into();
            let line = format!("{peer}: {}", show::line(&message));
            print(said, value, &line);
        }
        client::Event::Failed { request, failure } => {
            let text = format!("{request}: {failure}: {}", meaning(failure));
            said.failure.get_or_insert(text);
        }
        client::Event::NoLinks => {
            let text = "it has no such link; `usher mih send HOST discover` lists those that it has";
            said.failure.get_or_insert_with(|| text.to_owned());
        }
        client::Event::Finished => {}
    }
}

/// Notes what an answer refuses.
fn refused(said: &mut Said, answer: &usher_mih::Message) {
    let name = answer.id.name().unwrap_or("an unknown message");
    let advice = match answer.status() {
        Some(Status::Success) => {
            if let Some(Tlv::LinkActionOutcomes(all)) = answer.get(kind::LINK_ACTION_RESULT_LIST)
                && let Some(outcome) = all.iter().find(|outcome| outcome.result != LinkActionResult::Success)
            {
                let text = format!("{}: {}", outcome.link, outcome.result);
                said.failure.get_or_insert(text);
            }
            return;
        }
        Some(Status::AuthorizationFailure) => {
            "its configuration does not let this address ([[allow]] may)".to_owned()
        }
        Some(Status::Rejected) => "it does not do that, or has no such link, or is full".to_owned(),
        Some(status) => format!("status {status}"),
        None => "an answer without a status".to_owned(),
    };
    let status = answer.status().map_or_else(String::new, |status| format!(" ({status})"));
    said.failure.get_or_insert(format!("{name} is refused{status}: {advice}"));
}

const fn meaning(failure: usher_mih::Failure) -> &'static str {
    use usher_mih::Failure as F;
    match failure {
        F::NoAcknowledgement => "no MIH function is there, or the way to it or back loses what is sent",
        F::NoResponse => {
            "no MIH function is there, its configuration does not hear this address, or it needs longer (--timeout)"
        }
        F::NoRoute => "it is not known any more",
        F::Transport => "no connection: nobody listens there, or it closed the connection as not allowed",
    }
}

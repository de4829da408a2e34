//! `usher mih`: the MIH function of a host, and questions to another host's.

mod show;

use crate::output::{CommandFailure, ConsoleOutput};
use crate::service::report_check;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;
use usher_config::Prefix;
use usher_config::units::TimeSpan;
use usher_core::{Duration, TransportProtocol};
use usher_host::mih::{self, MihError};
use usher_mih::{
    EventList, LinkActionResult, LinkActionType, LinkAddr, MessageId, MihfId, PORT, PeerRoute, ServiceId,
    Status, Tlv, TransactionTiming, UnansweredPolicy, kind,
};
use usher_mih_service::client::{self, ClientRequest};
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
        #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, default_value = "20 ms")]
        interval: TimeSpan,
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
    Send(MihSendArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MihSendArgs {
    /// The other function's host: HOST or HOST:PORT, [ADDRESS]:PORT for IPv6.
    host: String,
    /// What is asked.
    #[command(subcommand)]
    question: MihSendCommand,
    /// By TCP; otherwise by UDP, with MIH acknowledgements.
    #[arg(long)]
    tcp: bool,
    /// What the other function is called [default: whoever answers there].
    #[arg(long, value_name = "ID", value_parser = config::parse_identifier)]
    to: Option<MihfId>,
    /// What this one calls itself [default: mih-send with the process's number, at this host's name].
    #[arg(long, value_name = "ID", value_parser = config::parse_identifier)]
    id: Option<MihfId>,
    /// The address to ask from [default: the system's choice].
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// How long an answer may take.
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, default_value = "5 s")]
    timeout: TimeSpan,
    /// How long an acknowledgement is waited for before a message is sent again, twice at most.
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, default_value = "1 s")]
    retransmission: TimeSpan,
}

/// Which links, and which events.
#[derive(Args, Debug)]
pub(crate) struct MihEventArgs {
    /// Which of its links, by their MAC addresses [default: all].
    #[arg(long, value_name = "MAC", value_parser = parse_mac)]
    link: Vec<LinkAddr>,
    /// Which events.
    #[arg(long, value_name = "EVENT,...", value_delimiter = ',', value_parser = parse_event,
        default_value = "link-up,link-down,link-going-down,link-parameters-report")]
    events: Vec<EventName>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum MihSendCommand {
    /// MIH_Capability_Discover: its identifier, links, events and commands.
    Discover,
    /// MIH_Register, until its time is over.
    Register,
    /// MIH_DeRegister.
    Deregister,
    /// MIH_Event_Subscribe, after MIH_Register: to be told is for who is registered.
    Subscribe {
        #[command(flatten)]
        events: MihEventArgs,
        /// Print indications as they come, until interrupted; then unsubscribe.
        #[arg(long)]
        follow: bool,
    },
    /// MIH_Event_Unsubscribe.
    Unsubscribe(MihEventArgs),
    /// MIH_Link_Get_Parameters: how its links are.
    Parameters {
        /// Which of its links, by their MAC addresses [default: all].
        #[arg(long, value_name = "MAC", value_parser = parse_mac)]
        link: Vec<LinkAddr>,
    },
    /// MIH_Link_Actions: switch links off or on, where its configuration lets us.
    Act {
        /// What they shall do.
        #[arg(value_enum)]
        action: LinkActionArg,
        /// Which of its links, by their MAC addresses.
        #[arg(long, value_name = "MAC", value_parser = parse_mac, required = true)]
        link: Vec<LinkAddr>,
        /// How long from now, up to 65 s; who subscribed to it hears MIH_Link_Going_Down at once.
        #[arg(long, value_name = "TIME", value_parser = parse_delay, default_value = "0 s")]
        delay: u16,
    },
    /// MIH_Net_HO_Candidate_Query: to which of its links it could go.
    Candidates {
        /// Which of its links, by their MAC addresses [default: all].
        #[arg(long, value_name = "MAC", value_parser = parse_mac)]
        link: Vec<LinkAddr>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LinkActionArg {
    /// Break the connection.
    Disconnect,
    /// Switch off.
    PowerDown,
    /// Switch on, and connect.
    PowerUp,
    /// Go to sleep.
    LowPower,
}

fn parse_mac(text: &str) -> Result<LinkAddr, String> {
    let mac = config::parse_mac(text).map(LinkAddr::Mac);
    mac.ok_or_else(|| "a MAC address is needed, such as 02:00:00:00:00:01".to_owned())
}

fn parse_event(text: &str) -> Result<EventName, String> {
    let names = || EventName::ALL.map(EventName::name).join(", ");
    EventName::from_name(text).ok_or_else(|| format!("the events are {}", names()))
}

fn parse_delay(text: &str) -> Result<u16, String> {
    let time = TimeSpan::parse(text)?.get().as_millis();
    u16::try_from(time).map_err(|_| "65.535 s at most, since the message has no room for more".to_owned())
}

pub(crate) fn run_mih_command(output: &ConsoleOutput, command: MihCommand) -> Result<(), CommandFailure> {
    match command {
        MihCommand::Serve { config, listen } => mih::serve_mih(config, &listen).map_err(map_mih_error),
        MihCommand::Node { config } => mih::node::run_mobile_node(config).map_err(map_mih_error),
        MihCommand::Flow { node, from, care_of, interval, size, packets } => {
            if interval.get().is_zero() {
                return Err(CommandFailure::usage_error("--interval: a flow needs time between its packets"));
            }
            let networks = care_of.iter().map(|prefix| (prefix.network, prefix.bits)).collect();
            let config = usher_mobility::correspondent::CorrespondentConfig {
                station: node,
                size: size.into(),
                interval: interval.get(),
                packets,
                longest_binding: Duration::from_secs(24 * 3600),
                proof: None,
            };
            mih::node::send_flow(from, networks, config).map_err(map_mih_error)
        }
        MihCommand::Check { file } => {
            let file = file.unwrap_or_else(|| DEFAULT_PATH.into());
            report_check(output, &file, mih::check_config(&file))
        }
        MihCommand::Send(send) => send_request(output, send),
    }
}

fn map_mih_error(error: MihError) -> CommandFailure {
    match error {
        MihError::Serve(_) => CommandFailure::runtime_error(error),
        other => CommandFailure::usage_error(other),
    }
}

fn resolve_address(send: &MihSendArgs) -> Result<SocketAddr, CommandFailure> {
    let host = &send.host;
    let fits = |address: &SocketAddr| send.from.is_none_or(|from| from.is_ipv4() == address.is_ipv4());
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let all = host.to_socket_addrs().or_else(|_| (host.as_str(), PORT).to_socket_addrs());
    let mut all = all.map_err(|error| CommandFailure::runtime_error(format!("{host}: {error}")))?;
    all.find(fits).ok_or_else(|| {
        CommandFailure::usage_error(format!(
            "{host} has no address of the family that is asked from (--from)"
        ))
    })
}

fn build_request(asked: MihSendCommand) -> (ClientRequest, Vec<LinkAddr>, bool) {
    let all =
        |events: &[EventName]| events.iter().fold(EventList::NONE, |all, e| all.with(e.to_event_list()));
    match asked {
        MihSendCommand::Discover => (ClientRequest::Capabilities, Vec::new(), false),
        MihSendCommand::Register => (ClientRequest::Register, Vec::new(), false),
        MihSendCommand::Deregister => (ClientRequest::Deregister, Vec::new(), false),
        MihSendCommand::Subscribe { events, follow } => {
            (ClientRequest::Subscribe(all(&events.events)), events.link, follow)
        }
        MihSendCommand::Unsubscribe(events) => {
            (ClientRequest::Unsubscribe(all(&events.events)), events.link, false)
        }
        MihSendCommand::Parameters { link } => (ClientRequest::Parameters, link, false),
        MihSendCommand::Act { action, link, delay } => {
            let action = match action {
                LinkActionArg::Disconnect => LinkActionType::Disconnect,
                LinkActionArg::PowerDown => LinkActionType::PowerDown,
                LinkActionArg::PowerUp => LinkActionType::PowerUp,
                LinkActionArg::LowPower => LinkActionType::LowPower,
            };
            (ClientRequest::Act(action, delay), link, false)
        }
        MihSendCommand::Candidates { link } => (ClientRequest::Candidates, link, false),
    }
}

/// The timers of a client: discovery, which goes to whoever hears it and cannot be acknowledged, is sent again for want of its
/// answer.
fn mihf_config(id: MihfId, retransmission: Duration, timeout: Duration) -> usher_mih::MihfConfig {
    let mut config = usher_mih::MihfConfig::new(id);
    config.by_transport = true;
    config.timing = TransactionTiming {
        retransmission,
        retransmissions: 2,
        response: Some(timeout),
        unanswered: UnansweredPolicy::Abort,
    };
    let discovery = TransactionTiming {
        response: Some(retransmission),
        unanswered: UnansweredPolicy::Retransmit,
        ..config.timing
    };
    config
        .by_message
        .insert((ServiceId::Management, MessageId::CAPABILITY_DISCOVER_REQUEST.action), discovery);
    config
}

/// What is known of the conversation so far.
#[derive(Default)]
struct MihTranscript {
    peer: Option<MihfId>,
    answers: Vec<Value>,
    failure: Option<String>,
    broken: Option<CommandFailure>,
}

fn send_request(output: &ConsoleOutput, send: MihSendArgs) -> Result<(), CommandFailure> {
    let remote = resolve_address(&send)?;
    let transport = if send.tcp { TransportProtocol::Tcp } else { TransportProtocol::Udp };
    let own = match send.id {
        Some(id) => id,
        // Of its own for each client: who asks meanwhile is not to be taken for the one who follows.
        None => config::parse_identifier(&format!("mih-send-{}@{}", std::process::id(), mih::host_name()))
            .map_err(|_| {
                CommandFailure::usage_error(format!(
                    "the host's name {} is no identifier; give --id",
                    mih::host_name()
                ))
            })?,
    };
    let (question, links, follow) = build_request(send.question);
    let discovers = question == ClientRequest::Capabilities;
    let config = client::MihClientConfig {
        mih: mihf_config(own, send.retransmission.get(), send.timeout.get()),
        route: PeerRoute { transport, local: None, remote },
        to: send.to,
        question,
        links,
        follow,
    };
    let said = Rc::new(RefCell::new(MihTranscript::default()));
    let (heard, printed) = (said.clone(), *output);
    mih::run_client(config, send.from, move |event| {
        handle_event(&mut heard.borrow_mut(), &printed, event, discovers, follow)
    })
    .map_err(|error| CommandFailure::runtime_error(format!("{remote} cannot be asked: {error}")))?;
    let said = said.take();
    if let Some(broken) = said.broken {
        return Err(broken);
    }
    if output.json && !follow {
        let peer = said.peer.map(|peer| peer.to_string());
        output.print_json(&json!({
            "address": remote, "transport": transport.name(), "peer": peer, "answers": said.answers,
            "failure": said.failure,
        }))?;
    }
    match said.failure {
        Some(failure) => Err(CommandFailure::runtime_error(format!("{remote}: {failure}"))),
        None => Ok(()),
    }
}

fn handle_event(
    said: &mut MihTranscript,
    output: &ConsoleOutput,
    event: client::MihClientEvent,
    discovers: bool,
    follow: bool,
) {
    let print = |said: &mut MihTranscript, value: Value, text: &str| {
        let done = match (output.json, follow) {
            (true, true) => output.print_text(&format!("{value}\n")),
            (true, false) => {
                said.answers.push(value);
                Ok(())
            }
            (false, _) => output.print_text(text),
        };
        if let Err(failure) = done {
            said.broken.get_or_insert(failure);
        }
    };
    match event {
        client::MihClientEvent::Discovered { peer, answer } => {
            said.peer = Some(peer.clone());
            if discovers {
                print(said, show::message_json(&answer), &format!("{peer}\n{}", show::message_text(&answer)));
            }
            record_refusal(said, &answer);
        }
        client::MihClientEvent::Answered { answer } => {
            print(said, show::message_json(&answer), &show::message_text(&answer));
            record_refusal(said, &answer);
        }
        client::MihClientEvent::Indication { peer, message } => {
            let mut value = show::message_json(&message);
            value["peer"] = peer.to_string().into();
            let line = format!("{peer}: {}", show::message_line(&message));
            print(said, value, &line);
        }
        client::MihClientEvent::Failed { request, failure } => {
            let text = format!("{request}: {failure}: {}", explain_failure(failure));
            said.failure.get_or_insert(text);
        }
        client::MihClientEvent::NoLinks => {
            let text = "it has no such link; `usher mih send HOST discover` lists those that it has";
            said.failure.get_or_insert_with(|| text.to_owned());
        }
        client::MihClientEvent::Finished => {}
    }
}

/// Notes what an answer refuses.
fn record_refusal(said: &mut MihTranscript, answer: &usher_mih::MihfMessage) {
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

const fn explain_failure(failure: usher_mih::TransactionError) -> &'static str {
    use usher_mih::TransactionError;
    match failure {
        TransactionError::NoAcknowledgement => {
            "no MIH function is there, or the way to it or back loses what is sent"
        }
        TransactionError::NoResponse => {
            "no MIH function is there, its configuration does not hear this address, or it needs longer (--timeout)"
        }
        TransactionError::NoRoute => "it is not known any more",
        TransactionError::Transport => {
            "no connection: nobody listens there, or it closed the connection as not allowed"
        }
    }
}

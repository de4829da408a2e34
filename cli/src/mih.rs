//! `usher mih`: the MIH function of a host, and questions to another host's.

mod show;

use crate::output::{CommandFailure, ConsoleOutput};
use crate::service::report_config_check;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;
use usher_config::Prefix;
use usher_config::units::TimeSpan;
use usher_core::{Duration, TransportProtocol};
use usher_mih::{
    EventList, LinkActionResult, LinkActionType, LinkAddr, MessageId, MihfId, PORT, PeerRoute,
    ResponseTimeoutPolicy, ServiceId, Status, Tlv, TransactionTimerConfig, kind,
};
use usher_mih_daemon::{self as mih, MihError};
use usher_mih_service::client::{self, MihClientRequest};
use usher_mih_service::config::{self, DEFAULT_PATH, LinkEventName};

#[derive(Subcommand, Debug)]
pub(crate) enum MihCommand {
    /// Report this host's links to other functions, and carry out their permitted requests, until stopped.
    #[command(after_help = "Examples:
  usher mih serve
  usher mih serve --config ./mih.toml
  usher mih serve --listen 0.0.0.0:4551

Without a configuration, the function serves loopback, reports all interfaces, and has the host name as its
identifier. SIGHUP reloads the configuration; SIGTERM stops the function. It needs CAP_NET_ADMIN to switch
interfaces for others.")]
    Serve {
        /// The configuration file [default: /etc/usher/mih.toml].
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// An address and port to serve by UDP and TCP, in place of the configuration's; may be repeated.
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Vec<SocketAddr>,
    },
    /// Check a configuration file without serving, and report each fault with its line.
    #[command(after_help = "Examples:\n  usher mih check\n  usher mih check ./mih.toml")]
    Check {
        /// The configuration file [default: /etc/usher/mih.toml].
        file: Option<PathBuf>,
    },
    /// Run a mobile node that hands over from one interface to another, until stopped.
    #[command(after_help = "Examples:
  usher mih node
  usher mih node --config ./mn.toml

The table [handover] of the configuration names both interfaces, the points of service and the correspondent.
When the serving link fails, or a watched value predicts it, the node asks its point of service. It moves its
default route to the other interface and sends the correspondent a Binding Update. Needs CAP_NET_ADMIN.")]
    Node {
        /// The configuration file [default: /etc/usher/mih.toml].
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Send a flow to a mobile node, at the address of its latest Binding Update, until stopped.
    #[command(
        after_help = "Example:\n  usher mih flow 192.0.2.10:5000 --from 198.51.100.9 --interval '20 ms'"
    )]
    Flow {
        /// The node's home address and the port of the flow.
        node: SocketAddr,
        /// Our address, which the node's configuration has as `correspondent`.
        #[arg(long, value_name = "ADDRESS")]
        from: IpAddr,
        /// Networks of permitted care-of addresses [default: any address that passes the return routability check].
        #[arg(long, value_name = "PREFIX", value_parser = Prefix::parse)]
        care_of: Vec<Prefix>,
        /// The time between packets.
        #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, default_value = "20 ms")]
        interval: TimeSpan,
        /// Octets of a packet without the UDP header; at least 4, for its sequence number.
        #[arg(long, value_name = "N", default_value = "200")]
        size: u16,
        /// The number of packets [default: no limit].
        #[arg(long, value_name = "N")]
        packets: Option<u32>,
    },
    /// Send a request to another MIH function, and print the response.
    #[command(after_help = "Examples:
  usher mih send 192.0.2.7 discover
  usher mih send 192.0.2.7 subscribe --follow
  usher mih send 192.0.2.7 parameters --link 02:00:00:00:00:01 --json
  usher mih send 192.0.2.7 act power-down --link 02:00:00:00:00:01 --delay '2 s'
  usher mih send --tcp 192.0.2.7 candidates

The command first discovers the function's identifier and links.
Exit code 1: the function does not answer, or refuses the request.")]
    Send(MihSendArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MihSendArgs {
    /// The other function's host: HOST or HOST:PORT, [ADDRESS]:PORT for IPv6.
    host: String,
    /// The request.
    #[command(subcommand)]
    question: MihSendCommand,
    /// Use TCP instead of UDP with MIH acknowledgements.
    #[arg(long)]
    tcp: bool,
    /// The other function's identifier [default: as discovered].
    #[arg(long, value_name = "ID", value_parser = config::parse_identifier)]
    to: Option<MihfId>,
    /// Our identifier [default: mih-send-PID@HOST].
    #[arg(long, value_name = "ID", value_parser = config::parse_identifier)]
    id: Option<MihfId>,
    /// The local address for the request [default: chosen by the system].
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// The longest wait for the response.
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, default_value = "5 s")]
    timeout: TimeSpan,
    /// The wait for an acknowledgement before a retransmission. There are at most two.
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::parse, default_value = "1 s")]
    retransmission: TimeSpan,
}

/// Links and events.
#[derive(Args, Debug)]
pub(crate) struct MihEventArgs {
    /// Links of the other function, by MAC address [default: all].
    #[arg(long, value_name = "MAC", value_parser = parse_mac)]
    link: Vec<LinkAddr>,
    /// The events.
    #[arg(long, value_name = "EVENT,...", value_delimiter = ',', value_parser = parse_event,
        default_value = "link-up,link-down,link-going-down,link-parameters-report")]
    events: Vec<LinkEventName>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum MihSendCommand {
    /// MIH_Capability_Discover: its identifier, links, events and commands.
    Discover,
    /// MIH_Register, until the registration expires.
    Register,
    /// MIH_DeRegister.
    Deregister,
    /// MIH_Event_Subscribe, after the MIH_Register that it requires.
    Subscribe {
        #[command(flatten)]
        events: MihEventArgs,
        /// Print indications as they arrive, until interrupted, then unsubscribe.
        #[arg(long)]
        follow: bool,
    },
    /// MIH_Event_Unsubscribe.
    Unsubscribe(MihEventArgs),
    /// MIH_Link_Get_Parameters: the state of its links.
    Parameters {
        /// Links of the other function, by MAC address [default: all].
        #[arg(long, value_name = "MAC", value_parser = parse_mac)]
        link: Vec<LinkAddr>,
    },
    /// MIH_Link_Actions: switch links off or on, if its configuration permits.
    Act {
        /// The action.
        #[arg(value_enum)]
        action: LinkActionArg,
        /// Links of the other function, by MAC address.
        #[arg(long, value_name = "MAC", value_parser = parse_mac, required = true)]
        link: Vec<LinkAddr>,
        /// The time until the action, up to 65 s. Subscribers receive MIH_Link_Going_Down at once.
        #[arg(long, value_name = "TIME", value_parser = parse_delay, default_value = "0 s")]
        delay: u16,
    },
    /// MIH_Net_HO_Candidate_Query: the links that it could hand over to.
    Candidates {
        /// Links of the other function, by MAC address [default: all].
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
    /// Enter the low-power mode.
    LowPower,
}

fn parse_mac(text: &str) -> Result<LinkAddr, String> {
    let mac = config::parse_mac(text).map(LinkAddr::Mac);
    mac.ok_or_else(|| "expected a MAC address, such as 02:00:00:00:00:01".to_owned())
}

fn parse_event(text: &str) -> Result<LinkEventName, String> {
    let names = || LinkEventName::ALL.map(LinkEventName::name).join(", ");
    LinkEventName::from_name(text).ok_or_else(|| format!("unknown event; the events are {}", names()))
}

fn parse_delay(text: &str) -> Result<u16, String> {
    let time = TimeSpan::parse(text)?.get().as_millis();
    u16::try_from(time).map_err(|_| "at most 65.535 s, the longest delay of the message".to_owned())
}

pub(crate) fn run_mih_command(output: &ConsoleOutput, command: MihCommand) -> Result<(), CommandFailure> {
    match command {
        MihCommand::Serve { config, listen } => mih::serve_mih(config, &listen).map_err(map_mih_error),
        MihCommand::Node { config } => mih::node::run_mobile_node(config).map_err(map_mih_error),
        MihCommand::Flow { node, from, care_of, interval, size, packets } => {
            if interval.get().is_zero() {
                return Err(CommandFailure::usage_error("--interval must be above 0 s"));
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
            mih::node::send_correspondent_flow(from, networks, config).map_err(map_mih_error)
        }
        MihCommand::Check { file } => {
            let file = file.unwrap_or_else(|| DEFAULT_PATH.into());
            report_config_check(output, &file, mih::check_config(&file))
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

fn resolve_mih_destination(send: &MihSendArgs) -> Result<SocketAddr, CommandFailure> {
    let host = &send.host;
    let fits = |address: &SocketAddr| send.from.is_none_or(|from| from.is_ipv4() == address.is_ipv4());
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let all = host.to_socket_addrs().or_else(|_| (host.as_str(), PORT).to_socket_addrs());
    let mut all =
        all.map_err(|error| CommandFailure::runtime_error(format!("cannot resolve {host}: {error}")))?;
    all.find(fits).ok_or_else(|| {
        CommandFailure::usage_error(format!("{host} has no address of the same family as --from"))
    })
}

fn build_request(asked: MihSendCommand) -> (MihClientRequest, Vec<LinkAddr>, bool) {
    let all =
        |events: &[LinkEventName]| events.iter().fold(EventList::NONE, |all, e| all.with(e.to_event_list()));
    match asked {
        MihSendCommand::Discover => (MihClientRequest::Capabilities, Vec::new(), false),
        MihSendCommand::Register => (MihClientRequest::Register, Vec::new(), false),
        MihSendCommand::Deregister => (MihClientRequest::Deregister, Vec::new(), false),
        MihSendCommand::Subscribe { events, follow } => {
            (MihClientRequest::Subscribe(all(&events.events)), events.link, follow)
        }
        MihSendCommand::Unsubscribe(events) => {
            (MihClientRequest::Unsubscribe(all(&events.events)), events.link, false)
        }
        MihSendCommand::Parameters { link } => (MihClientRequest::Parameters, link, false),
        MihSendCommand::Act { action, link, delay } => {
            let action = match action {
                LinkActionArg::Disconnect => LinkActionType::Disconnect,
                LinkActionArg::PowerDown => LinkActionType::PowerDown,
                LinkActionArg::PowerUp => LinkActionType::PowerUp,
                LinkActionArg::LowPower => LinkActionType::LowPower,
            };
            (MihClientRequest::Act(action, delay), link, false)
        }
        MihSendCommand::Candidates { link } => (MihClientRequest::Candidates, link, false),
    }
}

/// The timers of a client. Discovery cannot be acknowledged, so it is retransmitted if no answer comes.
fn mihf_config(id: MihfId, retransmission: Duration, timeout: Duration) -> usher_mih::MihfConfig {
    let mut config = usher_mih::MihfConfig::new(id);
    config.by_transport = true;
    config.timing = TransactionTimerConfig {
        retransmission,
        retransmissions: 2,
        response: Some(timeout),
        unanswered: ResponseTimeoutPolicy::Abort,
    };
    let discovery = TransactionTimerConfig {
        response: Some(retransmission),
        unanswered: ResponseTimeoutPolicy::Retransmit,
        ..config.timing
    };
    config
        .by_message
        .insert((ServiceId::Management, MessageId::CAPABILITY_DISCOVER_REQUEST.action), discovery);
    config
}

/// The state of the conversation.
#[derive(Default)]
struct MihTranscript {
    peer: Option<MihfId>,
    answers: Vec<Value>,
    failure: Option<String>,
    broken: Option<CommandFailure>,
}

fn send_request(output: &ConsoleOutput, send: MihSendArgs) -> Result<(), CommandFailure> {
    let remote = resolve_mih_destination(&send)?;
    let transport = if send.tcp { TransportProtocol::Tcp } else { TransportProtocol::Udp };
    let own = match send.id {
        Some(id) => id,
        // Each client process has its own identifier, so that the server does not confuse it with a concurrent or later
        // one.
        None => config::parse_identifier(&format!("mih-send-{}@{}", std::process::id(), mih::host_name()))
            .map_err(|_| {
                CommandFailure::usage_error(format!(
                    "the host name {} is not an identifier; give --id",
                    mih::host_name()
                ))
            })?,
    };
    let (question, links, follow) = build_request(send.question);
    let discovers = question == MihClientRequest::Capabilities;
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
    .map_err(|error| CommandFailure::runtime_error(format!("cannot send to {remote}: {error}")))?;
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
            let text = format!("{request}: {failure}: {}", explain_mih_failure(failure));
            said.failure.get_or_insert(text);
        }
        client::MihClientEvent::NoLinks => {
            let text = "the function has no such link; `usher mih send HOST discover` lists its links";
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
            "its configuration does not permit this address; see [[allow]]".to_owned()
        }
        Some(Status::Rejected) => "it does not support the request, has no such link, or is full".to_owned(),
        Some(status) => format!("status {status}"),
        None => "the answer has no status".to_owned(),
    };
    let status = answer.status().map_or_else(String::new, |status| format!(" ({status})"));
    said.failure.get_or_insert(format!("{name} is refused{status}: {advice}"));
}

const fn explain_mih_failure(failure: usher_mih::TransactionError) -> &'static str {
    use usher_mih::TransactionError;
    match failure {
        TransactionError::NoAcknowledgement => "no MIH function answers there, or the path loses messages",
        TransactionError::NoResponse => {
            "no MIH function answers there, its configuration ignores this address, or it needs longer \
             (--timeout)"
        }
        TransactionError::NoRoute => "the function is no longer known",
        TransactionError::Transport => {
            "no connection: no function listens there, or it does not permit the connection"
        }
    }
}

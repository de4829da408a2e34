//! Handover on this host's links: the mobile node, the point of service, and the correspondent whose flow is
//! redirected. The controllers are those of `usher-mobility`, as in a study.

use super::{MihError, bind_sockets, load_config, own_identifier, poll_watched_values, system_rng};
use crate::links::{self, NetlinkChange};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration as StdDuration, Instant as StdInstant};
use usher_core::{Duration, JobRequest, ListenerId, Machine, NoJob, SocketId};
use usher_live::{DriverSockets, SocketOptions, SystemClock, bind_udp};
use usher_mih::{MihfId, PORT};
use usher_mih_service::config::{HandoverTable, LoadedMihConfig};
use usher_mip::CareOfVerificationConfig;
use usher_mobility::station::{
    BINDING_SOCKET, FLOW_SERVING, FLOW_TARGET, MIH_LISTENER, MIH_SERVING, MIH_TARGET,
};
use usher_mobility::{
    CorrespondentNode, LinkCommand, LinkEvent, MobileStation, PointOfService, StationInterface,
    correspondent, pos, station,
};
use usher_service::line_budget::LogRateLimiter;
use usher_service::{
    CommandSource, HostedMachine, MachineWorkerPool, SendCommand, ServeError, bind_listener, log,
    serve_machine, system_error,
};

/// The time limit for an interface to come up.
const ENTRY: StdDuration = StdDuration::from_secs(3);
const STEP: StdDuration = StdDuration::from_millis(5);

/// Binds sockets to these addresses. No other program can share their ports.
fn bind_exclusive_sockets(
    wanted: &[(SocketId, SocketAddr)],
) -> Result<Vec<(SocketId, std::net::UdpSocket)>, ServeError> {
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let one = |(id, address): &(SocketId, SocketAddr)| {
        let (address, what) = (*address, "a mobile node");
        let socket = bind_udp(address, &options);
        Ok((*id, socket.map_err(|error| ServeError::Listen { address, what, error })?))
    };
    wanted.iter().map(one).collect()
}

fn unreachable_job<C>(job: JobRequest<NoJob>) -> C {
    match job.job {}
}

/// The last report of each of the two interfaces.
#[derive(Default)]
struct ReportedLinkStates {
    serving: bool,
    target: bool,
}

/// Runs a mobile node until a signal ends it.
///
/// # Errors
/// The node could not start.
pub fn run_mobile_node(path: Option<PathBuf>) -> Result<(), MihError> {
    let loaded = load_config(path.as_deref())?;
    let _log = log::start_logging(loaded.file.log);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let id = own_identifier(&loaded)?;
    let Some(table) = loaded.file.handover.clone() else { return Err(MihError::NoHandover) };
    let all = links::list_links().map_err(system_error("cannot list this host's links"))?;
    let address =
        |name: &str| all.iter().find(|(_, link)| link.name == name).and_then(|(_, link)| link.address);
    let config = loaded
        .station_config(id.clone(), &address)
        .ok_or_else(|| MihError::NoInterface(format!("{} or {}", table.serving, table.target)))?;
    let (home, care_of) = (table.serving_address, table.target_address);
    let udp = bind_exclusive_sockets(&[
        (MIH_SERVING, SocketAddr::new(home, PORT)),
        (MIH_TARGET, SocketAddr::new(care_of, PORT)),
        (FLOW_SERVING, SocketAddr::new(home, table.flow_port)),
        (FLOW_TARGET, SocketAddr::new(care_of, table.flow_port)),
        (BINDING_SOCKET, SocketAddr::new(care_of, usher_mip::PORT)),
    ])?;
    let listeners = [home, care_of].map(|ip| bind_listener("MIH", SocketAddr::new(ip, PORT), MIH_LISTENER));
    let listeners = listeners.into_iter().collect::<Result<Vec<_>, _>>()?;
    tracing::info!(%id, serving = table.serving, target = table.target, "mobile node");
    let known = Arc::new(Mutex::new(ReportedLinkStates::default()));
    let (orders, taken) = channel();
    Ok(serve_machine(HostedMachine {
        name: "usher-mih-node",
        machine: MobileStation::new(config, system_rng()),
        sockets: DriverSockets { udp, listeners, ..DriverSockets::default() },
        frames: None,
        clock: SystemClock::start(),
        helpers: MachineWorkerPool::new(1, unreachable_job),
        event_handler: Box::new(mobile_node_event_handler(orders)),
        stop_condition: Box::new(|_| false),
        counted: |station| station.mihf().counters().iter().chain(station.counters().iter()).collect(),
        work: None,
        reload: Box::new(|| {
            tracing::warn!("not reloaded: a mobile node reads its configuration only at its start");
            None
        }),
        sources: node_sources(&loaded, &table, &known, taken),
        farewell: Box::new(|| None),
        waits_for_stop: false,
    })?)
}

/// The command sources of a node: the kernel, the watched value, and the thread that carries out link commands.
fn node_sources(
    loaded: &LoadedMihConfig,
    table: &HandoverTable,
    known: &Arc<Mutex<ReportedLinkStates>>,
    taken: Receiver<(StationInterface, LinkCommand)>,
) -> Vec<CommandSource<station::StationCommand>> {
    let (serving, target) = (table.serving.clone(), table.target.clone());
    let seen = known.clone();
    let kernel = move |tell: SendCommand<station::StationCommand>| {
        let mut begun = false;
        let followed = links::watch_netlink_changes(|change| {
            let NetlinkChange::Link(report) = change else { return true };
            let mut known = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if report.name == target {
                known.target = report.up;
                return true;
            }
            if report.name != serving || std::mem::replace(&mut known.serving, report.up) == report.up {
                return true;
            }
            drop(known);
            if report.up && !std::mem::replace(&mut begun, true) && !tell(station::StationCommand::Start) {
                return false;
            }
            tracing::info!(interface = report.name, up = report.up, "serving link");
            let event = if report.up { LinkEvent::Up } else { LinkEvent::Down };
            tell(station::StationCommand::Link { interface: StationInterface::Serving, event })
        });
        if let Err(error) = followed {
            tracing::error!(%error, "cannot watch this host's links");
        }
    };
    let watched: Vec<_> = loaded.interfaces.iter().filter(|i| i.name == table.serving).cloned().collect();
    let values = move |tell: SendCommand<station::StationCommand>| {
        let mut low = false;
        let limits = watched.first().and_then(|interface| interface.watch.clone());
        poll_watched_values(&Mutex::new(watched), |_, value| {
            let Some(limits) = &limits else { return false };
            if value < limits.below && !std::mem::replace(&mut low, true) {
                tracing::info!(value, "serving link going down");
                let event = LinkEvent::GoingDown { time_to_loss: limits.time_to_loss };
                return tell(station::StationCommand::Link { interface: StationInterface::Serving, event });
            }
            low &= value < limits.below + limits.hysteresis;
            true
        });
    };
    let (table, known) = (table.clone(), known.clone());
    let links = move |tell: SendCommand<station::StationCommand>| {
        for (interface, command) in taken {
            let event = match (interface, command) {
                (StationInterface::Serving, _) => continue,
                (StationInterface::Target, LinkCommand::Scan) => {
                    LinkEvent::Scanned { found: bring_up_target_link(&table, &known) }
                }
                (StationInterface::Target, LinkCommand::Connect) => {
                    match move_traffic_to_target(&table, &known) {
                        true => LinkEvent::Up,
                        false => LinkEvent::Down,
                    }
                }
                (StationInterface::Target, LinkCommand::Disconnect) => continue,
            };
            if !tell(station::StationCommand::Link { interface, event }) {
                return;
            }
        }
    };
    vec![Box::new(kernel), Box::new(values), Box::new(links)]
}

/// Switches the target link on if it is off. True once it carries packets.
fn bring_up_target_link(table: &HandoverTable, known: &Mutex<ReportedLinkStates>) -> bool {
    let up = || known.lock().unwrap_or_else(PoisonError::into_inner).target;
    if !up()
        && let Err(error) = links::set_link_enabled(&table.target, true)
    {
        tracing::error!(%error, interface = table.target, "cannot switch on the target interface");
    }
    let until = StdInstant::now() + ENTRY;
    while !up() && StdInstant::now() < until {
        std::thread::sleep(STEP);
    }
    up()
}

/// Moves this host's traffic to the target link.
fn move_traffic_to_target(table: &HandoverTable, known: &Mutex<ReportedLinkStates>) -> bool {
    if !bring_up_target_link(table, known) {
        return false;
    }
    let moved = links::replace_default_route(&table.target, table.gateway);
    match &moved {
        Ok(()) => tracing::info!(interface = table.target, via = %table.gateway, "default route moved"),
        Err(error) => {
            tracing::error!(%error, via = %table.gateway, "cannot move the default route; this needs CAP_NET_ADMIN")
        }
    }
    moved.is_ok()
}

/// Returns the event handler of a node. It logs, forwards link commands, and measures the interruption of the flow.
fn mobile_node_event_handler(
    orders: Sender<(StationInterface, LinkCommand)>,
) -> impl FnMut(station::StationEvent) + Send {
    let mut last: Option<(u32, StdInstant)> = None;
    let mut by = None;
    let mut arrivals = LogRateLimiter::default();
    move |event| match event {
        station::StationEvent::Registered => tracing::info!("registered with the serving point of service"),
        station::StationEvent::LinkCommand { interface, command } => {
            // The result is ignored: the receiving thread lives as long as the program.
            let _ = orders.send((interface, command));
        }
        station::StationEvent::HandoverStarted => tracing::info!("handover began"),
        station::StationEvent::Step { step, duration: took } => {
            tracing::info!(%step, took_ms = to_milliseconds(took), "handover step");
        }
        station::StationEvent::HandoverDone {
            success,
            failure,
            started_at: began,
            left,
            completed_at: ended,
        } => tracing::info!(
            success,
            failure = failure.map_or("none", station::HandoverFailure::name),
            took_ms = to_milliseconds(ended.duration_since(began)),
            without_link_ms = left.map_or(0.0, |left| to_milliseconds(ended.duration_since(left))),
            "handover done"
        ),
        station::StationEvent::HandoverCancelled => {
            tracing::info!("handover cancelled: the serving link is back")
        }
        station::StationEvent::Received { sequence, interface } => {
            let now = StdInstant::now();
            let moved = by.replace(interface).is_none_or(|before| before != interface);
            if moved && arrivals.allows_line(now, "the flow") {
                let (lost, gap) = last.map_or((0, StdDuration::ZERO), |(before, at)| {
                    (sequence.saturating_sub(before).saturating_sub(1), now.saturating_duration_since(at))
                });
                let gap_ms = gap.as_secs_f64() * 1e3;
                tracing::info!(interface = ?interface, sequence, lost, gap_ms, "the flow arrives");
            }
            last = Some((sequence, now));
        }
        station::StationEvent::ClaimRefused { peer, address } => log_refused_peer(&peer, address),
    }
}

fn log_refused_peer(peer: &MihfId, from: SocketAddr) {
    tracing::warn!(%peer, %from, "message refused: its identifier belongs to another address");
}

fn to_milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Runs a network's point of service until a signal ends it.
pub(super) fn run_point_of_service(loaded: &LoadedMihConfig, id: MihfId) -> Result<(), MihError> {
    let Some(config) = loaded.pos_config(id.clone()) else { return Err(MihError::NoHandover) };
    let sockets = bind_sockets(&loaded.file, ListenerId::from_number)?;
    tracing::info!(%id, "point of service");
    let clock = SystemClock::start();
    let mut machine = PointOfService::new(config, system_rng());
    let mut registrations = LogRateLimiter::default();
    // The result is ignored: a machine accepts its first start command.
    let _ = machine.handle_command(clock.now(), pos::PosCommand::Start);
    Ok(serve_machine(HostedMachine {
        name: "usher-mih-pos",
        machine,
        sockets,
        frames: None,
        clock,
        helpers: MachineWorkerPool::new(1, unreachable_job),
        event_handler: Box::new(move |event| match event {
            pos::PosEvent::Registered { station } => {
                if registrations.allows_line(StdInstant::now(), "registrations") {
                    tracing::info!(%station, "registered");
                }
            }
            pos::PosEvent::HandoverStarted { station } => tracing::info!(%station, "handover began"),
            pos::PosEvent::Step { station, step, duration: took } => {
                tracing::info!(%station, %step, took_ms = to_milliseconds(took), "handover step");
            }
            pos::PosEvent::BrokenOff { station } => tracing::info!(%station, "handover aborted"),
            pos::PosEvent::Arrived { station } => tracing::info!(%station, "mobile node arrived"),
            pos::PosEvent::Departed { station } => tracing::info!(%station, "mobile node departed"),
            pos::PosEvent::ClaimRefused { peer, address } => log_refused_peer(&peer, address),
        }),
        stop_condition: Box::new(|_| false),
        counted: |point| point.mihf().counters().iter().chain(point.counters().iter()).collect(),
        work: None,
        reload: Box::new(|| {
            tracing::warn!("not reloaded: a point of service reads its configuration only at its start");
            None
        }),
        sources: Vec::new(),
        farewell: Box::new(|| None),
        waits_for_stop: false,
    })?)
}

/// Sends a flow to a mobile node until a signal ends it. The flow follows the node's Binding Updates.
///
/// It goes only to addresses that pass the return routability check, within these networks or anywhere.
///
/// # Errors
/// The correspondent could not start.
pub fn send_correspondent_flow(
    local: IpAddr,
    networks: Vec<(IpAddr, u8)>,
    mut config: correspondent::CorrespondentConfig,
) -> Result<(), MihError> {
    config.proof = Some(CareOfVerificationConfig { networks, rng: usher_service::setup::secure_rng()? });
    let _log = log::start_logging(usher_config::log::LogConfig::default());
    let udp = bind_exclusive_sockets(&[
        (correspondent::FLOW_SOCKET, SocketAddr::new(local, 0)),
        (correspondent::BINDING_SOCKET, SocketAddr::new(local, usher_mip::PORT)),
    ])?;
    let station = config.station;
    tracing::info!(%station, "flow to a mobile node");
    let clock = SystemClock::start();
    let mut machine = CorrespondentNode::new(config);
    let mut redirections = LogRateLimiter::default();
    let begun = machine.handle_command(clock.now(), correspondent::CorrespondentCommand::Start);
    begun.map_err(|error| ServeError::System {
        what: "cannot start the flow",
        error: std::io::Error::new(std::io::ErrorKind::InvalidInput, error.to_string()),
    })?;
    Ok(serve_machine(HostedMachine {
        name: "usher-mih-flow",
        machine,
        sockets: DriverSockets { udp, ..DriverSockets::default() },
        frames: None,
        clock,
        helpers: MachineWorkerPool::new(1, unreachable_job),
        event_handler: Box::new(move |event| {
            if let correspondent::CorrespondentEvent::Redirected { to } = event
                && redirections.allows_line(StdInstant::now(), "redirections")
            {
                tracing::info!(%to, "the flow is redirected");
            }
        }),
        stop_condition: Box::new(|_| false),
        counted: |correspondent| correspondent.counters().iter().collect(),
        work: None,
        reload: Box::new(|| None),
        sources: Vec::new(),
        farewell: Box::new(|| None),
        waits_for_stop: false,
    })?)
}

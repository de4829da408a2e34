//! A simulation taken apart before it is built, so that another network can run the same applications.

use super::{HostEgressLinks, SimulationBuilder, TransportConfig};
use crate::addr::{HostAddresses, HostId};
use crate::app::Application;
use crate::link::{LinkConfig, LinkId};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use usher_core::{Instant, Seed, WallTime};

/// The contents of a [`SimulationBuilder`] except radio, which a wired network cannot provide.
#[derive(Debug)]
pub struct SimulationSpec<A> {
    /// Source of all random streams: link k has those of `("link", 2k)` and `("link", 2k + 1)`.
    pub seed: Seed,
    /// The wall time at [`Instant::ZERO`].
    pub epoch: WallTime,
    /// The addresses of the hosts.
    pub addresses: HostAddresses,
    /// The hosts and their interfaces, by number.
    pub hosts: Vec<SimHostSpec>,
    /// The links, by number, including those of cells and basic service sets.
    pub links: Vec<SimLinkSpec>,
    /// The applications, by number.
    pub apps: Vec<SimAppSpec<A>>,
    /// Hosts that fail and recover.
    pub outages: Vec<HostOutageSpec>,
    /// Number of cells and basic service sets.
    pub radios: usize,
    /// Hosts whose associations have several paths.
    pub multihomed: Vec<HostId>,
}

/// A host, or an interface of one.
#[derive(Debug)]
pub struct SimHostSpec {
    /// The owner, if this is an interface.
    pub owner: Option<HostId>,
    /// Its links in the order of its ports; true where it is the link's first end.
    pub ports: Vec<(LinkId, bool)>,
    /// The application that receives its frames.
    pub frames_to: Option<u32>,
    /// True if it has a processor.
    pub processor: bool,
    /// The port towards each host, by number. Missing entries mean the first port.
    next_hops: Vec<Option<u32>>,
}

impl SimHostSpec {
    /// Returns the port towards a host; `None` if it is unreachable.
    pub fn next_hop(&self, to: HostId) -> Option<u32> {
        let only = (!self.ports.is_empty()).then_some(0);
        self.next_hops.get(to.0 as usize).copied().unwrap_or(only)
    }
}

/// A link.
#[derive(Debug)]
pub struct SimLinkSpec {
    /// The hosts at its ends.
    pub ends: [HostId; 2],
    /// Its properties.
    pub config: LinkConfig,
    /// The capture points at its ends.
    pub capture: [Option<u16>; 2],
}

/// An application and its sockets and listeners.
#[derive(Debug)]
pub struct SimAppSpec<A> {
    /// The application.
    pub app: A,
    /// Its host.
    pub host: HostId,
    /// The settings of its connections and associations.
    pub transports: Arc<TransportConfig>,
    /// Octets per second that it reads of each connection; `None` reads everything at once.
    pub read_rate: Option<NonZeroU64>,
    /// Maximum octets of one read; `None` for a segment.
    pub read_size: Option<NonZeroU32>,
    /// Its bound UDP sockets, by number.
    pub sockets: Vec<SimSocketSpec>,
    /// Addresses and ports at which it accepts TCP connections, ascending.
    pub listens: Vec<(HostId, u16)>,
    /// Addresses and ports at which it accepts SCTP associations, ascending.
    pub listens_sctp: Vec<(HostId, u16)>,
}

/// A bound UDP socket of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimSocketSpec {
    /// Its number.
    pub socket: u32,
    /// Its address.
    pub address: HostId,
    /// Its port.
    pub port: u16,
}

/// A period in which a host is out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostOutageSpec {
    /// The host.
    pub host: HostId,
    /// Start.
    pub from: Instant,
    /// End.
    pub until: Instant,
}

impl<A: Application> SimulationBuilder<A> {
    /// Takes the simulation apart instead of building it.
    #[must_use]
    pub fn into_parts(mut self) -> SimulationSpec<A> {
        self.compute_routes();
        let hosts = self.hosts.iter().enumerate().map(|(n, host)| {
            let port_of = |direction: u32| {
                let port = host.ports.as_slice().iter().position(|own| *own == direction)?;
                Some(port as u32)
            };
            SimHostSpec {
                owner: self.interfaces.get(&HostId(n as u32)).copied(),
                ports: host.ports.as_slice().iter().map(|d| (LinkId(d / 2), d % 2 == 0)).collect(),
                frames_to: host.frames_to(),
                processor: host.cpu().is_some(),
                next_hops: match &host.ports {
                    HostEgressLinks::Many(many) => many.next_hops.iter().map(|d| port_of(*d)).collect(),
                    HostEgressLinks::None | HostEgressLinks::Single(_) => Vec::new(),
                },
            }
        });
        let hosts = hosts.collect();
        let multihomed = {
            let mut all: Vec<HostId> = self.multihomed.keys().copied().collect();
            all.sort_unstable();
            all
        };
        let listens = |all: &usher_core::collections::HashMap<(HostId, u16), u32>, app: usize| {
            let mut own: Vec<(HostId, u16)> =
                all.iter().filter(|(_, of)| **of == app as u32).map(|(at, _)| *at).collect();
            own.sort_unstable();
            own
        };
        let apps = self.apps.into_iter().enumerate().map(|(n, slot)| SimAppSpec {
            read_rate: slot.read_rate(),
            read_size: slot.read_size(),
            sockets: (0..)
                .zip(slot.sockets())
                .filter(|(_, bound)| bound.port != 0)
                .map(|(socket, bound)| SimSocketSpec { socket, address: bound.address, port: bound.port })
                .collect(),
            listens: listens(&self.listeners, n),
            listens_sctp: listens(&self.sctp_listeners, n),
            app: slot.app,
            host: slot.host,
            transports: slot.transports,
        });
        let apps = apps.collect();
        let links = self.directions.chunks_exact(2).map(|pair| {
            let [up, down] = [&pair[0], &pair[1]];
            let config = LinkConfig {
                up: up.channel.config().clone(),
                down: down.channel.config().clone(),
                mtu: up.mtu,
                framing: up.framing,
            };
            SimLinkSpec { ends: [up.from, up.to], config, capture: [up.tap_out(), down.tap_out()] }
        });
        let links = links.collect();
        SimulationSpec {
            seed: self.seed,
            epoch: self.epoch,
            addresses: self.addresses,
            hosts,
            links,
            apps,
            outages: self
                .outages
                .iter()
                .map(|o| HostOutageSpec { host: o.host, from: o.from, until: o.until })
                .collect(),
            radios: self.cells.len(),
            multihomed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::{AppContext, AppDelivery};
    use crate::{IpVersion, LinkFraming};
    use usher_core::impair::ChannelConfig;

    struct IdleApplication;

    impl Application for IdleApplication {
        type Report = ();
        fn handle_delivery(&mut self, _: &mut AppContext<'_, ()>, _: AppDelivery) {}
    }

    #[test]
    fn parts_are_what_was_told() {
        let mut builder = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
        let [a, router, b] = [(); 3].map(|()| builder.add_host(None).unwrap());
        let further = builder.add_interface(b).unwrap();
        let slow = LinkConfig {
            up: ChannelConfig { rate: Some(1000), ..Default::default() },
            mtu: 900,
            framing: LinkFraming::Ethernet,
            ..Default::default()
        };
        builder.add_link(a, router, &slow);
        let fast = builder.add_link(router, b, &LinkConfig::default());
        builder.capture_link(fast, false, 7);
        builder.add_link(router, further, &LinkConfig::default());
        let client = builder.add_application(a, IdleApplication, None);
        let server = builder.add_application(b, IdleApplication, None);
        builder.bind_udp_at(server, 1, further, 53).unwrap();
        builder.listen_tcp(server, 80).unwrap();
        builder.listen_sctp(server, 81).unwrap();
        builder.take_frames(client);
        builder.add_outage(b, Instant::from_nanos(3), Instant::from_nanos(5));

        let parts = builder.into_parts();
        assert_eq!(parts.hosts.iter().map(|h| h.owner).collect::<Vec<_>>(), [None, None, None, Some(b)]);
        assert_eq!(
            parts.hosts[router.0 as usize].ports,
            [(LinkId(0), false), (LinkId(1), true), (LinkId(2), true)]
        );
        let hops = |from: HostId| [a, router, b, further].map(|to| parts.hosts[from.0 as usize].next_hop(to));
        assert_eq!(hops(router), [Some(0), None, Some(1), Some(2)]);
        assert_eq!(hops(a)[1..], [Some(0), Some(0), Some(0)]);
        assert_eq!(parts.hosts[a.0 as usize].frames_to, Some(client));
        let link = &parts.links[0];
        assert_eq!((link.ends, &link.config), ([a, router], &slow));
        assert_eq!((link.capture, parts.links[1].capture), ([None, None], [None, Some(7)]));
        let served = &parts.apps[server as usize];
        assert_eq!(served.sockets, [SimSocketSpec { socket: 1, address: further, port: 53 }]);
        assert_eq!((&served.listens[..], &served.listens_sctp[..]), (&[(b, 80)][..], &[(b, 81)][..]));
        assert_eq!((parts.outages[0].host, parts.radios), (b, 0));
    }
}

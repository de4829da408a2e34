//! Shards of a gateway: each is a gateway with its own IKE_SAs. The host owns the state that they share.

use crate::api::{GatewayCommand, GatewayConfig};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_access::ServerRecords;
use usher_ike::machine::ShardIndex;

impl GatewayConfig {
    /// Returns the configuration of one shard. It has its part of the limits and shares the address pools. Only the
    /// first shard initiates connections.
    #[must_use]
    pub fn config_for_shard(&self, shard: ShardIndex) -> Self {
        let mut config = self.clone();
        if shard.shard_count <= 1 {
            return config;
        }
        let part = |n: usize| n.div_ceil(usize::from(shard.shard_count));
        let endpoint = &mut config.endpoint;
        endpoint.shard = shard;
        for limit in [
            &mut endpoint.half_open,
            &mut endpoint.cookies_from,
            &mut endpoint.cookies_from_network,
            &mut endpoint.half_open_per_host,
            &mut endpoint.sas,
            &mut endpoint.lingering,
            &mut endpoint.fragments,
        ] {
            *limit = part(*limit);
        }
        endpoint.failed_proofs_per_minute =
            endpoint.failed_proofs_per_minute.div_ceil(shard.shard_count.into());
        let subscribers = &mut config.subscribers;
        if let Some(failures) = &mut subscribers.users.failures {
            failures.count = failures.count.div_ceil(shard.shard_count.into());
        }
        subscribers.shares_pools = true;
        subscribers.server_records = match shard.number {
            0 => ServerRecords::On,
            _ => ServerRecords::Never,
        };
        if shard.number > 0 {
            for peer in &mut config.peers {
                let peer = Arc::make_mut(peer);
                (peer.start, peer.on_demand) = (false, false);
            }
        }
        config
    }
}

impl GatewayCommand {
    /// Returns the shards that get this command, and the command for each.
    #[must_use]
    pub fn split_for_shards(self, of: u8) -> Vec<(u8, Self)> {
        let shard = |number| ShardIndex { number, shard_count: of };
        let all = |command: &dyn Fn(u8) -> Self| (0..of).map(|number| (number, command(number))).collect();
        let owner = |spi: u32| {
            (0..of).find(|number| shard(*number).owns_spi_octet(spi.to_be_bytes()[0])).unwrap_or(0)
        };
        match self {
            _ if of <= 1 => alloc::vec![(0, self)],
            Self::Done(_) | Self::EapStepDone(_) | Self::Connect { .. } | Self::Acquire { .. } => {
                alloc::vec![(0, self)]
            }
            Self::Leased { sa, .. } | Self::EapStepDropped { sa, .. } => {
                alloc::vec![(sa.shard_number(), self)]
            }
            Self::Removed { inbound, .. } | Self::Expired { inbound, .. } => {
                alloc::vec![(owner(inbound), self)]
            }
            Self::UsageReport(pairs) => {
                let mut parts: Vec<(u8, Vec<_>)> = (0..of).map(|number| (number, Vec::new())).collect();
                for pair in pairs {
                    parts[usize::from(owner(pair.0))].1.push(pair);
                }
                parts.retain(|(_, pairs)| !pairs.is_empty());
                parts.into_iter().map(|(number, pairs)| (number, Self::UsageReport(pairs))).collect()
            }
            Self::Configure(config) => {
                all(&|number| Self::Configure(Box::new(config.config_for_shard(shard(number)))))
            }
            Self::Status { token } => all(&|_| Self::Status { token }),
            Self::Rekey { token, selection: which, children } => {
                all(&|_| Self::Rekey { token, selection: which.clone(), children })
            }
            Self::Down { token, selection: which } => {
                all(&|_| Self::Down { token, selection: which.clone() })
            }
            Self::Replaced { sa, connection, local, remote, forgotten } => all(&|_| Self::Replaced {
                sa,
                connection: connection.clone(),
                local: local.clone(),
                remote: remote.clone(),
                forgotten,
            }),
            Self::Addresses(own) => all(&|_| Self::Addresses(own.clone())),
            Self::VoidTickets => all(&|_| Self::VoidTickets),
            Self::Revoked(names) => all(&|_| Self::Revoked(names.clone())),
            Self::Leave => all(&|_| Self::Leave),
        }
    }
}

//! Access rights by address.

use alloc::vec::Vec;
use core::net::IpAddr;
use usher_config::Prefix;

usher_core::named! {
    "an access right";
    /// A right of other functions. Discovery and registration need none: every allowed address has them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AccessRight {
        /// Subscribe to the events of links.
        Events = "events",
        /// Ask for the parameters of links.
        Parameters = "parameters",
        /// Act on links: switch interfaces off and on, if they allow it.
        Actions = "actions",
        /// Ask for the possible target links of a handover.
        Handover = "handover",
    }
}

/// A set of access rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccessRights(u8);

impl AccessRights {
    /// True if the set has this right.
    #[must_use]
    pub const fn contains(self, right: AccessRight) -> bool {
        self.0 & 1 << right as u8 != 0
    }
}

impl FromIterator<AccessRight> for AccessRights {
    fn from_iter<T: IntoIterator<Item = AccessRight>>(rights: T) -> Self {
        Self(rights.into_iter().fold(0, |set, right| set | 1 << right as u8))
    }
}

/// Access rights by network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessList(pub Vec<(Prefix, AccessRights)>);

impl AccessList {
    /// Returns the rights of an address: those of the longest prefix that contains it. `None`: no prefix contains it,
    /// and its messages are dropped.
    #[must_use]
    pub fn rights_of(&self, address: IpAddr) -> Option<AccessRights> {
        let holds = self.0.iter().filter(|(prefix, _)| prefix.contains(address));
        holds.max_by_key(|(prefix, _)| prefix.bits).map(|(_, rights)| *rights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let prefix = |text| Prefix::parse(text).unwrap();
        let all = AccessRight::ALL.into_iter().collect();
        let access = AccessList(alloc::vec![
            (prefix("10.0.0.0/8"), AccessRights::default()),
            (prefix("10.1.0.0/16"), [AccessRight::Events].into_iter().collect()),
            (prefix("10.1.2.3"), all),
        ]);
        let of = |address: &str| access.rights_of(address.parse().unwrap());
        assert_eq!(of("192.0.2.1"), None);
        assert_eq!(of("10.2.0.1"), Some(AccessRights::default()));
        let some = of("10.1.0.1").unwrap();
        assert!(
            some.contains(AccessRight::Events)
                && !some.contains(AccessRight::Actions)
                && !some.contains(AccessRight::Handover)
        );
        assert!(AccessRight::ALL.iter().all(|right| of("10.1.2.3").unwrap().contains(*right)));
    }
}

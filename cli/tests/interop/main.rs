//! Interoperability with other implementations: radclient, eapol_test, FreeRADIUS, radsecproxy, freeDiameter,
//! hostapd, wpa_supplicant, oidentd, charon, Net::Ident, PostgreSQL, ngIRCd, Squid, exim and vsftpd. tshark checks
//! the packets.
//!
//! A missing program is a failure. `scripts/setup test` installs them. Some tests create networks, which needs root.

mod accounting;
mod certificates;
#[path = "../../../protocols/ike/tests/interop/place.rs"]
mod charon;
mod freediameter;
mod freeradius;
mod handover;
mod hostapd;
mod ident;
mod ike;
mod methods;
mod mih;
mod namespace;
mod place;
mod pppoe;
mod radius;
mod radsecproxy;
mod reasons;
mod sessions;
mod subscribers;
mod swanctl;
mod tshark;
mod tunnel;
mod vendors;

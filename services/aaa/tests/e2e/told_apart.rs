//! Whether a peer can tell names that users have from names that nobody has.

use crate::build::{aaa_config, radius_nas, secret, user_name, world};
use crate::tunnels::{self, peap, ttls};
use crate::world::{nas_address, server_address};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{
    AaaServer, CacheConfig, Command, Config, Found, Job, Method, Password, User, UserSource, Users,
    radius_socket,
};
use usher_core::bench::Tap;
use usher_core::{
    Duration, Input, Instant, Machine, Path, Rng, SecureRng, Seed, SocketId, Transmit, WallTime,
};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_crypto::password::argon2_hash;
use usher_crypto::tls::{Version, fixtures};
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_eap::method::{PeerOffer, gtc, md5, mschapv2};
use usher_eap::peer::{self, Peer};
use usher_nas::station::Credentials;
use usher_radius::attribute::{kind, vendor};
use usher_radius::client::{self, Client, Response, ServerConfig, Target};
use usher_radius::{Attributes, Code};

/// Tries of each server, half of them under names that users have.
const TRIES: usize = 10_000;
const DELAY: Duration = Duration::from_secs(1);
const WRONG: &[u8] = b"not it";

/// What a peer can notice of one try: when each answer came, its code, its attributes' kinds and lengths, and what of
/// them is no challenge; and how many hashes were made for it.
type Seen = Vec<(u64, Code, Vec<(u8, usize)>, Vec<u8>, usize)>;

/// One server whose host takes its time, and an access server.
struct Bench {
    now: Instant,
    client: Tap<Client>,
    server: Tap<AaaServer>,
    users: BTreeMap<Vec<u8>, Arc<User>>,
    chance: Rng,
    token: u64,
    hashes: usize,
}

impl Bench {
    fn new(user: &User, methods: &[Method]) -> Self {
        let seed = Seed::new(3);
        let mut config = aaa_config(Arc::new(Users::new(&mut seed.secure("users", 0))));
        config.users = UserSource::Host(CacheConfig { entries: 0, ..CacheConfig::default() });
        config.methods = methods.to_vec();
        config.reject_delay = DELAY;
        let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), secret());
        let user = Arc::new(user.clone());
        Self {
            now: Instant::ZERO,
            client: Tap::new(Client::new(client::Config::single(to), seed.secure("client", 0)).unwrap()),
            server: Tap::new(AaaServer::new(config, seed.secure("aaa", 0)).unwrap()),
            users: (0..100).map(|n| (name(n, true), user.clone())).collect(),
            chance: seed.stream("tries", 0),
            token: 0,
            hashes: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.chance.next_u64() % below
    }

    fn settle(&mut self) {
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { .. }) = self.client.poll_transmit(&mut buf) {
            let path = Path { socket: radius_socket(0), local: far, remote: near };
            self.server.handle(self.now, Input::Datagram { path, data: &buf });
        }
        while let Some(Transmit::Datagram { .. }) = self.server.poll_transmit(&mut buf) {
            let path = Path { socket: SocketId::own(0), local: near, remote: far };
            self.client.handle(self.now, Input::Datagram { path, data: &buf });
        }
    }

    /// Sends a request and waits for its answer. The host takes 1 to 4 ms for a look-up, 20 to 25 for a hash.
    fn ask(&mut self, seen: &mut Seen, attributes: Attributes) -> Response {
        self.token += 1;
        let (sent, hashes) = (self.now, self.hashes);
        let (token, code) = (self.token, Code::ACCESS_REQUEST);
        let request = client::Command::Request { token, target: Target::Server(0), code, attributes };
        self.client.command(self.now, request).unwrap();
        loop {
            self.settle();
            if let Some(event) = self.client.poll_event() {
                let client::Event::Response(reply) = event else { panic!("{event:?}") };
                let waited = self.now.since(sent).as_nanos() / 1_000_000;
                let attributes = reply.attributes.iter().map(|a| (a.kind, a.value.len())).collect();
                seen.push((waited, reply.code, attributes, told(&reply), self.hashes - hashes));
                return reply;
            }
            match self.server.poll_job() {
                Some(usher_core::Job { token, what: Job::Lookup { name, .. }, .. }) => {
                    let took = 1 + self.draw(4);
                    self.now += Duration::from_millis(took);
                    let user = self.users.get(&name).map_or(Found::Nobody, |user| Found::User(user.clone()));
                    self.server.command(self.now, Command::Found { token, user }).unwrap();
                }
                Some(usher_core::Job { token, what: Job::Verify { .. }, .. }) => {
                    self.hashes += 1;
                    let took = 20 + self.draw(6);
                    self.now += Duration::from_millis(took);
                    self.server.command(self.now, Command::Verified { token, right: false }).unwrap();
                }
                Some(_) => {}
                None => {
                    self.now = self.now.max(self.server.poll_timeout().expect("an answer is due"));
                    self.server.handle(self.now, Input::Timeout);
                }
            }
        }
    }

    /// One login under a name, by a method that chance chooses.
    fn attempt(&mut self, name: &[u8]) -> Seen {
        let mut seen = Vec::new();
        self.now += Duration::from_millis(self.chance.next_u64() % 3000);
        let mut request = Attributes::new();
        request.push_bytes(kind::USER_NAME, name).unwrap();
        match self.draw(9) {
            0 => {
                request.push_user_password(WRONG).unwrap();
                self.ask(&mut seen, request);
            }
            1 => {
                request.push_bytes(kind::CHAP_PASSWORD, &[5; 17]).unwrap();
                request.push_bytes(kind::CHAP_CHALLENGE, &[6; 16]).unwrap();
                self.ask(&mut seen, request);
            }
            which @ (2 | 3) => {
                ms_chap(&mut request, name, which == 3);
                self.ask(&mut seen, request);
            }
            // A device, or what gives itself out for one.
            4 => {
                request.push_bytes(kind::CALLING_STATION_ID, name).unwrap().push_u32(kind::SERVICE_TYPE, 10);
                self.ask(&mut seen, request);
            }
            which => self.converse(&mut seen, request, name, which),
        }
        seen
    }

    /// EAP, of a peer that has some methods and Naks the others.
    fn converse(&mut self, seen: &mut Seen, mut request: Attributes, name: &[u8], which: u64) {
        let mschapv2: fn(&[u8]) -> Box<dyn PeerOffer> = |n| Box::new(mschapv2::Account::new(n, WRONG));
        let md5: fn(&[u8]) -> Box<dyn PeerOffer> = |_| Box::new(md5::Password::new(WRONG));
        let gtc: fn(&[u8]) -> Box<dyn PeerOffer> = |_| Box::new(gtc::Token::new(WRONG));
        let methods: Vec<Box<dyn PeerOffer>> = match which {
            5 => vec![mschapv2(name)],
            6 => vec![md5(name)],
            7 => vec![gtc(name), md5(name)],
            _ => vec![],
        };
        let config = peer::Config {
            identity: name.to_vec(),
            methods: methods.into(),
            timeout: Duration::from_secs(600),
            wall: WallTime::from_unix_secs(0),
        };
        let mut peer = Peer::new(config, SecureRng::from_seed([1; 32]), self.now);
        let mut packet = vec![2, 1, 0, 5 + name.len() as u8, 1];
        packet.extend_from_slice(name);
        for _ in 0..10 {
            request.push_eap(&packet);
            let reply = self.ask(seen, std::mem::take(&mut request));
            let mut eap = Vec::new();
            assert!(reply.attributes.eap(&mut eap));
            if reply.code != Code::ACCESS_CHALLENGE {
                return;
            }
            assert!(peer.handle(self.now, &eap) && peer.poll_transmit(&mut packet));
            request.push_bytes(kind::USER_NAME, name).unwrap();
            request.push_bytes(kind::STATE, reply.attributes.get(kind::STATE).unwrap()).unwrap();
        }
        panic!("no end: {seen:?}");
    }
}

/// What an answer says that no chance is in: the EAP packet's code, type and operation, the error of MS-CHAP.
fn told(reply: &Response) -> Vec<u8> {
    let mut eap = Vec::new();
    reply.attributes.eap(&mut eap);
    let mut told: Vec<u8> = [0, 4, 5].iter().filter_map(|i| eap.get(*i).copied()).collect();
    if let Some(error) = reply.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP_ERROR) {
        told.extend(error.split(|c| *c == b'C').next().unwrap_or_default());
    }
    told
}

fn ms_chap(a: &mut Attributes, name: &[u8], v2: bool) {
    let (challenge, peer) = ([1; 16], [2; 16]);
    let mut value = vec![7, u8::from(!v2)];
    value.extend_from_slice(&if v2 { [&peer[..], &[0; 8]].concat() } else { vec![0; 24] });
    value.extend_from_slice(&mschap::nt_response(&challenge, &peer, name, &nt_hash(WRONG)));
    let (challenge, number) = match v2 {
        true => (&challenge[..], vendor::MS_CHAP2_RESPONSE),
        false => (&challenge[..8], vendor::MS_CHAP_RESPONSE),
    };
    a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_CHALLENGE, challenge).unwrap();
    a.push_vendor(vendor::MICROSOFT, number, &value).unwrap();
}

fn name(n: usize, known: bool) -> Vec<u8> {
    format!("{}{n:03}@example.org", if known { "ann" } else { "eve" }).into_bytes()
}

/// Tries a name that a user has and one that nobody has in turn, each pair with the same chance: the same method, and a host
/// that takes the same times. Both must see the same, answer by answer.
fn tell_apart(what: &str, user: &User, methods: &[Method]) {
    let mut bench = Bench::new(user, methods);
    // Somebody has logged in before, as on any server that is worth attacking.
    bench.attempt(&name(0, true));
    for n in 0..TRIES / 2 {
        let chance = bench.chance.clone();
        let known = bench.attempt(&name(n % 100, true));
        bench.chance = chance;
        let unknown = bench.attempt(&name(n % 100, false));
        assert_eq!(known, unknown, "{what}, try {n}");
    }
}

const WITHOUT_TUNNELS: [Method; 7] = [
    Method::EapMsChapV2,
    Method::EapMd5,
    Method::EapGtc,
    Method::Pap,
    Method::Chap,
    Method::MsChap,
    Method::MsChapV2,
];

fn with(password: Password) -> User {
    User { password: Some(password), ..User::default() }
}

#[test]
fn ten_thousand_tries_do_not_tell_users_from_others() {
    let clear = || with(Password::clear(b"right"));
    let hashed = with(Password::Argon2(argon2_hash(b"right", &[1; 16]).into()));
    tell_apart("in clear", &clear(), &WITHOUT_TUNNELS);
    tell_apart("NT hash", &with(Password::NtHash(nt_hash(b"right").into())), &WITHOUT_TUNNELS);
    tell_apart("argon2", &hashed, &WITHOUT_TUNNELS);
    tell_apart("locked", &User { rejected: true, ..clear() }, &WITHOUT_TUNNELS);
    tell_apart("few methods", &clear(), &[Method::EapMd5, Method::Pap]);
    // Nothing that the server offers can admit them.
    tell_apart("nothing in common", &hashed, &[Method::EapMsChapV2, Method::Chap]);
    tell_apart("restricted", &User { methods: [Method::EapMd5].into(), ..clear() }, &WITHOUT_TUNNELS);
}

/// How long each packet is, of a login that failed, with who sent it and when.
fn packets(config: &Config, outside: &[u8], credentials: Credentials) -> Vec<(bool, usize, Instant)> {
    use std::cell::RefCell;
    use std::rc::Rc;
    let mut w = world(1, radius_nas(1), std::slice::from_ref(config));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let kept = seen.clone();
    w.passes(move |packet| {
        kept.borrow_mut().push((matches!(packet.from, crate::world::Who::Server(_)), packet.octets));
        true
    });
    w.ask_in(0, outside, credentials);
    w.run_until(20);
    assert_eq!(w.outcomes(), [usher_nas::station::Event::Failure]);
    let ended = w.station_events[0].1;
    seen.take().into_iter().map(|(from_server, octets)| (from_server, octets, ended)).collect()
}

#[test]
fn tunnels_and_certificates_tell_nothing_either() {
    let version = Version::Tls13;
    let mut config: Config = tunnels::config(crate::tls::server(version));
    config.methods.insert(0, Method::EapTls);
    let tls = ServerTls::Real(crate::tls::server(version));
    config.tls = Some(Arc::new(ServerMethodTls { tls, fragment: 1024 }));
    config.reject_delay = DELAY;
    let mut users = Users::new(&mut Seed::new(1).secure("users", 0));
    let known = user_name(0);
    users.insert(&known, User::with_password(crate::build::PASSWORD));
    config.users = UserSource::Memory(Arc::new(users));
    let unknown = user_name(7);
    let foreign = |_: &[u8]| {
        let tls = PeerTls::Real(crate::tls::client(version, fixtures::foreign_client()), 0);
        Credentials::method(PeerMethodTls { tls, fragment: 1024 })
    };
    type Way<'a> = (&'a str, &'a dyn Fn(&[u8]) -> Credentials);
    let ways: [Way<'_>; 3] = [
        ("PEAP", &|name| peap(version, name, WRONG)),
        ("TTLS", &|name| ttls(version, name, WRONG)),
        ("EAP-TLS", &foreign),
    ];
    for (what, credentials) in ways {
        let by = |name: &[u8]| packets(&config, name, credentials(name));
        assert_eq!(by(&known), by(&unknown), "{what}");
        let inside = |name: &[u8]| packets(&config, tunnels::ANONYMOUS, credentials(name));
        assert_eq!(inside(&known), inside(&unknown), "{what}, anonymous outside");
    }
}

#[test]
fn a_reject_goes_out_by_when_its_request_came() {
    let hash = argon2_hash(b"right", &[1; 16]);
    let mut bench = Bench::new(&with(Password::Argon2(hash.into())), &[Method::Pap]);
    let mut request = Attributes::new();
    request.push_bytes(kind::USER_NAME, &name(0, true)).unwrap().push_user_password(WRONG).unwrap();
    let mut seen = Vec::new();
    bench.ask(&mut seen, request);
    assert_eq!((seen[0].0, seen[0].4), (1000, 1), "look-up and hash are within the delay");
}

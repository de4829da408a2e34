//! The command line of `usher load`.

use super::value::{DurationArg, FractionArg, MacAddressArg, MethodShareArg, named_value_parser};
use clap::{Args, Subcommand, ValueEnum};
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use usher_crypto::TlsVersion;
use usher_load::LoadExpectation;

#[derive(Subcommand, Debug)]
pub(crate) enum LoadCommand {
    /// Load a RADIUS server with password logins and accounting.
    #[command(after_help = "Examples:
  usher load radius 127.0.0.1 --secret testing123 --user bob --password hello
  usher load radius 127.0.0.1 --secret-file secret --user 'user{}@example.org' --password 'pw{}' --users 10000 --rate 5000
  usher load radius 127.0.0.1 --secret testing123 --users-file users.csv --method mschapv2 --ramp --out out/knee
  usher load radius 127.0.0.1:1813 --secret testing123 --user bob --method accounting --interims 2 --concurrency 200
  usher load radius 127.0.0.1 --secret testing123 --user bob --password hello --nas 64 --no-offload --expect 'p99 < 100 ms' \
        --expect 'failed < 0.1 %'

A reply counts once its Response Authenticator and Message-Authenticator are verified, and with MS-CHAPv2
the server's proof and keys. Retransmissions follow RFC 5080.
The environment may hold the secret as USHER_SECRET and the password as USHER_PASSWORD.")]
    Radius(RadiusLoadArgs),
    /// Load a RADIUS server with EAP logins.
    #[command(after_help = "Examples:
  usher load eap 127.0.0.1 --secret testing123 --user bob --password hello --method md5
  usher load eap 127.0.0.1 --secret testing123 --user bob --method tls --ca ca.pem --certificate bob.pem --key bob.key
  usher load eap 127.0.0.1 --secret testing123 --user bob --password hello --method peap-mschapv2 --ca ca.pem
  usher load eap 127.0.0.1 --secret-file s --users-file users.csv --method ttls-pap --ca ca.pem --anonymous anonymous@example.org
  usher load eap 127.0.0.1 --secret-file s --user 'user{}' --users 500 --method tls --ca ca.pem --certificate 'certs/{name}.pem' \
        --key 'certs/{name}.key'
  usher load eap 127.0.0.1 --secret-file s --users-file users.csv --ca ca.pem --mix pap=70,eap-tls=20,peap-mschapv2=10

A login counts if the method succeeds on both sides and the MS-MPPE keys match the keys that it derived.
--certificate holds the chain to send: the leaf first, then its authorities. Users have separate
certificates if --certificate and --key contain {} or {name}, or if --users-file has the columns CERTIFICATE,KEY.
--mix takes the names of --method, with or without eap- in front. Its pap, chap and mschapv2 are passwords
without EAP.")]
    Eap(EapLoadArgs),
    /// Load a Diameter server with password logins, EAP logins and accounting.
    #[command(after_help = "Examples:
  usher load diameter 127.0.0.1 --peer aaa.example.org --user bob --password hello
  usher load diameter 127.0.0.1 --peer aaa.example.org --user bob --password hello --method eap-md5 --connections 4 --concurrency 32
  usher load diameter 127.0.0.1:5658 --tls --ca ca.pem --certificate load.pem --key load.key --peer aaa.example.org --user bob --password hello

Each connection has its own identity, as RFC 6733 requires: --identity, then --identity with -2, -3 ... after
its first label. The server must know or accept them.")]
    Diameter(DiameterLoadArgs),
    /// Load an IKEv2 gateway with IKE_SAs, by a shared key, certificates or any EAP method.
    #[command(after_help = "Examples:
  usher load ike 192.0.2.1 --secret-file psk --gateway-id gw.example.org
  usher load ike 192.0.2.1 --secret-file psk --gateway-id gw.example.org --proposal aes128-sha256-modp2048 --rate 200 --duration 30s
  usher load ike 127.0.0.1:4500 --secret-file psk --gateway-id gw.example.org --concurrency 64 --expect 'p99 < 50 ms'
  usher load ike 192.0.2.1 --secret-file psk --gateway-id gw.example.org --keep --count 10000
  usher load ike 192.0.2.1 --gateway-id gw.example.org --gateway-ca ca.pem --method eap-mschapv2 --users-file users.csv
  usher load ike 192.0.2.1 --gateway-id gw.example.org --gateway-ca ca.pem --method eap-tls --user 'user{}' --users 100 \
      --ca ca.pem --certificate '{name}.crt' --key '{name}.key' --ramp

A login is IKE_SA_INIT and IKE_AUTH without a CHILD_SA (RFC 6023), which the gateway must allow. The IKE_SA is
then deleted, unless --keep is given. All logins come from one address: the gateway may limit its half-open
IKE_SAs or require cookies.
With psk, --id names the initiators. Otherwise they are users, and the user name is the identity of IKE and EAP.
With --wrong-share, some logins have a wrong key or password, or another user's certificate. The gateway must
refuse them.")]
    Ike(IkeLoadArgs),
    /// Load an MIH function with requests or indications (IEEE 802.21 over RFC 5677).
    #[command(after_help = "Examples:
  usher load mih 127.0.0.1
  usher load mih 127.0.0.1 --request parameters --functions 64 --concurrency 64 --expect 'p99 < 20 ms'
  usher load mih 127.0.0.1 --tcp --request register --rate 2000 --duration 5s
  usher load mih 127.0.0.1 --request indication --ramp --out out/mih-knee

The command first discovers the function. A transaction counts if its response reports success, an indication
if it is acknowledged. Without acknowledgements (--tcp, --no-ack), an indication counts once it is sent.
Over UDP, dropped messages are retransmitted. After the last retransmission they count as timeouts.
The options for users and methods do not apply to this command.")]
    Mih(MihLoadArgs),
    /// Load a PPPoE access concentrator with sessions of subscribers behind one interface.
    #[command(after_help = "Examples:
  usher load pppoe eth1 --user 'user{}' --password 'pw{}' --users 1000
  usher load pppoe eth1 --user ann --password secret --sessions 10000 --keep --rounds 3 --expect 'cps-min > 500/s'
  usher load pppoe eth1 --users-file users.csv --sessions 10000 --keep --power-cut --rounds 2 --concurrency 10000
  usher load pppoe eth1 --user ann --password secret --sessions 500 --rate 100 --hold 3s --duration 60s
  usher load pppoe eth1 --user ann --password secret --sessions 100 --keep --stay 10s --echo 10 --expect 'echo-lost < 0.1 %'

A login is discovery, LCP, authentication and IPCP. Its session then ends: at once, after --hold, or with --keep
at the end. Each session has its own station with its own Ethernet address.
The command needs CAP_NET_RAW. The interface carries no other traffic meanwhile.
With --keep, the results have the set-up rate of each round in calls per second (CPS), and its least, mean and
most. With --echo, sessions carry echoes (ping), and the concentrator or --echo-to answers them.")]
    Pppoe(PppoeLoadArgs),
}

#[derive(Args, Debug)]
pub(crate) struct PppoeLoadArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// The authentication method of the subscribers.
    #[arg(long, value_enum, default_value_t = PppoeMethod::Chap, conflicts_with = "mix")]
    pub(crate) method: PppoeMethod,
    /// The number of stations, which is the most sessions at a time.
    #[arg(long, value_name = "N", default_value = "1000", help_heading = "PPPoE")]
    pub(crate) sessions: NonZeroUsize,
    /// The Ethernet address of the first station. Each further station has the next address.
    #[arg(long, value_name = "ADDRESS", default_value = "02:00:5e:00:00:00", help_heading = "PPPoE")]
    pub(crate) station: MacAddressArg,
    /// The service to request [default: any].
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "PPPoE")]
    pub(crate) service: String,
    /// The concentrator's name [default: any].
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "PPPoE")]
    pub(crate) concentrator: String,
    /// The wait for a discovery reply before a retransmission. Each further wait is twice as long.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "PPPoE")]
    pub(crate) discovery: DurationArg,
    /// The most transmissions of PADI for a session.
    #[arg(long, value_name = "N", default_value = "5", help_heading = "PPPoE")]
    pub(crate) attempts: NonZeroU32,
    /// The longest time from PADS until packets may pass.
    #[arg(long, value_name = "TIME", default_value = "30s", help_heading = "PPPoE")]
    pub(crate) setup: DurationArg,
    /// The interval of each station's LCP Echo-Requests to the concentrator; 0 for none.
    #[arg(long, value_name = "TIME", default_value = "20s", help_heading = "PPPoE")]
    pub(crate) keepalive: DurationArg,
    /// The time from a session's set-up to its end.
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = "PPPoE", conflicts_with = "keep")]
    pub(crate) hold: DurationArg,
    /// Keep sessions until all are set up. Without --count or --duration, each station sets up one session.
    #[arg(long, help_heading = "PPPoE")]
    pub(crate) keep: bool,
    /// The time for which all sessions stay set up.
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = "PPPoE", requires = "keep")]
    pub(crate) stay: DurationArg,
    /// The number of rounds in which all stations set up their sessions.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "PPPoE", requires = "keep")]
    pub(crate) rounds: NonZeroU32,
    /// Drop all sessions silently between rounds, as in a power cut. The concentrator still has them when the
    /// stations return.
    #[arg(long, help_heading = "PPPoE", requires = "keep")]
    pub(crate) power_cut: bool,
    /// Echoes per second in each session.
    #[arg(long, value_name = "R", help_heading = "PPPoE")]
    pub(crate) echo: Option<f64>,
    /// Octets of each echo's IP packet.
    #[arg(long, value_name = "N", default_value = "84", help_heading = "PPPoE", requires = "echo",
          value_parser = clap::value_parser!(u16).range(44..=1492))]
    pub(crate) echo_size: u16,
    /// The address that answers echoes [default: the concentrator's].
    #[arg(long, value_name = "ADDRESS", help_heading = "PPPoE", requires = "echo")]
    pub(crate) echo_to: Option<Ipv4Addr>,
}

/// The authentication methods of PPPoE subscribers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PppoeMethod {
    /// PAP.
    Pap,
    /// CHAP with MD5.
    Chap,
    /// MS-CHAPv2.
    #[value(name = "mschapv2")]
    MsChapV2,
    /// EAP-MD5.
    EapMd5,
    /// EAP-MSCHAPv2.
    #[value(name = "eap-mschapv2")]
    EapMsChapV2,
}

#[derive(Args, Debug)]
pub(crate) struct IkeLoadArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// The initiators' authentication: psk, certificate, eap-md5, eap-gtc, eap-mschapv2, eap-tls, peap-mschapv2,
    /// peap-gtc, ttls-pap and the other methods of `usher load eap`.
    #[arg(long, value_name = "METHOD", default_value = "psk", conflicts_with = "mix")]
    pub(crate) method: String,
    /// A file that holds the shared key of the initiators and the gateway.
    #[arg(long, value_name = "FILE", help_heading = "IKE", required_unless_present = "gateway_ca")]
    pub(crate) secret_file: Option<PathBuf>,
    /// PEM file: the authorities of the gateway's certificate. Without it, the gateway authenticates by the shared
    /// key.
    #[arg(long, value_name = "FILE", help_heading = "IKE")]
    pub(crate) gateway_ca: Option<PathBuf>,
    /// The gateway's identity.
    #[arg(long, value_name = "ID", help_heading = "IKE")]
    pub(crate) gateway_id: String,
    /// The identity of initiators with the shared key. Each initiator adds its number after the first label.
    #[arg(long, value_name = "ID", default_value = "load@example.org", help_heading = "IKE")]
    pub(crate) id: String,
    /// The number of initiators with the shared key. They log in one after another.
    #[arg(long, value_name = "N", default_value = "1000", help_heading = "IKE")]
    pub(crate) initiators: NonZeroUsize,
    /// A proposal for the IKE_SA; may be repeated, the preferred one first.
    #[arg(long, value_name = "WORDS", default_value = "aes128-sha256-x25519", help_heading = "IKE")]
    pub(crate) proposal: Vec<String>,
    /// Keep the established IKE_SAs instead of deleting them.
    #[arg(long, help_heading = "IKE")]
    pub(crate) keep: bool,
    /// The wait for a response before a retransmission. Each further wait is 1.8 times as long.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "IKE")]
    pub(crate) retransmission: DurationArg,
    /// The most retransmissions of a request.
    #[arg(long, value_name = "N", default_value = "3", help_heading = "IKE")]
    pub(crate) retransmissions: u32,
}

#[derive(Args, Debug)]
pub(crate) struct MihLoadArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// The request or indication to send.
    #[arg(long, value_enum, default_value_t = MihRequestKind::Discover, help_heading = "MIH")]
    pub(crate) request: MihRequestKind,
    /// Use TCP with a connection for each function, instead of UDP.
    #[arg(long, help_heading = "MIH")]
    pub(crate) tcp: bool,
    /// Request no MIH acknowledgements and retransmit no message, as always over TCP.
    #[arg(long, help_heading = "MIH")]
    pub(crate) no_ack: bool,
    /// The number of client functions, each with its own identifier and its own socket or connection.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "MIH")]
    pub(crate) functions: NonZeroUsize,
    /// The identifier of the first function. The others add their number after its first label.
    #[arg(long, value_name = "ID", default_value = "load@example.org", help_heading = "MIH")]
    pub(crate) id: String,
    /// The wait for an acknowledgement before a retransmission.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "MIH")]
    pub(crate) retransmission: DurationArg,
    /// The most retransmissions of a message.
    #[arg(long, value_name = "N", default_value = "2", help_heading = "MIH")]
    pub(crate) retransmissions: u8,
    /// The longest wait for a response.
    #[arg(long, value_name = "TIME", default_value = "5s", help_heading = "MIH")]
    pub(crate) timeout: DurationArg,
}

/// The requests and indications of MIH functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum MihRequestKind {
    /// MIH_Capability_Discover.
    Discover,
    /// MIH_Register.
    Register,
    /// MIH_Link_Get_Parameters of all links.
    Parameters,
    /// MIH_Link_Up indications.
    Indication,
}

impl LoadCommand {
    /// Returns the options that all commands have.
    pub(crate) const fn load_args(&self) -> &LoadArgs {
        match self {
            Self::Radius(r) => &r.load,
            Self::Eap(e) => &e.load,
            Self::Diameter(d) => &d.load,
            Self::Ike(i) => &i.load,
            Self::Mih(m) => &m.load,
            Self::Pppoe(p) => &p.load,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct RadiusLoadArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) nas: NasArgs,
    /// The method of the logins.
    #[arg(long, value_enum, default_value_t = RadiusMethod::Pap, conflicts_with = "mix")]
    pub(crate) method: RadiusMethod,
    #[command(flatten)]
    pub(crate) accounting: AccountingArgs,
}

#[derive(Args, Debug)]
pub(crate) struct EapLoadArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) nas: NasArgs,
    /// The method of the logins.
    #[arg(long, value_enum, conflicts_with = "mix", required_unless_present = "mix")]
    pub(crate) method: Option<EapMethodName>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) accounting: AccountingArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DiameterLoadArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// The method of the logins.
    #[arg(long, value_enum, default_value_t = DiameterMethod::Pap, conflicts_with = "mix")]
    pub(crate) method: DiameterMethod,
    /// The server's Origin-Host.
    #[arg(long, value_name = "HOST")]
    pub(crate) peer: String,
    /// The Origin-Host of the first connection.
    #[arg(long, value_name = "HOST", default_value = "load.example.org")]
    pub(crate) identity: String,
    /// Our Origin-Realm [default: the part of --identity after the first dot].
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// The Destination-Realm of all requests [default: the part of --peer after the first dot].
    #[arg(long, value_name = "REALM")]
    pub(crate) destination: Option<String>,
    /// The number of connections.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) connections: NonZeroUsize,
    /// Use TLS, with --ca, --certificate and --key.
    #[arg(long = "tls", conflicts_with = "transport")]
    pub(crate) over_tls: bool,
    /// The transport of the messages. sctp needs a kernel with SCTP.
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value_t = DiameterTransportArg::Tcp)]
    pub(crate) transport: DiameterTransportArg,
    /// The longest wait for an answer.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) timeout: DurationArg,
    /// Outbound streams to request for an association. The server may allow fewer.
    #[arg(long, value_name = "N", default_value = "16", help_heading = "SCTP", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) streams: u16,
    /// The messages that wait for a lost message.
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = SctpOrder::Session, help_heading = "SCTP")]
    pub(crate) order: SctpOrder,
    /// Let small messages wait for acknowledgements of earlier ones, without SCTP_NODELAY.
    #[arg(long, help_heading = "SCTP")]
    pub(crate) nagle: bool,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) accounting: AccountingArgs,
}

/// The options that all commands have.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// The server: HOST, HOST:PORT, or [ADDRESS]:PORT for IPv6. For PPPoE, the interface towards the concentrator.
    pub(crate) server: String,
    /// The user's name; {} stands for a number, from 0.
    #[arg(long, value_name = "NAME", help_heading = "Users", conflicts_with = "users_file")]
    pub(crate) user: Option<String>,
    /// The password; {} stands for the user's number.
    #[arg(long, help_heading = "Users", conflicts_with = "users_file")]
    pub(crate) password: Option<String>,
    /// The number of users in --user.
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        help_heading = "Users",
        conflicts_with = "users_file"
    )]
    pub(crate) users: NonZeroUsize,
    /// A file with a user in each line: NAME,PASSWORD or NAME,PASSWORD,CERTIFICATE,KEY. Paths are relative to the
    /// file.
    #[arg(long, value_name = "FILE", help_heading = "Users")]
    pub(crate) users_file: Option<PathBuf>,
    /// The share of logins that the server must reject, such as 0.1 or 10%. They have a wrong password or, with a
    /// certificate for each user, another user's certificate.
    #[arg(long, value_name = "SHARE", default_value = "0", help_heading = "Users")]
    pub(crate) wrong_share: FractionArg,
    /// Several methods with their shares, such as pap=70,chap=30.
    #[arg(long, value_name = "METHOD=SHARE,...", value_delimiter = ',', help_heading = "Users")]
    pub(crate) mix: Vec<MethodShareArg>,

    /// Open loop: start R logins per second, at whatever speed the server replies.
    #[arg(long, value_name = "R", help_heading = "Pace", conflicts_with_all = ["concurrency", "ramp"])]
    pub(crate) rate: Option<f64>,
    /// Use equal gaps between logins instead of exponential ones.
    #[arg(long, help_heading = "Pace")]
    pub(crate) regular: bool,
    /// Open loop: each thread starts N logins at once, with exponential gaps between these bursts.
    #[arg(long, value_name = "N", help_heading = "Pace", conflicts_with_all = ["regular", "concurrency"])]
    pub(crate) burst: Option<NonZeroU32>,
    /// Closed loop: keep N logins in progress [default: 16].
    #[arg(long, value_name = "N", help_heading = "Pace", conflicts_with = "ramp")]
    pub(crate) concurrency: Option<NonZeroUsize>,
    /// The measured time [default: 10s, or until --count].
    #[arg(long, value_name = "TIME", help_heading = "Pace", conflicts_with = "ramp")]
    pub(crate) duration: Option<DurationArg>,
    /// The number of measured logins.
    #[arg(long, value_name = "N", help_heading = "Pace", conflicts_with = "ramp")]
    pub(crate) count: Option<u64>,
    /// The time at the start without measurement [default: 1s; with --count none].
    #[arg(long, value_name = "TIME", help_heading = "Pace")]
    pub(crate) warmup: Option<DurationArg>,
    /// Open loop: the most logins in progress. Further logins wait, and their wait counts as latency.
    #[arg(long, value_name = "N", default_value = "16384", help_heading = "Pace")]
    pub(crate) outstanding: NonZeroUsize,

    /// Find the knee: double the rate until the server no longer keeps up, then search for the limit.
    #[arg(long, help_heading = "Ramp")]
    pub(crate) ramp: bool,
    /// The first rate, in logins per second.
    #[arg(long, value_name = "R", default_value = "100", help_heading = "Ramp")]
    pub(crate) ramp_start: f64,
    /// The highest rate to try.
    #[arg(long, value_name = "R", default_value = "10000000", help_heading = "Ramp")]
    pub(crate) ramp_most: f64,
    /// The server keeps up if this share of logins ends as expected ...
    #[arg(long, value_name = "SHARE", default_value = "99.9%", help_heading = "Ramp")]
    pub(crate) ramp_success: FractionArg,
    /// ... and 99 % of those end within this time.
    #[arg(long, value_name = "TIME", default_value = "100ms", help_heading = "Ramp")]
    pub(crate) ramp_p99: DurationArg,
    /// The precision of the knee.
    #[arg(long, value_name = "SHARE", default_value = "5%", help_heading = "Ramp")]
    pub(crate) ramp_precision: FractionArg,
    /// The most steps to repeat near the knee until it is stable.
    #[arg(long, value_name = "N", default_value = "16", help_heading = "Ramp")]
    pub(crate) ramp_repeats: u32,
    /// The time of a step before its measurement. After a failed step, the load pauses for as long.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "Ramp")]
    pub(crate) ramp_settle: DurationArg,
    /// The measured time of a step.
    #[arg(long, value_name = "TIME", default_value = "3s", help_heading = "Ramp")]
    pub(crate) ramp_hold: DurationArg,

    /// An expectation of the results, such as 'p99 < 100 ms' or 'failed < 0.1 %'; may be repeated. Exit code 3 if the
    /// results do not meet it.
    #[arg(long, value_name = "METRIC < VALUE", help_heading = "Expectations")]
    pub(crate) expect: Vec<LoadExpectation>,

    /// Measure the server's cost of a login by each method, and write it as a profile for `usher plan` and studies.
    /// Needs --server-pid and --server-config.
    #[arg(long, value_name = "FILE", help_heading = "Calibration",
          conflicts_with_all = ["ramp", "rate", "burst", "concurrency", "duration", "count", "warmup", "wrong_share", "expect", "out"])]
    pub(crate) calibrate: Option<PathBuf>,
    /// The configuration file of the running server.
    #[arg(long, value_name = "FILE", help_heading = "Calibration", requires = "calibrate")]
    pub(crate) server_config: Option<PathBuf>,
    /// The least time to measure each load. A load of bursts lasts for ten bursts or more.
    #[arg(long, value_name = "TIME", default_value = "4s", help_heading = "Calibration")]
    pub(crate) calibrate_hold: DurationArg,
    /// Do not divide the CPU time among libraries.
    #[arg(long, help_heading = "Calibration", requires = "calibrate")]
    pub(crate) no_libraries: bool,

    /// Load an address of another machine, with the permission of the server's owner.
    #[arg(long, help_heading = "Run")]
    pub(crate) yes: bool,
    /// The number of threads that generate the load.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Run")]
    pub(crate) threads: NonZeroUsize,
    /// The processors for these threads, from 0.
    #[arg(long, value_name = "N,...", value_delimiter = ',', help_heading = "Run")]
    pub(crate) cores: Vec<usize>,
    /// The server's process id. The results then have its CPU time for each login.
    #[arg(long, value_name = "PID", help_heading = "Run")]
    pub(crate) server_pid: Option<NonZeroU32>,
    /// Skip the test login by each method before the load.
    #[arg(long, help_heading = "Run")]
    pub(crate) no_check: bool,
    /// Let the generator sleep between logins of an open loop, which may then start a millisecond late.
    #[arg(long, help_heading = "Run")]
    pub(crate) relaxed: bool,
    /// The longest wait for unfinished logins at the end.
    #[arg(long, value_name = "TIME", default_value = "35s", help_heading = "Run")]
    pub(crate) patience: DurationArg,
    /// The folder for results.csv, results.parquet, results.json, manifest.json and report.html.
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub(crate) out: Option<PathBuf>,
}

/// The RADIUS client.
#[derive(Args, Debug)]
pub(crate) struct NasArgs {
    /// The secret shared with the server.
    #[arg(long, conflicts_with = "secret_file", help_heading = "RADIUS")]
    pub(crate) secret: Option<String>,
    /// A file with the secret in its first line.
    #[arg(long, value_name = "FILE", help_heading = "RADIUS")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Act as N access servers, each with a numbered NAS-Identifier, a socket, and at most 256 requests in progress.
    #[arg(long, value_name = "N", help_heading = "RADIUS")]
    pub(crate) nas: Option<NonZeroUsize>,
    /// The first access server's address, such as 127.0.1.1. The others have the next addresses [default: one address
    /// for all].
    #[arg(long, value_name = "ADDRESS", help_heading = "RADIUS", requires = "nas")]
    pub(crate) nas_address: Option<IpAddr>,
    /// Send each datagram by itself, as access servers do, without UDP segmentation offload.
    #[arg(long, help_heading = "RADIUS")]
    pub(crate) no_offload: bool,
    /// The NAS-Identifier of all requests.
    #[arg(long, value_name = "NAME", default_value = "usher-load", help_heading = "RADIUS")]
    pub(crate) nas_identifier: String,
    /// IRT: the wait before the first retransmission.
    #[arg(long, value_name = "TIME", default_value = "2s", help_heading = "RADIUS")]
    pub(crate) irt: DurationArg,
    /// MRT: the longest wait before a retransmission; 0 for no limit.
    #[arg(long, value_name = "TIME", default_value = "16s", help_heading = "RADIUS")]
    pub(crate) mrt: DurationArg,
    /// MRC: the most transmissions of a request; 0 for no limit.
    #[arg(long, value_name = "N", default_value = "5", help_heading = "RADIUS")]
    pub(crate) mrc: u32,
    /// MRD: the longest time from the first transmission to the timeout; 0 for no limit.
    #[arg(long, value_name = "TIME", default_value = "30s", help_heading = "RADIUS")]
    pub(crate) mrd: DurationArg,
    /// Accept replies without a Message-Authenticator, as old servers send them.
    #[arg(long, help_heading = "RADIUS")]
    pub(crate) no_message_authenticator: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AccountingArgs {
    /// Run an accounting session after each login: start, interim records and stop.
    #[arg(long, help_heading = "Accounting")]
    pub(crate) accounting: bool,
    /// The accounting server [default: port 1813 of the server; with --method accounting, SERVER itself].
    #[arg(long, value_name = "HOST:PORT", help_heading = "Accounting")]
    pub(crate) accounting_server: Option<String>,
    /// Interim records in each session.
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Accounting")]
    pub(crate) interims: u32,
    /// The time between the records of a session.
    #[arg(long, value_name = "TIME", default_value = "0", help_heading = "Accounting")]
    pub(crate) interim_every: DurationArg,
}

#[derive(Args, Debug)]
pub(crate) struct TlsArgs {
    /// PEM file: the authorities of the server's certificate.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(crate) ca: Option<PathBuf>,
    /// PEM file: the client's certificate and its chain, the leaf first. For a certificate for each user, {} stands
    /// for the user's number and {name} for the name.
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "key")]
    pub(crate) certificate: Option<String>,
    /// PEM file: the private key of --certificate, not encrypted. {} and {name} stand for the same.
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "certificate")]
    pub(crate) key: Option<String>,
    /// The name that the server's certificate must have.
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub(crate) server_name: Option<String>,
    /// The lowest version of TLS.
    #[arg(long, value_name = "VERSION", value_parser = named_value_parser::<TlsVersion>(), default_value_t = TlsVersion::Tls12, help_heading = "TLS")]
    pub(crate) tls_min: TlsVersion,
    /// The highest version of TLS.
    #[arg(long, value_name = "VERSION", value_parser = named_value_parser::<TlsVersion>(), default_value_t = TlsVersion::Tls13, help_heading = "TLS")]
    pub(crate) tls_max: TlsVersion,
    /// The longest EAP packet to send.
    #[arg(long, value_name = "OCTETS", default_value = "1398", help_heading = "TLS",
          value_parser = clap::value_parser!(u16).range(64..=4000))]
    pub(crate) fragment: u16,
    /// Resume each user's earlier TLS session.
    #[arg(long, help_heading = "TLS")]
    pub(crate) resume: bool,
    /// The outer identity of PEAP and TTLS.
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub(crate) anonymous: Option<String>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RadiusMethod {
    Pap,
    Chap,
    #[value(name = "mschapv2")]
    MsChapV2,
    /// No login: accounting sessions alone.
    Accounting,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EapMethodName {
    Md5,
    Gtc,
    #[value(name = "mschapv2")]
    MsChapV2,
    Tls,
    #[value(name = "peap-mschapv2")]
    PeapMsChapV2,
    PeapGtc,
    TtlsPap,
    TtlsChap,
    #[value(name = "ttls-mschap")]
    TtlsMsChap,
    #[value(name = "ttls-mschapv2")]
    TtlsMsChapV2,
    TtlsEapMd5,
    TtlsEapGtc,
    #[value(name = "ttls-eap-mschapv2")]
    TtlsEapMsChapV2,
}

/// The transport of Diameter.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiameterTransportArg {
    Tcp,
    Tls,
    Sctp,
}

/// The messages of an association that wait for a lost one.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SctpOrder {
    /// All later messages: one stream carries them.
    One,
    /// Later messages of the same session, and of the sessions on its stream.
    Session,
    /// None: the messages are unordered.
    Unordered,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiameterMethod {
    /// AA-Request with a password.
    Pap,
    EapMd5,
    EapGtc,
    #[value(name = "eap-mschapv2")]
    EapMsChapV2,
    EapTls,
    #[value(name = "eap-peap-mschapv2")]
    EapPeapMsChapV2,
    EapTtlsPap,
    #[value(name = "eap-ttls-mschapv2")]
    EapTtlsMsChapV2,
    /// No login: accounting sessions alone.
    Accounting,
}

//! What can be typed behind `usher load`.

use super::value::{DurationArg, FractionArg, MixEntry, StationArg, named_value_parser};
use clap::{Args, Subcommand, ValueEnum};
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use usher_crypto::TlsVersion;
use usher_load::LoadExpectation;

#[derive(Subcommand, Debug)]
pub(crate) enum LoadCommand {
    /// Passwords and accounting over RADIUS.
    #[command(after_help = "Examples:
  usher load radius 127.0.0.1 --secret testing123 --user bob --password hello
  usher load radius 127.0.0.1 --secret-file secret --user 'user{}@example.org' --password 'pw{}' --users 10000 --rate 5000
  usher load radius 127.0.0.1 --secret testing123 --users-file users.csv --method mschapv2 --ramp --out out/knee
  usher load radius 127.0.0.1:1813 --secret testing123 --user bob --method accounting --interims 2 --concurrency 200
  usher load radius 127.0.0.1 --secret testing123 --user bob --password hello --nas 64 --no-offload --expect 'p99 < 100 ms' \
        --expect 'failed < 0.1 %'

Every answer is verified before it counts: its Response Authenticator and Message-Authenticator, with MS-CHAPv2 the
server's proof and its keys. Requests are sent again as RFC 5080 says.
The secret may also be in the environment, as USHER_SECRET, and the password as USHER_PASSWORD.")]
    Radius(RadiusLoadArgs),
    /// EAP over RADIUS.
    #[command(after_help = "Examples:
  usher load eap 127.0.0.1 --secret testing123 --user bob --password hello --method md5
  usher load eap 127.0.0.1 --secret testing123 --user bob --method tls --ca ca.pem --certificate bob.pem --key bob.key
  usher load eap 127.0.0.1 --secret testing123 --user bob --password hello --method peap-mschapv2 --ca ca.pem
  usher load eap 127.0.0.1 --secret-file s --users-file users.csv --method ttls-pap --ca ca.pem --anonymous anonymous@example.org
  usher load eap 127.0.0.1 --secret-file s --user 'user{}' --users 500 --method tls --ca ca.pem --certificate 'certs/{name}.pem' \
        --key 'certs/{name}.key'
  usher load eap 127.0.0.1 --secret-file s --users-file users.csv --ca ca.pem --mix pap=70,eap-tls=20,peap-mschapv2=10

A login counts when the method has ended well on both sides and the MS-MPPE keys are those that the method derived.
--certificate holds the chain that is sent: the leaf first, then its authorities. With {} or {name} in --certificate and
--key each user has one of its own, as with the columns CERTIFICATE,KEY of --users-file.
--mix names methods as --method does, also with eap- in front; pap, chap and mschapv2 are passwords without EAP.")]
    Eap(EapLoadArgs),
    /// Passwords, EAP and accounting over Diameter.
    #[command(after_help = "Examples:
  usher load diameter 127.0.0.1 --peer aaa.example.org --user bob --password hello
  usher load diameter 127.0.0.1 --peer aaa.example.org --user bob --password hello --method eap-md5 --connections 4 --concurrency 32
  usher load diameter 127.0.0.1:5658 --tls --ca ca.pem --certificate load.pem --key load.key --peer aaa.example.org --user bob --password hello

Each connection has an identity of its own, as RFC 6733 asks: --identity, and that with -2, -3 ... behind its first
label. The server must know or accept them.")]
    Diameter(DiameterLoadArgs),
    /// IKE_SAs at an IKEv2 gateway: by a shared key, a certificate, or any EAP method.
    #[command(after_help = "Examples:
  usher load ike 192.0.2.1 --secret-file psk --gateway-id gw.example.org
  usher load ike 192.0.2.1 --secret-file psk --gateway-id gw.example.org --proposal aes128-sha256-modp2048 --rate 200 --duration 30s
  usher load ike 127.0.0.1:4500 --secret-file psk --gateway-id gw.example.org --concurrency 64 --expect 'p99 < 50 ms'
  usher load ike 192.0.2.1 --secret-file psk --gateway-id gw.example.org --keep --count 10000
  usher load ike 192.0.2.1 --gateway-id gw.example.org --gateway-ca ca.pem --method eap-mschapv2 --users-file users.csv
  usher load ike 192.0.2.1 --gateway-id gw.example.org --gateway-ca ca.pem --method eap-tls --user 'user{}' --users 100 \
      --ca ca.pem --certificate '{name}.crt' --key '{name}.key' --ramp

Each login is IKE_SA_INIT and IKE_AUTH without a CHILD_SA (RFC 6023), which the gateway has to allow; then the IKE_SA is deleted, or
stays with --keep. All come from one address: gateways that bound half-open IKE_SAs by address, or ask for cookies, show that.
By psk initiators are named by --id; otherwise they are users, whose names are IKE's identities and EAP's. --wrong-share of the logins
have a wrong key or password, or another user's certificate, and the gateway has to refuse them.")]
    Ike(IkeLoadArgs),
    /// Requests and indications of MIH functions (IEEE 802.21 over RFC 5677).
    #[command(after_help = "Examples:
  usher load mih 127.0.0.1
  usher load mih 127.0.0.1 --request parameters --functions 64 --concurrency 64 --expect 'p99 < 20 ms'
  usher load mih 127.0.0.1 --tcp --request register --rate 2000 --duration 5s
  usher load mih 127.0.0.1 --request indication --ramp --out out/mih-knee

Who is there is discovered first. A transaction counts when its response says success, an indication when it is acknowledged;
without acknowledgements (--tcp, --no-ack) an indication counts as soon as it is sent. By UDP what a server drops is sent again, and
is a timeout when its tries are over. Options about users and methods do not go with this command.")]
    Mih(MihLoadArgs),
    /// Sessions at a PPPoE access concentrator, of subscribers behind one interface.
    #[command(after_help = "Examples:
  usher load pppoe eth1 --user 'user{}' --password 'pw{}' --users 1000
  usher load pppoe eth1 --user ann --password secret --sessions 10000 --keep --rounds 3 --expect 'cps-min > 500/s'
  usher load pppoe eth1 --users-file users.csv --sessions 10000 --keep --power-cut --rounds 2 --concurrency 10000
  usher load pppoe eth1 --user ann --password secret --sessions 500 --rate 100 --hold 3s --duration 60s
  usher load pppoe eth1 --user ann --password secret --sessions 100 --keep --stay 10s --echo 10 --expect 'echo-lost < 0.1 %'

A login is discovery, LCP, authentication and IPCP; then its session ends at once, after --hold, or with --keep at the end. Each
session is of a station with an address of Ethernet of its own. It needs CAP_NET_RAW; the interface carries nothing else meanwhile.
With --keep the results tell the set-up rate in calls a second (CPS), of each of --rounds, with the least, mean and most.
--echo has sessions carry echoes (ping), which the concentrator or --echo-to answers.")]
    Pppoe(PppoeLoadArgs),
}

#[derive(Args, Debug)]
pub(crate) struct PppoeLoadArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// How subscribers show who they are.
    #[arg(long, value_enum, default_value_t = PppoeMethod::Chap, conflicts_with = "mix")]
    pub(crate) method: PppoeMethod,
    /// How many stations there are, and so sessions at a time.
    #[arg(long, value_name = "N", default_value = "1000", help_heading = "PPPoE")]
    pub(crate) sessions: NonZeroUsize,
    /// The first station's address of Ethernet; each further one is one more.
    #[arg(long, value_name = "ADDRESS", default_value = "02:00:5e:00:00:00", help_heading = "PPPoE")]
    pub(crate) station: StationArg,
    /// The service that is asked for [default: any].
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "PPPoE")]
    pub(crate) service: String,
    /// The concentrator's name [default: any].
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "PPPoE")]
    pub(crate) concentrator: String,
    /// How long an answer of discovery is waited for before it is sent again; each further wait is twice as long.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "PPPoE")]
    pub(crate) discovery: DurationArg,
    /// How often PADI is sent for a session.
    #[arg(long, value_name = "N", default_value = "5", help_heading = "PPPoE")]
    pub(crate) attempts: NonZeroU32,
    /// How long it may take from PADS until packets may pass.
    #[arg(long, value_name = "TIME", default_value = "30s", help_heading = "PPPoE")]
    pub(crate) setup: DurationArg,
    /// How often each station asks whether the concentrator lives; 0: never.
    #[arg(long, value_name = "TIME", default_value = "20s", help_heading = "PPPoE")]
    pub(crate) keepalive: DurationArg,
    /// End each session so long after it was set up.
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = "PPPoE", conflicts_with = "keep")]
    pub(crate) hold: DurationArg,
    /// Leave sessions until all are there; without --count or --duration each station sets one up.
    #[arg(long, help_heading = "PPPoE")]
    pub(crate) keep: bool,
    /// How long they stay after that.
    #[arg(long, value_name = "TIME", default_value = "0s", help_heading = "PPPoE", requires = "keep")]
    pub(crate) stay: DurationArg,
    /// How often all stations set their sessions up.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "PPPoE", requires = "keep")]
    pub(crate) rounds: NonZeroU32,
    /// Between rounds all sessions stop without a word, as when the power is cut: the concentrator still has them when all come back.
    #[arg(long, help_heading = "PPPoE", requires = "keep")]
    pub(crate) power_cut: bool,
    /// Each session carries so many echoes a second.
    #[arg(long, value_name = "R", help_heading = "PPPoE")]
    pub(crate) echo: Option<f64>,
    /// Octets of each echo, as an IP packet.
    #[arg(long, value_name = "N", default_value = "84", help_heading = "PPPoE", requires = "echo",
          value_parser = clap::value_parser!(u16).range(44..=1492))]
    pub(crate) echo_size: u16,
    /// Who answers echoes [default: the concentrator].
    #[arg(long, value_name = "ADDRESS", help_heading = "PPPoE", requires = "echo")]
    pub(crate) echo_to: Option<Ipv4Addr>,
}

/// How PPPoE subscribers show who they are.
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
    /// How initiators prove who they are: psk, certificate, eap-md5, eap-gtc, eap-mschapv2, eap-tls, peap-mschapv2, peap-gtc, ttls-pap
    /// and the other methods of `usher load eap`.
    #[arg(long, value_name = "METHOD", default_value = "psk", conflicts_with = "mix")]
    pub(crate) method: String,
    /// A file that holds the key that all initiators and the gateway have.
    #[arg(long, value_name = "FILE", help_heading = "IKE", required_unless_present = "gateway_ca")]
    pub(crate) secret_file: Option<PathBuf>,
    /// The authorities below which the gateway's certificate must end, in PEM; without them it proves who it is by the shared key.
    #[arg(long, value_name = "FILE", help_heading = "IKE")]
    pub(crate) gateway_ca: Option<PathBuf>,
    /// Who the gateway is.
    #[arg(long, value_name = "ID", help_heading = "IKE")]
    pub(crate) gateway_id: String,
    /// What initiators with the shared key call themselves, each with its number behind the first label.
    #[arg(long, value_name = "ID", default_value = "load@example.org", help_heading = "IKE")]
    pub(crate) id: String,
    /// How many of these there are: identities that log in, each in turn.
    #[arg(long, value_name = "N", default_value = "1000", help_heading = "IKE")]
    pub(crate) initiators: NonZeroUsize,
    /// What is proposed; may be repeated, the preferred first.
    #[arg(long, value_name = "WORDS", default_value = "aes128-sha256-x25519", help_heading = "IKE")]
    pub(crate) proposal: Vec<String>,
    /// Leave IKE_SAs as they are when they are established.
    #[arg(long, help_heading = "IKE")]
    pub(crate) keep: bool,
    /// How long a response is waited for before a request is sent again; each further wait is 1.8 times as long.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "IKE")]
    pub(crate) retransmission: DurationArg,
    /// How often a request is sent again.
    #[arg(long, value_name = "N", default_value = "3", help_heading = "IKE")]
    pub(crate) retransmissions: u32,
}

#[derive(Args, Debug)]
pub(crate) struct MihLoadArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// What is asked, or told.
    #[arg(long, value_enum, default_value_t = MihName::Discover, help_heading = "MIH")]
    pub(crate) request: MihName,
    /// By TCP, one connection for each function; otherwise by UDP.
    #[arg(long, help_heading = "MIH")]
    pub(crate) tcp: bool,
    /// Ask for no MIH acknowledgements, as is always so by TCP: nothing is sent again.
    #[arg(long, help_heading = "MIH")]
    pub(crate) no_ack: bool,
    /// How many functions ask, each with an identifier and a socket or connection of its own.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "MIH")]
    pub(crate) functions: NonZeroUsize,
    /// What the first function calls itself; the others have their number behind the first label.
    #[arg(long, value_name = "ID", default_value = "load@example.org", help_heading = "MIH")]
    pub(crate) id: String,
    /// How long an acknowledgement is waited for before a message is sent again.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "MIH")]
    pub(crate) retransmission: DurationArg,
    /// How often a message is sent again.
    #[arg(long, value_name = "N", default_value = "2", help_heading = "MIH")]
    pub(crate) retransmissions: u8,
    /// How long a response is waited for.
    #[arg(long, value_name = "TIME", default_value = "5s", help_heading = "MIH")]
    pub(crate) timeout: DurationArg,
}

/// What MIH functions ask, or tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum MihName {
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
    /// What all of them have.
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
    /// How users log in.
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
    /// How users log in.
    #[arg(long, value_enum, conflicts_with = "mix", required_unless_present = "mix")]
    pub(crate) method: Option<EapName>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) accounting: AccountingArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DiameterLoadArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// How users log in.
    #[arg(long, value_enum, default_value_t = DiameterMethod::Pap, conflicts_with = "mix")]
    pub(crate) method: DiameterMethod,
    /// What the server calls itself (its Origin-Host).
    #[arg(long, value_name = "HOST")]
    pub(crate) peer: String,
    /// What the first connection calls itself.
    #[arg(long, value_name = "HOST", default_value = "load.example.org")]
    pub(crate) identity: String,
    /// Our realm [default: what follows the first dot of --identity].
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// Destination-Realm of every request [default: what follows the first dot of --peer].
    #[arg(long, value_name = "REALM")]
    pub(crate) destination: Option<String>,
    /// How many connections.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) connections: NonZeroUsize,
    /// Connect by TLS, with --ca, --certificate and --key.
    #[arg(long = "tls", conflicts_with = "transport")]
    pub(crate) over_tls: bool,
    /// What carries the messages; sctp needs a kernel that has it.
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value_t = DiameterCarrier::Tcp)]
    pub(crate) transport: DiameterCarrier,
    /// How long an answer is waited for.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) timeout: DurationArg,
    /// Outbound streams that an association asks for; the server may allow fewer.
    #[arg(long, value_name = "N", default_value = "16", help_heading = "SCTP", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) streams: u16,
    /// Which messages wait for which, where one is lost.
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = SctpOrder::Session, help_heading = "SCTP")]
    pub(crate) order: SctpOrder,
    /// Small messages wait for acknowledgements of earlier ones: without SCTP_NODELAY.
    #[arg(long, help_heading = "SCTP")]
    pub(crate) nagle: bool,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) accounting: AccountingArgs,
}

/// What all three have.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// The server: HOST or HOST:PORT, [ADDRESS]:PORT for IPv6; for PPPoE the interface that the concentrator is behind.
    pub(crate) server: String,
    /// The user's name; {} stands for a number, from 0.
    #[arg(long, value_name = "NAME", help_heading = "Users", conflicts_with = "users_file")]
    pub(crate) user: Option<String>,
    /// The password; {} stands for the user's number.
    #[arg(long, help_heading = "Users", conflicts_with = "users_file")]
    pub(crate) password: Option<String>,
    /// How many users --user stands for.
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        help_heading = "Users",
        conflicts_with = "users_file"
    )]
    pub(crate) users: NonZeroUsize,
    /// Users from a file: NAME,PASSWORD a line, or NAME,PASSWORD,CERTIFICATE,KEY with files relative to this one.
    #[arg(long, value_name = "FILE", help_heading = "Users")]
    pub(crate) users_file: Option<PathBuf>,
    /// This share of the logins is wrong and must be turned away, by a wrong password or, with a certificate a user,
    /// another user's: 0.1 or 10%.
    #[arg(long, value_name = "SHARE", default_value = "0", help_heading = "Users")]
    pub(crate) wrong_share: FractionArg,
    /// Several methods by their shares, as pap=70,chap=30.
    #[arg(long, value_name = "METHOD=SHARE,...", value_delimiter = ',', help_heading = "Users")]
    pub(crate) mix: Vec<MixEntry>,

    /// Open loop: so many logins a second, whatever the server does.
    #[arg(long, value_name = "R", help_heading = "Pace", conflicts_with_all = ["concurrency", "ramp"])]
    pub(crate) rate: Option<f64>,
    /// With equal gaps instead of exponential ones.
    #[arg(long, help_heading = "Pace")]
    pub(crate) regular: bool,
    /// Open loop: so many logins of each thread begin at once, with exponential gaps between these bursts.
    #[arg(long, value_name = "N", help_heading = "Pace", conflicts_with_all = ["regular", "concurrency"])]
    pub(crate) burst: Option<NonZeroU32>,
    /// Closed loop: so many logins at once, the next when one ends [default: 16].
    #[arg(long, value_name = "N", help_heading = "Pace", conflicts_with = "ramp")]
    pub(crate) concurrency: Option<NonZeroUsize>,
    /// How long is measured [default: 10s, or until --count].
    #[arg(long, value_name = "TIME", help_heading = "Pace", conflicts_with = "ramp")]
    pub(crate) duration: Option<DurationArg>,
    /// So many logins are measured.
    #[arg(long, value_name = "N", help_heading = "Pace", conflicts_with = "ramp")]
    pub(crate) count: Option<u64>,
    /// How long logins are not counted at first [default: 1s; with --count none].
    #[arg(long, value_name = "TIME", help_heading = "Pace")]
    pub(crate) warmup: Option<DurationArg>,
    /// Open loop: most logins under way at once; others that are due wait, and their latency runs.
    #[arg(long, value_name = "N", default_value = "16384", help_heading = "Pace")]
    pub(crate) outstanding: NonZeroUsize,

    /// Find the knee: the rate doubles until the server does not keep up, then the limit is searched for.
    #[arg(long, help_heading = "Ramp")]
    pub(crate) ramp: bool,
    /// The first rate.
    #[arg(long, value_name = "R", default_value = "100", help_heading = "Ramp")]
    pub(crate) ramp_start: f64,
    /// The highest rate that is tried.
    #[arg(long, value_name = "R", default_value = "10000000", help_heading = "Ramp")]
    pub(crate) ramp_most: f64,
    /// The server keeps up when this share of logins ends as it has to ...
    #[arg(long, value_name = "SHARE", default_value = "99.9%", help_heading = "Ramp")]
    pub(crate) ramp_success: FractionArg,
    /// ... and 99 % of them within this time.
    #[arg(long, value_name = "TIME", default_value = "100ms", help_heading = "Ramp")]
    pub(crate) ramp_p99: DurationArg,
    /// How near the knee is found.
    #[arg(long, value_name = "SHARE", default_value = "5%", help_heading = "Ramp")]
    pub(crate) ramp_precision: FractionArg,
    /// Most steps that are repeated near the knee until it is stable.
    #[arg(long, value_name = "N", default_value = "16", help_heading = "Ramp")]
    pub(crate) ramp_repeats: u32,
    /// How long a rate runs before it is measured; nobody logs in for as long after one that failed.
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "Ramp")]
    pub(crate) ramp_settle: DurationArg,
    /// How long it is measured.
    #[arg(long, value_name = "TIME", default_value = "3s", help_heading = "Ramp")]
    pub(crate) ramp_hold: DurationArg,

    /// What the results are expected to be, as 'p99 < 100 ms' or 'failed < 0.1 %'; may be given again. Exit code 3 where
    /// one is not met.
    #[arg(long, value_name = "METRIC < VALUE", help_heading = "Expectations")]
    pub(crate) expect: Vec<LoadExpectation>,

    /// Measure what one login costs the server by each method, at a few moderate loads, and write that as a profile for
    /// `usher plan` and for studies. Needs --server-pid and --server-config.
    #[arg(long, value_name = "FILE", help_heading = "Calibration",
          conflicts_with_all = ["ramp", "rate", "burst", "concurrency", "duration", "count", "warmup", "wrong_share", "expect", "out"])]
    pub(crate) calibrate: Option<PathBuf>,
    /// The configuration that the server was started with.
    #[arg(long, value_name = "FILE", help_heading = "Calibration", requires = "calibrate")]
    pub(crate) server_config: Option<PathBuf>,
    /// How long each load is measured at least; one of bursts until ten have come.
    #[arg(long, value_name = "TIME", default_value = "4s", help_heading = "Calibration")]
    pub(crate) calibrate_hold: DurationArg,
    /// Do not say where the CPU time goes, by library.
    #[arg(long, help_heading = "Calibration", requires = "calibrate")]
    pub(crate) no_libraries: bool,

    /// Load an address that is not this machine's own, as the server's owner allows.
    #[arg(long, help_heading = "Run")]
    pub(crate) yes: bool,
    /// How many threads generate the load.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Run")]
    pub(crate) threads: NonZeroUsize,
    /// The processors they are bound to, from 0.
    #[arg(long, value_name = "N,...", value_delimiter = ',', help_heading = "Run")]
    pub(crate) cores: Vec<usize>,
    /// The server's process: its CPU time for each login is reported.
    #[arg(long, value_name = "PID", help_heading = "Run")]
    pub(crate) server_pid: Option<NonZeroU32>,
    /// Do not log one user in first to see whether the settings are right.
    #[arg(long, help_heading = "Run")]
    pub(crate) no_check: bool,
    /// Do not keep a processor busy in between logins of an open loop: they may begin a millisecond late.
    #[arg(long, help_heading = "Run")]
    pub(crate) relaxed: bool,
    /// How long unfinished logins are waited for at the end.
    #[arg(long, value_name = "TIME", default_value = "35s", help_heading = "Run")]
    pub(crate) patience: DurationArg,
    /// Write results.csv, results.parquet, results.json, manifest.json and report.html here.
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub(crate) out: Option<PathBuf>,
}

/// The RADIUS client.
#[derive(Args, Debug)]
pub(crate) struct NasArgs {
    /// The secret shared with the server.
    #[arg(long, conflicts_with = "secret_file", help_heading = "RADIUS")]
    pub(crate) secret: Option<String>,
    /// A file whose first line is the secret.
    #[arg(long, value_name = "FILE", help_heading = "RADIUS")]
    pub(crate) secret_file: Option<PathBuf>,
    /// So many access servers, each with one socket and so at most 256 requests under way; NAS-Identifier with a number
    /// behind it.
    #[arg(long, value_name = "N", help_heading = "RADIUS")]
    pub(crate) nas: Option<NonZeroUsize>,
    /// The first access server's address, and the following ones for the others, as 127.0.1.1 [default: one for all].
    #[arg(long, value_name = "ADDRESS", help_heading = "RADIUS", requires = "nas")]
    pub(crate) nas_address: Option<IpAddr>,
    /// Each datagram goes by itself: no trains (UDP segmentation offload), which access servers do not send.
    #[arg(long, help_heading = "RADIUS")]
    pub(crate) no_offload: bool,
    /// NAS-Identifier of every request.
    #[arg(long, value_name = "NAME", default_value = "usher-load", help_heading = "RADIUS")]
    pub(crate) nas_identifier: String,
    /// IRT: the first wait before a request is sent again.
    #[arg(long, value_name = "TIME", default_value = "2s", help_heading = "RADIUS")]
    pub(crate) irt: DurationArg,
    /// MRT: the longest wait; 0 for none.
    #[arg(long, value_name = "TIME", default_value = "16s", help_heading = "RADIUS")]
    pub(crate) mrt: DurationArg,
    /// MRC: transmissions in all; 0 for no limit.
    #[arg(long, value_name = "N", default_value = "5", help_heading = "RADIUS")]
    pub(crate) mrc: u32,
    /// MRD: from the first transmission to giving up; 0 for no limit.
    #[arg(long, value_name = "TIME", default_value = "30s", help_heading = "RADIUS")]
    pub(crate) mrd: DurationArg,
    /// Take answers without a Message-Authenticator, as old servers send them.
    #[arg(long, help_heading = "RADIUS")]
    pub(crate) no_message_authenticator: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AccountingArgs {
    /// An accounting session after each login: start, interim records, stop.
    #[arg(long, help_heading = "Accounting")]
    pub(crate) accounting: bool,
    /// Where accounting goes [default: the server's address, port 1813; with --method accounting SERVER itself].
    #[arg(long, value_name = "HOST:PORT", help_heading = "Accounting")]
    pub(crate) accounting_server: Option<String>,
    /// Interim records in each session.
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Accounting")]
    pub(crate) interims: u32,
    /// From one record of a session to the next.
    #[arg(long, value_name = "TIME", default_value = "0", help_heading = "Accounting")]
    pub(crate) interim_every: DurationArg,
}

#[derive(Args, Debug)]
pub(crate) struct TlsArgs {
    /// The authorities below which the server's certificate must end, in PEM.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(crate) ca: Option<PathBuf>,
    /// Our certificate and the chain that is sent with it, the leaf first, in PEM. One a user: {} stands for the user's
    /// number, {name} for the name.
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "key")]
    pub(crate) certificate: Option<String>,
    /// Its private key, in PEM, not encrypted; {} and {name} as above.
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "certificate")]
    pub(crate) key: Option<String>,
    /// The name that the server's certificate must bear.
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub(crate) server_name: Option<String>,
    /// The lowest version of TLS.
    #[arg(long, value_name = "VERSION", value_parser = named_value_parser::<TlsVersion>(), default_value_t = TlsVersion::Tls12, help_heading = "TLS")]
    pub(crate) tls_min: TlsVersion,
    /// The highest version of TLS.
    #[arg(long, value_name = "VERSION", value_parser = named_value_parser::<TlsVersion>(), default_value_t = TlsVersion::Tls13, help_heading = "TLS")]
    pub(crate) tls_max: TlsVersion,
    /// The longest EAP packet sent.
    #[arg(long, value_name = "OCTETS", default_value = "1398", help_heading = "TLS",
          value_parser = clap::value_parser!(u16).range(64..=4000))]
    pub(crate) fragment: u16,
    /// Each user takes up its earlier TLS session.
    #[arg(long, help_heading = "TLS")]
    pub(crate) resume: bool,
    /// The identity outside the tunnel of PEAP and TTLS.
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
pub(crate) enum EapName {
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

/// What carries Diameter.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiameterCarrier {
    Tcp,
    Tls,
    Sctp,
}

/// Which messages of an association wait for which.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SctpOrder {
    /// All for all before them: they go by one stream.
    One,
    /// Those of a session for each other, and for those of the sessions that share its stream.
    Session,
    /// None for any other.
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

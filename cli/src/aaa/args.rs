//! The command line of `usher aaa`. The documentation of these items is the program's help.

use clap::{ArgGroup, Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum AaaCommand {
    /// Serve RADIUS, RadSec and Diameter until stopped.
    #[command(after_help = "Examples:
  usher aaa serve
  usher aaa serve --config ./aaa.toml
  kill -HUP $(pidof usher)      reload the configuration

Without a configuration, the server serves loopback with a generated secret and prints the next steps.
On SIGTERM it finishes the logins in progress, writes all accounting records and exits.")]
    Serve(AaaConfigArgs),
    /// Check a configuration file without serving, and report each fault with its line.
    #[command(
        after_help = "Examples:\n  usher aaa check\n  usher aaa check ./aaa.toml\n  usher aaa check ./aaa.toml --connect

The check also loads keys, certificates, revocation lists, dictionaries and secrets.
It makes no changes and opens no ports."
    )]
    Check {
        /// The configuration file [default: /etc/usher/aaa.toml].
        file: Option<PathBuf>,
        /// Also connect to the database, and check that it has the tables that the server needs.
        #[arg(long)]
        connect: bool,
    },
    /// Add, change, list, show, remove and import users of the store.
    User {
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Set the check and reply items that the users of a group share.
    Group {
        #[command(subcommand)]
        command: GroupCommand,
    },
    /// Print the SQL script that creates the tables in a PostgreSQL database.
    #[command(after_help = "Example:\n  usher aaa schema | psql radius")]
    Schema,
    /// Add, list, remove and import clients: the access servers that may send requests.
    Client {
        #[command(subcommand)]
        command: ClientCommand,
    },
    /// List, show, end, change and forget sessions.
    Session {
        #[command(subcommand)]
        command: SessionCommand,
    },
    /// Create a certificate authority; issue, renew and revoke its certificates.
    Cert(super::cert::CertArgs),
    /// Show the state of the running server.
    #[command(after_help = "Example:\n  usher aaa status --json")]
    Status(AaaConfigArgs),
    /// Make the running server reload its configuration.
    #[command(after_help = "Example:\n  usher aaa reload")]
    Reload(AaaConfigArgs),
    /// Print the events of one user or MAC address as they happen.
    #[command(after_help = "Examples:\n  usher aaa trace ann\n  usher aaa trace 00-11-22-33-44-55 --json")]
    Trace(ServerTraceArgs),
    /// Try one login and explain its result. A server on this machine adds its own trace.
    #[command(after_help = "Examples:
  usher aaa test ann
  usher aaa test ann --method eap-md5 --password-file ./password
  usher aaa test ann --method peap --ca ca.pem --server 192.0.2.1:1812 --secret-file ./secret
  usher aaa test ann --tls --ca ca.pem --certificate nas.pem --key nas.key --server 192.0.2.1:2083
  usher aaa test ann --peer aaa.example.org --identity nas.example.org --server 192.0.2.1:3868

The login uses RADIUS over UDP unless --tls or --peer is given. The server must know this host as a
client or peer.")]
    Test(Box<LoginTestArgs>),
}

/// The configuration.
#[derive(Args, Clone, Debug)]
pub(crate) struct AaaConfigArgs {
    /// The configuration file [default: /etc/usher/aaa.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The password of a user, and its form in the store.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("source"))]
pub(crate) struct PasswordArgs {
    /// A file that holds the password; `-` is standard input.
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) password_file: Option<PathBuf>,
    /// No password: for devices admitted by MAC address, or users with certificates.
    #[arg(long, group = "source")]
    pub(crate) no_password: bool,
    /// The form of the stored password: clear (every method), NT hash (PAP, MS-CHAP, MSCHAPv2) or argon2 hash (PAP,
    /// GTC) [default: clear].
    #[arg(long, value_enum)]
    pub(crate) hash: Option<PasswordStorage>,
}

/// The form of a stored password.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum PasswordStorage {
    #[default]
    Clear,
    Nt,
    Argon2,
}

#[derive(Args, Debug)]
pub(crate) struct UserRows {
    /// The user name, as at login.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) password: PasswordArgs,
    /// A check item (a condition on the request), `ATTRIBUTE OPERATOR VALUE`; may be repeated.
    #[arg(long, value_name = "ROW")]
    pub(crate) check: Vec<String>,
    /// A reply item (an attribute of the accept), `ATTRIBUTE = VALUE`; may be repeated.
    #[arg(long, value_name = "ROW")]
    pub(crate) reply: Vec<String>,
    /// A group of the user; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Vec<String>,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

/// The changes to a user. Everything else stays.
#[derive(Args, Debug)]
pub(crate) struct UserUpdateArgs {
    /// The user name.
    pub(crate) name: String,
    // PasswordArgs comes first, because later options, such as `password`, join its group.
    #[command(flatten)]
    pub(crate) new: PasswordArgs,
    /// Prompt for a new password.
    #[arg(long, group = "source")]
    pub(crate) password: bool,
    /// A check item, `ATTRIBUTE OPERATOR VALUE`. It replaces the check items of its attribute; may be repeated.
    #[arg(long, value_name = "ROW")]
    pub(crate) check: Vec<String>,
    /// A reply item, `ATTRIBUTE = VALUE`. It replaces the reply items of its attribute; may be repeated.
    #[arg(long, value_name = "ROW")]
    pub(crate) reply: Vec<String>,
    /// Remove the check and reply items of this attribute; may be repeated.
    #[arg(long, value_name = "ATTRIBUTE")]
    pub(crate) remove: Vec<String>,
    /// A group. It replaces the user's earlier groups; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Vec<String>,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

/// The handling of a user's open sessions.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct SessionDisconnectArgs {
    /// Also ask the NASs to end the user's open sessions (RFC 5176).
    #[arg(long)]
    pub(crate) disconnect: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum UserCommand {
    /// Add a user.
    #[command(after_help = "Examples:
  usher aaa user add ann
  usher aaa user add ann --hash argon2 --password-file ./password
  usher aaa user add 00-11-22-33-44-55 --no-password --reply 'Tunnel-Private-Group-Id = 20'

Without --password-file or --no-password, the program prompts for the password.")]
    Add(UserRows),
    /// Change a user. Options replace stored values; everything else stays.
    #[command(after_help = "Examples:
  usher aaa user set ann --password
  usher aaa user set ann --reply 'Session-Timeout = 3600' --remove Idle-Timeout
  usher aaa user set ann --group staff --disconnect

The server drops the user's cached rows and TLS sessions, so the next login reads the new rows.
Open sessions stay, unless --disconnect is given.")]
    Set {
        #[command(flatten)]
        changes: UserUpdateArgs,
        #[command(flatten)]
        open: SessionDisconnectArgs,
    },
    /// List the users by name.
    #[command(after_help = "Example:\n  usher aaa user list --json")]
    List(AaaConfigArgs),
    /// Show a user, without the password.
    #[command(after_help = "Example:\n  usher aaa user show ann")]
    Show(UserOrClientArgs),
    /// Remove a user. The running server drops it from its cache at once.
    #[command(after_help = "Examples:
  usher aaa user del ann
  usher aaa user del ann --disconnect

Open sessions stay, unless --disconnect is given.")]
    Del {
        #[command(flatten)]
        named: UserOrClientArgs,
        #[command(flatten)]
        open: SessionDisconnectArgs,
    },
    /// Import a `users` file of FreeRADIUS.
    #[command(after_help = "Examples:
  usher aaa user import /etc/freeradius/3.0/users
  usher aaa user import ./users --leave-out

The command imports the entries that mean the same here. It reports the others and exits with code 3.
It imports no entry if a missing one would let more users in.")]
    Import(UserImport),
}

#[derive(Subcommand, Debug)]
pub(crate) enum GroupCommand {
    /// Set the check and reply items of a group, in place of the earlier ones.
    #[command(after_help = "Examples:
  usher aaa group set staff --reply 'Tunnel-Private-Group-Id = 20'
  usher aaa group set guests --check 'NAS-Port-Type == Wireless-802.11' --reply 'Session-Timeout = 3600'")]
    Set {
        /// The group's name.
        name: String,
        /// A check item, `ATTRIBUTE OPERATOR VALUE`; may be repeated. The group applies if its check items match.
        #[arg(long, value_name = "ROW")]
        check: Vec<String>,
        /// A reply item (an attribute of the accept), `ATTRIBUTE = VALUE`; may be repeated.
        #[arg(long, value_name = "ROW")]
        reply: Vec<String>,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
}

#[derive(Args, Debug)]
pub(crate) struct UserOrClientArgs {
    /// The user's name, or the client's address or network.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The file to import.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

#[derive(Args, Debug)]
pub(crate) struct UserImport {
    #[command(flatten)]
    pub(crate) import: ImportArgs,
    /// Skip unsupported reply items, even those that restrict access. Without this option, they stop the import.
    #[arg(long)]
    pub(crate) leave_out: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ClientCommand {
    /// Add a client.
    #[command(after_help = "Examples:
  usher aaa client add 192.0.2.0/24 --name switches
  usher aaa client add 2001:db8::1 --secret-file ./secret

Without --secret-file, the program generates a secret and shows it once.")]
    Add {
        /// The client's address or network.
        prefix: String,
        /// The client's name in logs [default: the address].
        #[arg(long)]
        name: Option<String>,
        /// A file that holds the secret; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// Accept Access-Requests without Message-Authenticator: for old devices only, as BlastRADIUS can forge their
        /// replies.
        #[arg(long)]
        no_message_authenticator: bool,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
    /// List clients.
    #[command(after_help = "Example:\n  usher aaa client list")]
    List(AaaConfigArgs),
    /// Remove a client by its address or network.
    #[command(after_help = "Example:\n  usher aaa client del 192.0.2.0/24")]
    Del(UserOrClientArgs),
    /// Import a `clients.conf` of FreeRADIUS.
    #[command(after_help = "Example:\n  usher aaa client import /etc/freeradius/3.0/clients.conf")]
    Import(ImportArgs),
}

#[derive(Subcommand, Debug)]
pub(crate) enum SessionCommand {
    /// List open sessions, each with the shortest unique prefix of its id.
    #[command(after_help = "Examples:\n  usher aaa session list\n  usher aaa session list --user ann --json")]
    List {
        /// Only the sessions of this user.
        #[arg(long)]
        user: Option<String>,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
    /// Show the details of a session.
    #[command(after_help = "Example:\n  usher aaa session show 5f2a01")]
    Show(SessionArgs),
    /// Ask the NAS to end a session (RFC 5176).
    #[command(after_help = "Example:\n  usher aaa session disconnect 5f2a01")]
    Disconnect(SessionArgs),
    /// Ask the NAS to change a session (RFC 5176).
    #[command(after_help = "Example:\n  usher aaa session change 5f2a01 'Filter-Id = guests'")]
    Change {
        /// The session's id: acctuniqueid or Acct-Session-Id, or the first 6 characters or more of either.
        #[arg(value_name = "ID")]
        name: String,
        /// A new value, `ATTRIBUTE = VALUE`.
        #[arg(required = true)]
        attributes: Vec<String>,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
    /// Close sessions of a NAS that cannot report their end, because it failed or was removed.
    #[command(after_help = "Examples:
  usher aaa session forget 5f2a01 77ab20
  usher aaa session forget --nas 192.0.2.7 --dry-run
  usher aaa session forget --nas ap-3 --user ann

The command frees the session's place in the user's limit and its address in the pool. It closes the
accounting record with the cause Admin-Reset, at the time of the session's last record.
It sends the NAS no request: to end a live session, use `usher aaa session disconnect`.
A forgotten session is open again if its NAS reports it.
Exit code 1: no open session matches.")]
    Forget {
        /// Session ids, as `usher aaa session list` shows them.
        #[arg(value_name = "ID", required_unless_present_any = ["nas", "user"])]
        ids: Vec<String>,
        /// All sessions of this NAS, by its address or the name of its client.
        #[arg(long, value_name = "NAME|ADDRESS", conflicts_with = "ids")]
        nas: Option<String>,
        /// All sessions of this user; with --nas, only those at that NAS.
        #[arg(long, value_name = "NAME", conflicts_with = "ids")]
        user: Option<String>,
        /// Show the sessions without closing them.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
}

/// A session.
#[derive(Args, Debug)]
pub(crate) struct SessionArgs {
    /// The session's id: acctuniqueid or Acct-Session-Id, or the first 6 characters or more of either.
    #[arg(value_name = "ID")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ServerTraceArgs {
    /// A user name, or a MAC address in any notation [default: all].
    pub(crate) who: Option<String>,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LoginTestArgs {
    /// The user name.
    pub(crate) name: String,
    /// The method: pap, chap, mschapv2, eap-md5, eap-gtc, eap-mschapv2, eap-tls, peap or ttls.
    #[arg(long, default_value = "pap")]
    pub(crate) method: String,
    /// A file that holds the password; `-` is standard input [default: a prompt].
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// The server's address and port [default: the local server's].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) server: Option<SocketAddr>,
    /// A file that holds the shared secret [default: the configuration's].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["over_tls", "peer"])]
    pub(crate) secret_file: Option<PathBuf>,
    /// Use TLS, with --ca, --certificate and --key: RadSec, or with --peer Diameter over TLS.
    #[arg(long = "tls")]
    pub(crate) over_tls: bool,
    /// With --peer: use Diameter over SCTP, if the kernel has SCTP.
    #[arg(long = "sctp", requires = "peer", conflicts_with = "over_tls")]
    pub(crate) over_sctp: bool,
    /// Use Diameter, over TCP unless --tls or --sctp is given. HOST is the server's Origin-Host.
    #[arg(long, value_name = "HOST")]
    pub(crate) peer: Option<String>,
    /// With --peer: the client's Origin-Host.
    #[arg(long, value_name = "HOST", default_value = "test.example.org")]
    pub(crate) identity: String,
    /// With --peer: the client's Origin-Realm [default: the part of --identity after the first dot].
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// With --peer: the Destination-Realm [default: the part of --peer after the first dot].
    #[arg(long, value_name = "REALM")]
    pub(crate) destination: Option<String>,
    /// PEM file: the authorities of the server's certificate.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// PEM file: the client's certificate and its chain, for eap-tls and --tls.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// PEM file: the private key of --certificate.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// With --tls: the name that the server's certificate must have.
    #[arg(long, value_name = "NAME", requires = "over_tls")]
    pub(crate) server_name: Option<String>,
    /// The station's MAC address (Calling-Station-Id).
    #[arg(long)]
    pub(crate) mac: Option<String>,
    /// The outer identity of peap and ttls, such as `anonymous` [default: the user name].
    #[arg(long, value_name = "NAME")]
    pub(crate) outside: Option<String>,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

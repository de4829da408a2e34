//! What can be typed behind `usher aaa`. The documentation of these items is the program's help.

use clap::{ArgGroup, Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum AaaCommand {
    /// Serve RADIUS, RadSec and Diameter until told to end.
    #[command(after_help = "Examples:
  usher aaa serve
  usher aaa serve --config ./aaa.toml
  kill -HUP $(pidof usher)      read the configuration again

Without a configuration the server serves loopback with a generated secret and says how to go on.
SIGTERM ends it when the logins under way are answered and all accounting is written.")]
    Serve(AaaConfigArgs),
    /// Check a configuration file without serving: every fault with its line.
    #[command(
        after_help = "Examples:\n  usher aaa check\n  usher aaa check ./aaa.toml\n  usher aaa check ./aaa.toml --connect

It loads what `usher aaa serve` loads: keys, certificates, lists, dictionaries, secrets. It changes nothing and listens nowhere."
    )]
    Check {
        /// The file [default: /etc/usher/aaa.toml].
        file: Option<PathBuf>,
        /// Look at the database, too: whether it answers, and whether it has the tables that the server needs.
        #[arg(long)]
        connect: bool,
    },
    /// Users of the store: add, change, list, show, remove and import them.
    User {
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Groups of the store: what their users share.
    Group {
        #[command(subcommand)]
        command: GroupCommand,
    },
    /// Print what makes the tables in a PostgreSQL database.
    #[command(after_help = "Example:\n  usher aaa schema | psql radius")]
    Schema,
    /// Clients of the store: who may ask the server.
    Client {
        #[command(subcommand)]
        command: ClientCommand,
    },
    /// Sessions: list, show, end and change them.
    Session {
        #[command(subcommand)]
        command: SessionCommand,
    },
    /// Certificates: an authority, what it issues, renews and takes back.
    Cert(super::cert::CertArgs),
    /// Say how the running server is.
    #[command(after_help = "Example:\n  usher aaa status --json")]
    Status(AaaConfigArgs),
    /// Tell the running server to read its configuration again.
    #[command(after_help = "Example:\n  usher aaa reload")]
    Reload(AaaConfigArgs),
    /// Follow what happens to one user or one MAC address, line by line.
    #[command(after_help = "Examples:\n  usher aaa trace ann\n  usher aaa trace 00-11-22-33-44-55 --json")]
    Trace(TraceArgs),
    /// Try one login and explain it, from the side of the client and, where the server runs here, from its own.
    #[command(after_help = "Examples:
  usher aaa test ann
  usher aaa test ann --method eap-md5 --password-file ./password
  usher aaa test ann --method peap --ca ca.pem --server 192.0.2.1:1812 --secret-file ./secret
  usher aaa test ann --tls --ca ca.pem --certificate nas.pem --key nas.key --server 192.0.2.1:2083
  usher aaa test ann --peer aaa.example.org --identity nas.example.org --server 192.0.2.1:3868

By RADIUS over UDP, unless --tls or --peer say otherwise. The server must have this side among its clients or peers.")]
    Test(Box<LoginTestArgs>),
}

/// Which configuration.
#[derive(Args, Clone, Debug)]
pub(crate) struct AaaConfigArgs {
    /// The configuration file [default: /etc/usher/aaa.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// A password, or none, and how it is kept.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("source"))]
pub(crate) struct PasswordArgs {
    /// A file that holds the password; `-` is standard input.
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) password_file: Option<PathBuf>,
    /// No password: for devices that are let in by their MAC address, or users with certificates.
    #[arg(long, group = "source")]
    pub(crate) no_password: bool,
    /// How the password is kept: in clear (every method), as its NT hash (PAP, MS-CHAP, MSCHAPv2) or as its argon2
    /// hash (PAP, GTC) [default: clear].
    #[arg(long, value_enum)]
    pub(crate) hash: Option<PasswordStorage>,
}

/// How a password is kept.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum PasswordStorage {
    #[default]
    Clear,
    Nt,
    Argon2,
}

#[derive(Args, Debug)]
pub(crate) struct UserRows {
    /// As the user gives it at login.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) password: PasswordArgs,
    /// What must hold, `ATTRIBUTE OPERATOR VALUE`; may be repeated.
    #[arg(long, value_name = "ROW")]
    pub(crate) check: Vec<String>,
    /// What an accept says besides, `ATTRIBUTE = VALUE`; may be repeated.
    #[arg(long, value_name = "ROW")]
    pub(crate) reply: Vec<String>,
    /// A group; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Vec<String>,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

/// What is changed of a user; what is not named stays.
#[derive(Args, Debug)]
pub(crate) struct UserChanges {
    /// The user.
    pub(crate) name: String,
    // Before what joins its group.
    #[command(flatten)]
    pub(crate) new: PasswordArgs,
    /// Ask for a new password.
    #[arg(long, group = "source")]
    pub(crate) password: bool,
    /// What must hold, `ATTRIBUTE OPERATOR VALUE`, in place of the rows of that attribute; may be repeated.
    #[arg(long, value_name = "ROW")]
    pub(crate) check: Vec<String>,
    /// What an accept says besides, `ATTRIBUTE = VALUE`, in place of the rows of that attribute; may be repeated.
    #[arg(long, value_name = "ROW")]
    pub(crate) reply: Vec<String>,
    /// Take the rows of this attribute away, of checks and replies; may be repeated.
    #[arg(long, value_name = "ATTRIBUTE")]
    pub(crate) remove: Vec<String>,
    /// A group, in place of those before; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Vec<String>,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

/// What becomes of a user's open sessions.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OpenSessions {
    /// Ask the NASs to end the user's open sessions, too (RFC 5176).
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

Without --password-file and --no-password the program asks for the password.")]
    Add(UserRows),
    /// Change a user: what is named takes the place of what was there, all else stays.
    #[command(after_help = "Examples:
  usher aaa user set ann --password
  usher aaa user set ann --reply 'Session-Timeout = 3600' --remove Idle-Timeout
  usher aaa user set ann --group staff --disconnect

Nobody is let in any more by what held before. Sessions that are open stay, unless --disconnect is said.")]
    Set {
        #[command(flatten)]
        changes: UserChanges,
        #[command(flatten)]
        open: OpenSessions,
    },
    /// List users by name.
    #[command(after_help = "Example:\n  usher aaa user list --json")]
    List(AaaConfigArgs),
    /// Show a user; a password is not shown.
    #[command(after_help = "Example:\n  usher aaa user show ann")]
    Show(NameArgs),
    /// Remove a user; the running server forgets it at once.
    #[command(after_help = "Examples:
  usher aaa user del ann
  usher aaa user del ann --disconnect

Sessions that are open stay, unless --disconnect is said.")]
    Del {
        #[command(flatten)]
        named: NameArgs,
        #[command(flatten)]
        open: OpenSessions,
    },
    /// Import FreeRADIUS's `users` file.
    #[command(after_help = "Examples:
  usher aaa user import /etc/freeradius/3.0/users
  usher aaa user import ./users --leave-out

What means the same here is taken. What does not is named, and the command ends with code 3.
Where more would be let in without it, nothing is taken.")]
    Import(UserImport),
}

#[derive(Subcommand, Debug)]
pub(crate) enum GroupCommand {
    /// Say what holds for the users of a group, in place of what was said before.
    #[command(after_help = "Examples:
  usher aaa group set staff --reply 'Tunnel-Private-Group-Id = 20'
  usher aaa group set guests --check 'NAS-Port-Type == Wireless-802.11' --reply 'Session-Timeout = 3600'")]
    Set {
        /// Its name.
        name: String,
        /// What must hold for the group to apply, `ATTRIBUTE OPERATOR VALUE`; may be repeated.
        #[arg(long, value_name = "ROW")]
        check: Vec<String>,
        /// What an accept says besides, `ATTRIBUTE = VALUE`; may be repeated.
        #[arg(long, value_name = "ROW")]
        reply: Vec<String>,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
}

#[derive(Args, Debug)]
pub(crate) struct NameArgs {
    /// The name.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The file.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

#[derive(Args, Debug)]
pub(crate) struct UserImport {
    #[command(flatten)]
    pub(crate) import: ImportArgs,
    /// Leave out reply rows that cannot be taken, whatever they limit; the import stops at them otherwise.
    #[arg(long)]
    pub(crate) leave_out: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ClientCommand {
    /// Add a client.
    #[command(after_help = "Examples:
  usher aaa client add 192.0.2.0/24 --name switches
  usher aaa client add 2001:db8::1 --secret-file ./secret

Without --secret-file a secret is made and shown once.")]
    Add {
        /// Its address or network.
        prefix: String,
        /// What logs call it [default: the address].
        #[arg(long)]
        name: Option<String>,
        /// A file that holds the secret; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// Its Access-Requests need no Message-Authenticator: for old devices, and not safe against BlastRADIUS.
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
    Del(NameArgs),
    /// Import FreeRADIUS's `clients.conf`.
    #[command(after_help = "Example:\n  usher aaa client import /etc/freeradius/3.0/clients.conf")]
    Import(ImportArgs),
}

#[derive(Subcommand, Debug)]
pub(crate) enum SessionCommand {
    /// List open sessions, each with as much of its id as names it.
    #[command(after_help = "Examples:\n  usher aaa session list\n  usher aaa session list --user ann --json")]
    List {
        /// Those of this user.
        #[arg(long)]
        user: Option<String>,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
    /// Show all that is known of a session.
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
        /// What is to be, `ATTRIBUTE = VALUE`.
        #[arg(required = true)]
        attributes: Vec<String>,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
    /// Take sessions for ended whose NAS cannot say so, since it died or was taken away.
    #[command(after_help = "Examples:
  usher aaa session forget 5f2a01 77ab20
  usher aaa session forget --nas 192.0.2.7 --dry-run
  usher aaa session forget --nas ap-3 --user ann

The user's place and the pool's address are free again, and the record is closed as of when the session was last heard of, with the
cause Admin-Reset. No NAS is asked: to end a session that goes on, disconnect it. One that its NAS tells of all the same is open again.
Ends with code 1 where no open session is meant.")]
    Forget {
        /// Ids, as list shows them.
        #[arg(value_name = "ID", required_unless_present_any = ["nas", "user"])]
        ids: Vec<String>,
        /// Sessions of this NAS: its address, or the name of its client.
        #[arg(long, value_name = "NAME|ADDRESS", conflicts_with = "ids")]
        nas: Option<String>,
        /// Sessions of this user; with --nas those there.
        #[arg(long, value_name = "NAME", conflicts_with = "ids")]
        user: Option<String>,
        /// Show which they are, and forget none.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        config: AaaConfigArgs,
    },
}

/// A session.
#[derive(Args, Debug)]
pub(crate) struct SessionArgs {
    /// Its id: acctuniqueid or Acct-Session-Id, or the first 6 characters or more of either.
    #[arg(value_name = "ID")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    /// A user's name, or a MAC address in any notation; without it all.
    pub(crate) who: Option<String>,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LoginTestArgs {
    /// The user.
    pub(crate) name: String,
    /// pap, chap, mschapv2, eap-md5, eap-gtc, eap-mschapv2, eap-tls, peap or ttls.
    #[arg(long, default_value = "pap")]
    pub(crate) method: String,
    /// A file that holds the password; `-` is standard input. Without it the program asks.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Which server [default: the local one].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) server: Option<SocketAddr>,
    /// A file that holds the secret shared with the server [default: that of the configuration].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["over_tls", "peer"])]
    pub(crate) secret_file: Option<PathBuf>,
    /// Ask by TLS, with --ca, --certificate and --key: by RadSec, or with --peer by Diameter.
    #[arg(long = "tls")]
    pub(crate) over_tls: bool,
    /// With --peer: ask by Diameter over SCTP, where the kernel has it.
    #[arg(long = "sctp", requires = "peer", conflicts_with = "over_tls")]
    pub(crate) over_sctp: bool,
    /// Ask by Diameter, over TCP unless --tls or --sctp says otherwise: what the server calls itself (its Origin-Host).
    #[arg(long, value_name = "HOST")]
    pub(crate) peer: Option<String>,
    /// With --peer: what this side calls itself.
    #[arg(long, value_name = "HOST", default_value = "test.example.org")]
    pub(crate) identity: String,
    /// With --peer: our realm [default: what follows the first dot of --identity].
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// With --peer: Destination-Realm [default: what follows the first dot of --peer].
    #[arg(long, value_name = "REALM")]
    pub(crate) destination: Option<String>,
    /// Authorities of the server's certificate, PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// For eap-tls and for --tls: the certificate by which this side is known, with those above it, PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Its private key, PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// With --tls: the name that the server's certificate must bear.
    #[arg(long, value_name = "NAME", requires = "over_tls")]
    pub(crate) server_name: Option<String>,
    /// A Calling-Station-Id.
    #[arg(long)]
    pub(crate) mac: Option<String>,
    /// The name outside the tunnel of peap and ttls, such as `anonymous` [default: the user's].
    #[arg(long, value_name = "NAME")]
    pub(crate) outside: Option<String>,
    #[command(flatten)]
    pub(crate) config: AaaConfigArgs,
}

//! A connection to PostgreSQL, and the classification of its errors.

use super::sql;
use super::tls::{TlsConnector, TlsHandshakeError, TlsSettings};
use crate::schema::{self, MIGRATIONS, SchemaReport};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Statement};
use usher_aaa::store::StoreError;

/// The time limit of connecting.
pub(super) const CONNECT: Duration = Duration::from_secs(3);
/// The server's time limit per statement.
const STATEMENT: Duration = Duration::from_secs(5);
/// The client's time limit per reply: a hung server does not end its statement.
const ANSWER: Duration = Duration::from_secs(6);
/// The time limit of a migration, which can index millions of rows.
const MIGRATION: Duration = Duration::from_secs(600);

/// The client library's message if the server refuses TLS.
const NO_TLS: &str = "server does not support TLS";

/// A failure, and whether the connection is still usable.
#[derive(Debug)]
pub(super) struct ConnectionFailure {
    pub(super) error: StoreError,
    pub(super) broken: bool,
}

impl ConnectionFailure {
    fn from_tls_error(text: String) -> Self {
        Self { error: StoreError::Refused(text), broken: true }
    }
}

impl From<Error> for ConnectionFailure {
    fn from(error: Error) -> Self {
        let Some(db) = error.as_db_error() else {
            match TlsHandshakeError::find_handshake_fault(&error) {
                Some(fault @ TlsHandshakeError::Tls(_)) => return Self::from_tls_error(fault.to_string()),
                Some(fault) => {
                    let error = StoreError::Unavailable(fault.to_string());
                    return Self { error, broken: true };
                }
                None => {}
            }
            let mut text = error.to_string();
            // The client library has no error code for a server without TLS, so compare the text.
            if text.contains(NO_TLS) || error.source().is_some_and(|e| e.to_string() == NO_TLS) {
                return Self::from_tls_error(
                    "the server does not support TLS, which sslmode requires: set ssl = on in its postgresql.conf, or \
                     write sslmode=disable for a trusted network"
                        .to_owned(),
                );
            }
            let lost = error.is_closed() || error.source().is_some_and(|e| e.is::<io::Error>());
            if let Some(source) = error.source().filter(|s| !text.contains(&s.to_string())) {
                text = format!("{text}: {source}");
            }
            return if lost {
                Self { error: StoreError::Unavailable(text), broken: true }
            } else {
                Self { error: StoreError::Refused(text), broken: true }
            };
        };
        // Show only the message: PostgreSQL's detail can contain the row, and so a password.
        let text = format!("{}: {} (SQLSTATE {})", db.severity(), db.message(), db.code().code());
        let class = &db.code().code()[..2];
        let later = matches!(class, "08" | "40" | "53" | "57" | "58")
            || [&SqlState::LOCK_NOT_AVAILABLE, &SqlState::READ_ONLY_SQL_TRANSACTION].contains(&db.code());
        // After a failover this server is read-only. So treat the connection as broken: a new one may reach the
        // primary.
        let broken = matches!(class, "08" | "57") && *db.code() != SqlState::QUERY_CANCELED
            || *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION;
        let error = match class {
            _ if later => StoreError::Unavailable(text),
            // A data exception: the characters or the length of a value.
            "22" => StoreError::Unstorable(text),
            _ => StoreError::Refused(text),
        };
        Self { error, broken }
    }
}

impl From<StoreError> for ConnectionFailure {
    fn from(error: StoreError) -> Self {
        Self { error, broken: false }
    }
}

/// Runs an operation, which fails if the server does not reply in time.
pub(super) async fn in_time<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, ConnectionFailure>>,
) -> Result<T, ConnectionFailure> {
    match tokio::time::timeout(patience, work).await {
        Ok(result) => result,
        Err(_) => {
            let text = format!("the server has not answered for {} s", patience.as_secs());
            Err(ConnectionFailure { error: StoreError::Unavailable(text), broken: true })
        }
    }
}

/// A connection with its prepared statements.
#[derive(Debug)]
pub(super) struct PostgresConnection {
    pub(super) client: Client,
    prepared: BTreeMap<String, Statement>,
}

impl PostgresConnection {
    /// Connects and brings the tables to [`schema::VERSION`]. The current runtime drives the connection.
    pub(super) async fn open(config: &Config, tls: &TlsSettings) -> Result<Self, ConnectionFailure> {
        let client = connect_client(config, tls).await?;
        in_time(MIGRATION, migrate_schema(&client)).await?;
        // An acknowledged record must be durable, so turn synchronous_commit on if it is off. A stronger setting stays.
        let settings = format!(
            "SET statement_timeout = {}; SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'",
            STATEMENT.as_millis()
        );
        in_time(ANSWER, async { Ok(client.batch_execute(&settings).await?) }).await?;
        Ok(Self { client, prepared: BTreeMap::new() })
    }

    /// Returns the statement, prepared at its first use on this connection.
    pub(super) async fn prepared_statement(&mut self, sql: &str) -> Result<Statement, ConnectionFailure> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// True if the server has closed the connection. This sends no query.
    pub(super) async fn is_closed(&self) -> bool {
        // An idle connection task does not run. So yield to the reactor first, and then to the connection task.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.client.is_closed()
    }
}

/// Connects. Falls back to plaintext if the server has no TLS and the mode allows that.
async fn connect_client(config: &Config, tls: &TlsSettings) -> Result<Client, ConnectionFailure> {
    let connector = tls.load_connector().map_err(ConnectionFailure::from_tls_error)?;
    in_time(CONNECT, async {
        match open_client(config, connector.clone()).await {
            Err(error) if tls.allows_plaintext() && is_tls_refused(&error) => {
                let mut plain = config.clone();
                plain.ssl_mode(SslMode::Disable);
                Ok(open_client(&plain, connector).await?)
            }
            result => Ok(result?),
        }
    })
    .await
}

/// Connects and checks that these statements could run, without running one.
pub(super) async fn examine_schema(
    config: &Config,
    tls: &TlsSettings,
    statements: &[&str],
) -> Result<SchemaReport, ConnectionFailure> {
    let client = connect_client(config, tls).await?;
    with_answer_timeout(async {
        client.batch_execute("SET default_transaction_read_only = on").await?;
        let version = schema_version(&client).await?;
        let mut missing = Vec::new();
        if version == schema::VERSION {
            for sql in statements {
                match client.prepare(sql).await {
                    Ok(_) => {}
                    Err(error) => match error.as_db_error() {
                        Some(db) => missing.push(db.message().to_owned()),
                        None => return Err(error.into()),
                    },
                }
            }
            missing.dedup();
            if missing.is_empty() {
                let denied = client.query(sql::DENIED, &[]).await?;
                missing.extend(denied.iter().map(|row| {
                    let (table, right): (&str, &str) = (row.get(0), row.get(1));
                    format!("this role has no right to {right} in table {table}")
                }));
            }
        }
        Ok(SchemaReport { version, missing })
    })
    .await
}

async fn open_client(config: &Config, tls: TlsConnector) -> Result<Client, Error> {
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(async move {
        // The result is ignored: the next user of the connection sees its failure.
        let _ended = connection.await;
    });
    Ok(client)
}

/// True if the server may accept a connection without TLS instead: the handshake failed, or `pg_hba.conf` has no line
/// for a TLS connection. A wrong password does not count, and is never sent in plaintext.
fn is_tls_refused(error: &Error) -> bool {
    TlsHandshakeError::find_handshake_fault(error).is_some()
        || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// Applies the time limit of normal operation.
pub(super) async fn with_answer_timeout<T>(
    work: impl Future<Output = Result<T, ConnectionFailure>>,
) -> Result<T, ConnectionFailure> {
    in_time(ANSWER, work).await
}

async fn migrate_schema(client: &Client) -> Result<(), ConnectionFailure> {
    if schema_version(client).await? == schema::VERSION {
        return Ok(());
    }
    // The lock lets only one program migrate at a time, and the transaction releases it. Its number is `usher` in
    // ASCII.
    client
        .batch_execute(
            "BEGIN; SET LOCAL client_min_messages = warning; SELECT pg_advisory_xact_lock(504979285362)",
        )
        .await?;
    client
        .batch_execute("CREATE TABLE IF NOT EXISTS usher_schema (version bigint PRIMARY KEY)")
        .await
        .map_err(not_allowed)?;
    let found = schema_version(client).await?;
    for step in MIGRATIONS.iter().filter(|step| step.version > found) {
        client.batch_execute(&schema::postgres_migration_script(step)).await.map_err(not_allowed)?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(())
}

/// Returns the version of the tables. 0: the tables are not ours.
async fn schema_version(client: &Client) -> Result<i64, ConnectionFailure> {
    let there = client.query_one("SELECT to_regclass('usher_schema') IS NOT NULL", &[]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(0);
    }
    let found: i64 =
        client.query_one("SELECT coalesce(max(version), 0)::bigint FROM usher_schema", &[]).await?.get(0);
    if found > schema::VERSION {
        return Err(StoreError::Refused(schema::newer_version_text(found)).into());
    }
    Ok(found)
}

/// Classifies the error of a migration step.
fn not_allowed(error: Error) -> ConnectionFailure {
    match error.as_db_error() {
        Some(db) if *db.code() == SqlState::INSUFFICIENT_PRIVILEGE => StoreError::Refused(format!(
            "tables are missing and this role may not create them ({}): let their owner run the output of `usher aaa \
             schema` once, or let the role create tables",
            db.message()
        ))
        .into(),
        Some(db) if *db.code() == SqlState::UNIQUE_VIOLATION => {
            StoreError::Refused(schema::duplicate_sessions_message(db.message())).into()
        }
        _ => error.into(),
    }
}

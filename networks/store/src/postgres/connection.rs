//! A connection to PostgreSQL, and what its errors mean.

use super::sql;
use super::tls::{HandshakeFault, TlsConnector, TlsSettings};
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

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(3);
/// How long the server may work on one statement.
const STATEMENT: Duration = Duration::from_secs(5);
/// How long its answer is waited for: a server that has stopped answering does not end its statement either.
const ANSWER: Duration = Duration::from_secs(6);
/// How long the tables may take to be brought forward; an index over millions of rows is made then.
const MIGRATION: Duration = Duration::from_secs(600);

/// What the client library says where the server refuses TLS.
const NO_TLS: &str = "server does not support TLS";

/// What went wrong, and whether the connection can still be used.
#[derive(Debug)]
pub(super) struct ConnectionFailure {
    pub(super) error: StoreError,
    pub(super) broken: bool,
}

impl ConnectionFailure {
    fn from_tls(text: String) -> Self {
        Self { error: StoreError::Refused(text), broken: true }
    }
}

impl From<Error> for ConnectionFailure {
    fn from(error: Error) -> Self {
        let Some(db) = error.as_db_error() else {
            match HandshakeFault::find_in_error(&error) {
                Some(fault @ HandshakeFault::Tls(_)) => return Self::from_tls(fault.to_string()),
                Some(fault) => {
                    let error = StoreError::Unavailable(fault.to_string());
                    return Self { error, broken: true };
                }
                None => {}
            }
            let mut text = error.to_string();
            // The library has no name for it.
            if text.contains(NO_TLS) || error.source().is_some_and(|e| e.to_string() == NO_TLS) {
                return Self::from_tls(
                    "the server does not speak TLS, which sslmode demands: set ssl = on in its postgresql.conf, or \
                     write sslmode=disable where nobody listens on the way to it"
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
        // The detail may hold the row, and with it a password; so only the message is shown.
        let text = format!("{}: {} (SQLSTATE {})", db.severity(), db.message(), db.code().code());
        let class = &db.code().code()[..2];
        let later = matches!(class, "08" | "40" | "53" | "57" | "58")
            || [&SqlState::LOCK_NOT_AVAILABLE, &SqlState::READ_ONLY_SQL_TRANSACTION].contains(&db.code());
        // A server that only reads is the wrong one of several after a failover: the next connection may find the right one.
        let broken = matches!(class, "08" | "57") && *db.code() != SqlState::QUERY_CANCELED
            || *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION;
        let error = match class {
            _ if later => StoreError::Unavailable(text),
            // A value: its characters, its length.
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

/// The work, or a failure where the server does not answer in time.
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

/// A connection with the statements that it has prepared.
#[derive(Debug)]
pub(super) struct PostgresConnection {
    pub(super) client: Client,
    prepared: BTreeMap<String, Statement>,
}

impl PostgresConnection {
    /// Connects and brings the tables to [`schema::VERSION`]. The connection is driven by the runtime that this runs in.
    pub(super) async fn open(config: &Config, tls: &TlsSettings) -> Result<Self, ConnectionFailure> {
        let client = connect_client(config, tls).await?;
        in_time(MIGRATION, migrate_schema(&client)).await?;
        // Acknowledged means durable, whatever the server's default is; a stronger one stays.
        let settings = format!(
            "SET statement_timeout = {}; SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'",
            STATEMENT.as_millis()
        );
        in_time(ANSWER, async { Ok(client.batch_execute(&settings).await?) }).await?;
        Ok(Self { client, prepared: BTreeMap::new() })
    }

    /// The statement, prepared at its first use on this connection.
    pub(super) async fn prepared_statement(&mut self, sql: &str) -> Result<Statement, ConnectionFailure> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Whether the server has closed the connection meanwhile; a short look, not a question to the server.
    pub(super) async fn is_closed(&self) -> bool {
        // Nothing drives the connection while nobody waits for it: the reactor's turn, then the connection's.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.client.is_closed()
    }
}

/// Connects, and without TLS where the server has none and none is demanded.
async fn connect_client(config: &Config, tls: &TlsSettings) -> Result<Client, ConnectionFailure> {
    let connector = tls.load_connector().map_err(ConnectionFailure::from_tls)?;
    in_time(CONNECT, async {
        match open_client(config, connector.clone()).await {
            Err(error) if tls.allows_plaintext() && is_of_tls(&error) => {
                let mut plain = config.clone();
                plain.ssl_mode(SslMode::Disable);
                Ok(open_client(&plain, connector).await?)
            }
            result => Ok(result?),
        }
    })
    .await
}

/// Connects and looks whether these statements can be run, without running one.
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
                    format!("this role may not {right} in table {table}")
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
        // What ends the connection is seen by whoever uses it next.
        let _ended = connection.await;
    });
    Ok(client)
}

/// Whether the server may take a connection without TLS that it did not take with it: the handshake failed, or its
/// `pg_hba.conf` has no line for such a connection. A wrong password is none of these: it is not offered in clear.
fn is_of_tls(error: &Error) -> bool {
    HandshakeFault::find_in_error(error).is_some()
        || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// The patience for an answer in daily work.
pub(super) async fn with_answer_timeout<T>(
    work: impl Future<Output = Result<T, ConnectionFailure>>,
) -> Result<T, ConnectionFailure> {
    in_time(ANSWER, work).await
}

async fn migrate_schema(client: &Client) -> Result<(), ConnectionFailure> {
    if schema_version(client).await? == schema::VERSION {
        return Ok(());
    }
    // One program at a time; the lock goes with the transaction. The number is `usher` in ASCII.
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
        client.batch_execute(&schema::postgres_step(step)).await.map_err(not_allowed)?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(())
}

/// The version of the tables; 0 where there is none of ours.
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

/// What a failed step means.
fn not_allowed(error: Error) -> ConnectionFailure {
    match error.as_db_error() {
        Some(db) if *db.code() == SqlState::INSUFFICIENT_PRIVILEGE => StoreError::Refused(format!(
            "the tables are not all there and this role may not make them ({}): let their owner run the script of \
             usher's tables for PostgreSQL once, or let the role make tables",
            db.message()
        ))
        .into(),
        Some(db) if *db.code() == SqlState::UNIQUE_VIOLATION => {
            StoreError::Refused(schema::not_unique(db.message())).into()
        }
        _ => error.into(),
    }
}

//! The store in a PostgreSQL server.

mod connection;
mod sql;
mod tls;
mod url;

use crate::rows::{self, CellValue, ColumnKind, SESSION};
use crate::schema::SchemaReport;
use connection::{ConnectionFailure, PostgresConnection, with_answer_timeout};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres::types::ToSql;
use usher_aaa::store::{
    AttributeRow, ClientRequirement, ClientRow, GroupRows, SessionRow, Store, StoreChange, StoreError,
    UserRows,
};

/// The first and the longest delay between connection attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));
/// A connection idle for this long is checked before use.
const IDLE: Duration = Duration::from_millis(100);
/// The users per statement of [`Store::put_users`].
const USERS_AT_ONCE: usize = 5_000;

/// A store in a PostgreSQL server. It has one connection, made at the first use and again after a failure. Do not use
/// it within an asynchronous runtime: it has its own, which bounds each wait for a reply.
pub struct PostgresStore {
    config: Config,
    tls: tls::TlsSettings,
    /// The server's address, for messages.
    location: String,
    runtime: Runtime,
    conn: Option<PostgresConnection>,
    /// True if a connection to this server has succeeded before, by this store or another.
    proven: bool,
    used: Instant,
    /// The time of the next attempt, the last error, and the delay after the next failure.
    closed: Option<(Instant, StoreError)>,
    pause: Duration,
    put_sessions: String,
    session: String,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("place", &self.location)
            .field("connected", &self.conn.is_some())
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Creates a store that connects at its first use.
    ///
    /// `url` has PostgreSQL's syntax: `postgresql://user:password@host/database` or `host=… user=… dbname=…`. A host
    /// that begins with `/` is the folder of a Unix socket. Several hosts are tried in order.
    ///
    /// `sslmode`, `sslrootcert`, `sslcert` and `sslkey` have libpq's meaning (PostgreSQL manual, "SSL Support"), with
    /// two exceptions. No file in the home folder is used, and `allow` does not offer plaintext first. The files are
    /// read at each connection. A Unix socket has no TLS.
    ///
    /// # Errors
    /// The URL cannot be parsed, asks for impossible TLS settings, or names files that cannot be used.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let (asked, rest) = url::split_tls_parameters(url);
        let mut config: Config = rest.parse().map_err(|e: tokio_postgres::Error| {
            let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            StoreError::Refused(format!(
                "cannot parse the PostgreSQL URL ({why}): write postgresql://user:password@host/database"
            ))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host_path("/var/run/postgresql");
        }
        if config.get_hosts().is_empty() {
            // If the URL has no host name, the certificate must contain the address instead.
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        let mut tls = tls::TlsSettings::new(asked).map_err(postgres_url_error)?;
        let unix = |host: &Host| matches!(host, Host::Unix(_));
        if config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(unix) {
            tls = tls::TlsSettings::NONE;
        }
        config.ssl_mode(tls.ssl_mode());
        tls.load_connector().map_err(postgres_url_error)?;
        config.connect_timeout(connection::CONNECT).tcp_user_timeout(Duration::from_secs(6));
        if config.get_application_name().is_none() {
            config.application_name("usher");
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| StoreError::Unavailable(format!("cannot start the runtime for PostgreSQL: {e}")))?;
        Ok(Self {
            location: server_name(&config),
            config,
            tls,
            runtime,
            conn: None,
            proven: false,
            used: Instant::now(),
            closed: None,
            pause: PAUSES.0,
            put_sessions: sql::put_sessions(),
            session: sql::select_session(),
        })
    }

    /// Marks the server as proven: it has accepted such a connection before. A later refusal, such as a changed
    /// password, then counts as an outage.
    #[must_use]
    pub fn with_proven_server(self) -> Self {
        Self { proven: true, ..self }
    }

    /// Like [`PostgresStore::new`], but connects and brings the tables to [`crate::SCHEMA_VERSION`]. Creates missing
    /// tables, and migrates FreeRADIUS's tables or an older version of ours.
    ///
    /// # Errors
    /// As for [`PostgresStore::new`]. The server is unreachable or refuses, the tables have a newer version, or the
    /// role lacks the rights to create missing parts.
    pub fn connect(url: &str) -> Result<Self, StoreError> {
        let mut store = Self::new(url)?;
        store.ensure_connected()?;
        Ok(store)
    }

    /// Examines a database without changes.
    ///
    /// # Errors
    /// As for [`PostgresStore::new`]. The server is unreachable or refuses, or the tables have a newer version.
    pub fn examine_schema(url: &str) -> Result<SchemaReport, StoreError> {
        let store = Self::new(url)?;
        let statements =
            [sql::USER, sql::CLIENTS, &store.session, &store.put_sessions, sql::LOGINS, sql::RESTARTED];
        let found =
            store.runtime.block_on(connection::examine_schema(&store.config, &store.tls, &statements));
        found.map_err(|failure| store.add_server_name(failure))
    }

    /// Makes sure that there is a live connection. Between attempts to reach the server, returns an error at once.
    fn ensure_connected(&mut self) -> Result<(), StoreError> {
        if let Some(conn) = &self.conn {
            if self.used.elapsed() < IDLE || !self.runtime.block_on(conn.is_closed()) {
                return Ok(());
            }
            self.conn = None;
        }
        if let Some((until, error)) = &self.closed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        match self.runtime.block_on(PostgresConnection::open(&self.config, &self.tls)) {
            Ok(conn) => {
                self.conn = Some(conn);
                self.proven = true;
                self.closed = None;
                self.pause = PAUSES.0;
                Ok(())
            }
            Err(failure) => {
                let error = match self.add_server_name(failure) {
                    // Credentials that once worked will be corrected. So treat this refusal as an outage, and keep
                    // pending work.
                    StoreError::Refused(text) if self.proven => StoreError::Unavailable(text),
                    error => error,
                };
                self.closed = Some((Instant::now() + self.pause, error.clone()));
                self.pause = (self.pause * 2).min(PAUSES.1);
                Err(error)
            }
        }
    }

    fn add_server_name(&self, failure: ConnectionFailure) -> StoreError {
        match failure.error {
            StoreError::Unavailable(text) => {
                StoreError::Unavailable(format!("PostgreSQL at {}: {text}", self.location))
            }
            StoreError::Refused(text) => {
                StoreError::Refused(format!("PostgreSQL at {}: {text}", self.location))
            }
            StoreError::Unstorable(text) => {
                StoreError::Unstorable(format!("PostgreSQL at {}: {text}", self.location))
            }
        }
    }

    /// Runs an operation on a live connection. Drops a broken connection.
    fn with_connection<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut PostgresConnection) -> Result<T, ConnectionFailure>,
    ) -> Result<T, StoreError> {
        self.ensure_connected()?;
        let Some(conn) = &mut self.conn else {
            return Err(StoreError::Unavailable("no connection".to_owned()));
        };
        let result = self.runtime.block_on(with_answer_timeout(work(conn)));
        self.used = Instant::now();
        result.map_err(|failure| {
            if failure.broken {
                self.conn = None;
            }
            self.add_server_name(failure)
        })
    }

    /// Like [`PostgresStore::with_connection`], for reads: retries once on a new connection if the old one was
    /// broken.
    fn read_with_retry<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut PostgresConnection) -> Result<T, ConnectionFailure>,
    ) -> Result<T, StoreError> {
        let fresh = self.conn.is_none();
        match self.with_connection(&mut work) {
            Err(StoreError::Unavailable(_)) if self.conn.is_none() && !fresh => self.with_connection(work),
            result => result,
        }
    }

    fn put_batch(&mut self, users: &BTreeMap<Cow<'_, str>, &UserRows>) -> Result<(), StoreError> {
        let names: Vec<&str> = users.keys().map(AsRef::as_ref).collect();
        let check = attribute_arrays(users.iter().map(|(name, user)| (name.as_ref(), user.check.as_slice())));
        let reply = attribute_arrays(users.iter().map(|(name, user)| (name.as_ref(), user.reply.as_slice())));
        let joined = users.iter().flat_map(|(name, user)| {
            user.groups
                .iter()
                .zip(1_i32..)
                .map(move |(group, n)| (name.as_ref(), rows::storable_text(&group.name), n))
        });
        let (mut who, mut groups, mut priorities) = (Vec::new(), Vec::new(), Vec::new());
        for (name, group, priority) in joined {
            who.push(name);
            groups.push(group);
            priorities.push(priority);
        }
        self.with_connection(async |conn: &mut PostgresConnection| {
            let (names, check, reply) = (&names, &check, &reply);
            let (who, groups, priorities) = (&who, &groups, &priorities);
            let statement = conn.prepared_statement(sql::PUT_USERS).await?;
            let values: [&(dyn ToSql + Sync); 12] = [
                names, &check.0, &check.1, &check.2, &check.3, &reply.0, &reply.1, &reply.2, &reply.3, who,
                groups, priorities,
            ];
            conn.client.execute(&statement, &values).await?;
            Ok(())
        })
    }
}

fn postgres_url_error(text: String) -> StoreError {
    StoreError::Refused(format!("the PostgreSQL URL: {text}"))
}

fn server_name(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => config.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("{host}:{port}/{}", config.get_dbname().or(config.get_user()).unwrap_or_default())
}

/// Rows of an attribute table as arrays: name, attribute, operator, value.
type AttributeArrays<'a> = (Vec<&'a str>, Vec<Cow<'a, str>>, Vec<&'static str>, Vec<Cow<'a, str>>);

fn attribute_arrays<'a>(all: impl Iterator<Item = (&'a str, &'a [AttributeRow])>) -> AttributeArrays<'a> {
    let mut arrays = AttributeArrays::default();
    for (name, row) in all.flat_map(|(name, rows)| rows.iter().map(move |row| (name, row))) {
        arrays.0.push(name);
        arrays.1.push(rows::storable_text(&row.attribute));
        arrays.2.push(row.op.as_str());
        arrays.3.push(rows::escape_value(&row.attribute, &row.value));
    }
    arrays
}

/// One column of many sessions.
enum SqlColumn<'a> {
    Text(Vec<Option<Cow<'a, str>>>),
    Number(Vec<Option<i64>>),
}

impl SqlColumn<'_> {
    fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Text(all) => all,
            Self::Number(all) => all,
        }
    }
}

/// Logins as arrays: user name, reply, seconds, calling station.
type LoginArrays<'a> = (Vec<Cow<'a, str>>, Vec<&'static str>, Vec<i64>, Vec<Cow<'a, str>>);

/// Changes between two restarts of a NAS, which can be written in any order.
#[derive(Default)]
struct StoreChangeBatch<'a> {
    /// The last state of each session, in the order of keys: two writers then lock rows in the same order.
    sessions: BTreeMap<&'a str, &'a SessionRow>,
    logins: LoginArrays<'a>,
    /// The restart that ends it: NAS, seconds, cause.
    restart: Option<(String, i64, Cow<'a, str>)>,
}

impl<'a> StoreChangeBatch<'a> {
    fn split_into_change_runs(changes: &'a [StoreChange]) -> Vec<Self> {
        let mut runs = vec![Self::default()];
        for change in changes {
            let last = runs.len() - 1;
            let run = &mut runs[last];
            match change {
                StoreChange::Session(row) => drop(run.sessions.insert(&row.acctuniqueid, row)),
                StoreChange::Login { username, reply, decided_at: at, callingstationid } => {
                    run.logins.0.push(rows::storable_text(username));
                    run.logins.1.push(reply);
                    run.logins.2.push(rows::unix_seconds(*at));
                    run.logins.3.push(rows::storable_text(callingstationid));
                }
                StoreChange::NasRestarted { nas, restarted_at: at, cause } => {
                    run.restart =
                        Some((nas.to_string(), rows::unix_seconds(*at), rows::storable_text(cause)));
                    runs.push(Self::default());
                }
            }
        }
        runs
    }

    fn session_columns(&self) -> Vec<SqlColumn<'a>> {
        let column = |(_, kind): (&str, ColumnKind)| match kind {
            ColumnKind::Number | ColumnKind::Time => {
                SqlColumn::Number(Vec::with_capacity(self.sessions.len()))
            }
            _ => SqlColumn::Text(Vec::with_capacity(self.sessions.len())),
        };
        let mut columns: Vec<_> = SESSION.map(column).into();
        for row in self.sessions.values() {
            for (column, cell) in columns.iter_mut().zip(rows::session_cells(row)) {
                match (column, cell) {
                    (SqlColumn::Text(all), CellValue::Text(text)) => all.push(Some(text)),
                    (SqlColumn::Text(all), _) => all.push(None),
                    (SqlColumn::Number(all), CellValue::Number(n)) => all.push(Some(n)),
                    (SqlColumn::Number(all), _) => all.push(None),
                }
            }
        }
        columns
    }

    async fn apply_change_run(
        &self,
        conn: &mut PostgresConnection,
        put_sessions: &str,
    ) -> Result<(), ConnectionFailure> {
        if !self.sessions.is_empty() {
            let statement = conn.prepared_statement(put_sessions).await?;
            let columns = self.session_columns();
            let values: Vec<_> = columns.iter().map(SqlColumn::as_sql).collect();
            conn.client.execute(&statement, &values).await?;
        }
        if !self.logins.0.is_empty() {
            let statement = conn.prepared_statement(sql::LOGINS).await?;
            let (names, replies, times, stations) = &self.logins;
            conn.client.execute(&statement, &[names, replies, times, stations]).await?;
        }
        if let Some((nas, at, cause)) = &self.restart {
            let statement = conn.prepared_statement(sql::RESTARTED).await?;
            conn.client.execute(&statement, &[nas, at, cause]).await?;
        }
        Ok(())
    }

    /// Returns the number of its statements.
    fn statement_count(&self) -> usize {
        [!self.sessions.is_empty(), !self.logins.0.is_empty(), self.restart.is_some()]
            .iter()
            .filter(|b| **b)
            .count()
    }
}

/// Writes all runs, or none.
async fn write_record_batches(
    conn: &mut PostgresConnection,
    runs: &[StoreChangeBatch<'_>],
    put_sessions: &str,
) -> Result<(), ConnectionFailure> {
    let many = runs.iter().map(StoreChangeBatch::statement_count).sum::<usize>() > 1;
    if !many {
        // A single statement is a transaction by itself.
        for run in runs {
            run.apply_change_run(conn, put_sessions).await?;
        }
        return Ok(());
    }
    let made = async {
        conn.client.batch_execute("BEGIN").await?;
        for run in runs {
            run.apply_change_run(conn, put_sessions).await?;
        }
        conn.client.batch_execute("COMMIT").await?;
        Ok(())
    };
    // Dropping the connection rolls back its transaction.
    made.await.map_err(|failure: ConnectionFailure| ConnectionFailure { broken: true, ..failure })
}

fn read_session(row: &tokio_postgres::Row) -> Result<SessionRow, ConnectionFailure> {
    let mut cells = [const { CellValue::Null }; SESSION.len()];
    for (index, (cell, (_, kind))) in cells.iter_mut().zip(SESSION).enumerate() {
        *cell = match kind {
            ColumnKind::Number | ColumnKind::Time => {
                row.try_get::<_, Option<i64>>(index)?.map_or(CellValue::Null, CellValue::Number)
            }
            _ => row
                .try_get::<_, Option<&str>>(index)?
                .map_or(CellValue::Null, |text| CellValue::Text(Cow::Borrowed(text))),
        };
    }
    Ok(rows::session_from_cells(cells))
}

/// The round trips to PostgreSQL per user lookup, on a connection with the prepared statement. A lookup waits this
/// many times the round-trip time.
pub const LOOKUP_ROUND_TRIPS: u32 = 1;

/// Parses the result of [`sql::USER`].
fn read_user(answer: &[tokio_postgres::Row]) -> Result<Option<UserRows>, ConnectionFailure> {
    let mut user = UserRows::default();
    for row in answer {
        let kind: i32 = row.try_get(0)?;
        let group: &str = row.try_get(1)?;
        let attribute = || -> Result<AttributeRow, ConnectionFailure> {
            // In a table that another program created, this column may contain NULL.
            let text = |column| {
                Ok::<_, ConnectionFailure>(row.try_get::<_, Option<String>>(column)?.unwrap_or_default())
            };
            Ok(rows::parse_row(text(2)?, &text(3)?, text(4)?))
        };
        let of_group = user.groups.iter_mut().find(|g| g.name == group);
        match (kind, of_group) {
            (0, _) => user.check.push(attribute()?),
            (1, _) => user.reply.push(attribute()?),
            (2, None) => user.groups.push(GroupRows { name: group.to_owned(), ..GroupRows::default() }),
            (3, Some(rows)) => rows.check.push(attribute()?),
            (4, Some(rows)) => rows.reply.push(attribute()?),
            _ => {}
        }
    }
    Ok((!answer.is_empty()).then_some(user))
}

impl Store for PostgresStore {
    fn find_user(&mut self, name: &str) -> Result<Option<UserRows>, StoreError> {
        let name = rows::check_name(name)?;
        self.read_with_retry(async |conn: &mut PostgresConnection| {
            let statement = conn.prepared_statement(sql::USER).await?;
            read_user(&conn.client.query(&statement, &[&name]).await?)
        })
    }

    fn write_changes(&mut self, changes: &[StoreChange]) -> Result<(), StoreError> {
        let runs = StoreChangeBatch::split_into_change_runs(changes);
        let put_sessions = std::mem::take(&mut self.put_sessions);
        let result = self.with_connection(async |conn: &mut PostgresConnection| {
            let (runs, put_sessions) = (&runs, &put_sessions);
            write_record_batches(conn, runs, put_sessions).await
        });
        self.put_sessions = put_sessions;
        result
    }

    fn open_sessions(&mut self, each: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
        let declare = sql::open_sessions();
        self.with_connection(async |conn: &mut PostgresConnection| {
            let declare = &declare;
            Ok(conn.client.batch_execute(declare).await?)
        })?;
        loop {
            let page = self.with_connection(async |conn: &mut PostgresConnection| {
                Ok(conn.client.query(sql::FETCH, &[]).await?)
            });
            let page = page.inspect_err(|_| self.conn = None)?;
            if page.is_empty() {
                break;
            }
            for row in &page {
                each(read_session(row).map_err(|failure| self.add_server_name(failure))?);
            }
        }
        self.with_connection(async |conn: &mut PostgresConnection| {
            Ok(conn.client.batch_execute("COMMIT").await?)
        })
    }

    fn find_session(&mut self, acctuniqueid: &str) -> Result<Option<SessionRow>, StoreError> {
        let id = rows::storable_text(acctuniqueid);
        let select = self.session.clone();
        self.read_with_retry(async |conn: &mut PostgresConnection| {
            let (id, select) = (id.as_ref(), &select);
            let statement = conn.prepared_statement(select).await?;
            conn.client.query_opt(&statement, &[&id]).await?.as_ref().map(read_session).transpose()
        })
    }

    fn list_clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
        let client = |row: &tokio_postgres::Row| {
            let said = |i| {
                Ok::<_, ConnectionFailure>(row.try_get::<_, Option<&str>>(i)?.unwrap_or_default().to_owned())
            };
            let demand = |i| said(i).map(|text| ClientRequirement::parse(text.trim()).unwrap_or_default());
            Ok(ClientRow {
                nasname: said(0)?,
                shortname: said(1)?,
                kind: said(2)?,
                secret: said(3)?,
                description: said(4)?,
                require_message_authenticator: demand(5)?,
                limit_proxy_state: demand(6)?,
                server: said(7)?,
            })
        };
        self.read_with_retry(async |conn: &mut PostgresConnection| {
            let statement = conn.prepared_statement(sql::CLIENTS).await?;
            conn.client.query(&statement, &[]).await?.iter().map(client).collect()
        })
    }

    fn user_names(&mut self, after: Option<&str>, most: u32) -> Result<Vec<String>, StoreError> {
        let after = rows::storable_text(after.unwrap_or_default());
        self.read_with_retry(async |conn: &mut PostgresConnection| {
            let after = after.as_ref();
            let statement = conn.prepared_statement(sql::USER_NAMES).await?;
            let answer = conn.client.query(&statement, &[&after, &i64::from(most)]).await?;
            answer.iter().map(|row| Ok(row.try_get(0)?)).collect()
        })
    }

    fn put_user(&mut self, name: &str, user: &UserRows) -> Result<(), StoreError> {
        self.put_batch(&BTreeMap::from([(rows::storable_text(name), user)]))
    }

    fn put_users(&mut self, users: &mut dyn Iterator<Item = (String, UserRows)>) -> Result<u64, StoreError> {
        let mut count = 0;
        loop {
            let some: Vec<_> = users.take(USERS_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(count);
            }
            self.put_batch(&some.iter().map(|(name, user)| (rows::storable_text(name), user)).collect())?;
            count += some.len() as u64;
        }
    }

    fn delete_user(&mut self, name: &str) -> Result<bool, StoreError> {
        let name = rows::storable_text(name);
        self.with_connection(async |conn: &mut PostgresConnection| {
            let name = name.as_ref();
            let statement = conn.prepared_statement(sql::DELETE_USER).await?;
            Ok(conn.client.query_one(&statement, &[&name]).await?.try_get::<_, i64>(0)? > 0)
        })
    }

    fn put_group(&mut self, group: &GroupRows) -> Result<(), StoreError> {
        let name = rows::storable_text(&group.name);
        let check = attribute_arrays(std::iter::once(("", group.check.as_slice())));
        let reply = attribute_arrays(std::iter::once(("", group.reply.as_slice())));
        self.with_connection(async |conn: &mut PostgresConnection| {
            let (name, check, reply) = (name.as_ref(), &check, &reply);
            let statement = conn.prepared_statement(sql::PUT_GROUP).await?;
            let values: [&(dyn ToSql + Sync); 7] =
                [&name, &check.1, &check.2, &check.3, &reply.1, &reply.2, &reply.3];
            conn.client.execute(&statement, &values).await?;
            Ok(())
        })
    }

    fn put_client(&mut self, client: &ClientRow) -> Result<(), StoreError> {
        let values = [
            rows::storable_text(&client.nasname),
            rows::storable_text(&client.shortname),
            rows::storable_text(&client.kind),
            rows::storable_text(&client.secret),
            rows::storable_text(&client.description),
            Cow::Borrowed(client.require_message_authenticator.as_str()),
            Cow::Borrowed(client.limit_proxy_state.as_str()),
        ];
        self.with_connection(async |conn: &mut PostgresConnection| {
            let values = values.each_ref().map(|v| v as &(dyn ToSql + Sync));
            let statement = conn.prepared_statement(sql::PUT_CLIENT).await?;
            conn.client.execute(&statement, &values).await?;
            Ok(())
        })
    }

    fn delete_client(&mut self, nasname: &str) -> Result<bool, StoreError> {
        let name = rows::storable_text(nasname);
        self.with_connection(async |conn: &mut PostgresConnection| {
            let name = name.as_ref();
            let statement = conn.prepared_statement(sql::DELETE_CLIENT).await?;
            Ok(conn.client.execute(&statement, &[&name]).await? > 0)
        })
    }
}

//! The store in a file: embedded SQLite.

use crate::rows::{self, CellValue, ColumnKind, SESSION};
use crate::schema::{self, MIGRATIONS, SchemaReport};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, ToSql, Transaction, TransactionBehavior, params,
};
use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::time::Duration;
use usher_aaa::store::{
    AttributeRow, ClientRequirement, ClientRow, GroupRows, SessionRow, Store, StoreChange, StoreError,
    UserRows,
};

/// The time limit for a lock before [`StoreError::Unavailable`].
const BUSY: Duration = Duration::from_secs(5);
/// The users per transaction of [`Store::put_users`], so that other writers get their turn.
const USERS_AT_ONCE: usize = 10_000;

/// A store in an SQLite file. Each value is a connection. Any number can open one file, in one or several programs:
/// readers never wait, writers wait for each other.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    sql: SqlStatements,
}

/// Statements that are built once.
#[derive(Debug)]
struct SqlStatements {
    put_session: String,
    session: String,
    open_sessions: String,
}

const GROUPS: &str = "SELECT groupname FROM radusergroup WHERE username = ?1 ORDER BY priority, id";
/// If a foreign table lacks the column `server`, the name resolves to the outer NULL.
const CLIENTS: &str = "SELECT n.nasname, n.shortname, n.type, n.secret, n.description, n.require_ma, n.limit_proxy_state, \
    (SELECT server FROM nas AS same WHERE same.id = n.id) FROM nas AS n, (SELECT NULL AS server) AS lacking ORDER BY n.id";
const RESTARTED: &str = "UPDATE radacct SET acctstoptime = ?2, acctupdatetime = ?2, acctterminatecause = ?3, \
    acctsessiontime = coalesce(max(?2 - acctstarttime, coalesce(acctsessiontime, 0)), acctsessiontime) \
    WHERE acctstoptime IS NULL AND nasipaddress = ?1 AND coalesce(acctstarttime <= ?2, 1) AND usher_diameter_origin = ''";
const LOGIN: &str = "INSERT INTO radpostauth (username, reply, authdate, callingstationid) \
    VALUES (?1, ?2, datetime(?3, 'unixepoch'), ?4)";
/// The attribute tables, each with the column of the user or group name.
const ATTRIBUTES: [(&str, &str); 4] = [
    ("radcheck", "username"),
    ("radreply", "username"),
    ("radgroupcheck", "groupname"),
    ("radgroupreply", "groupname"),
];

impl SqlStatements {
    fn new() -> Self {
        let marks = vec!["?"; SESSION.len()].join(", ");
        let column = |(name, kind): (&str, ColumnKind)| match kind {
            // FreeRADIUS writes seconds. Scripts and older versions write dates.
            ColumnKind::Time => format!(
                "CASE typeof({name}) WHEN 'text' THEN CAST(strftime('%s', {name}) AS INTEGER) ELSE {name} END"
            ),
            _ => name.to_owned(),
        };
        let columns = SESSION.map(column).join(", ");
        Self {
            put_session: format!(
                "INSERT INTO radacct ({}) VALUES ({marks}) ON CONFLICT (acctuniqueid) DO UPDATE SET {}",
                rows::column_names(", "),
                rows::session_update_clause()
            ),
            session: format!("SELECT {columns} FROM radacct WHERE acctuniqueid = ?1"),
            open_sessions: format!("SELECT {columns} FROM radacct WHERE acctstoptime IS NULL"),
        }
    }
}

impl ToSql for CellValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            CellValue::Null => ToSqlOutput::Owned(Value::Null),
            CellValue::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            CellValue::Number(n) => ToSqlOutput::Owned(Value::Integer(*n)),
        })
    }
}

fn is_permanent_refusal(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::OperationInterrupted
        )
    )
}

fn store_error(error: rusqlite::Error) -> StoreError {
    let text = format!("SQLite: {error}");
    if is_permanent_refusal(&error) { StoreError::Refused(text) } else { StoreError::Unavailable(text) }
}

impl SqliteStore {
    /// Opens the file. Creates it if missing, readable by its owner only, and brings its tables to
    /// [`crate::SCHEMA_VERSION`].
    ///
    /// # Errors
    /// The file cannot be opened or created, is not a database, has a newer version, or stays locked for seconds.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let open = || {
            create_file(path).map_err(open_error)?;
            let (direct, flags) = resolve_database_path(path).map_err(open_error)?;
            let mut connection = Connection::open_with_flags(direct, flags).map_err(store_error)?;
            configure_connection(&connection).map_err(store_error)?;
            migrate_schema(&mut connection)?;
            connection.set_prepared_statement_cache_capacity(64);
            Ok(Self { connection, sql: SqlStatements::new() })
        };
        open().map_err(|error| add_path_to_error(path, error))
    }

    /// Examines a file without changes. `None`: it is absent, and a server would create it.
    ///
    /// # Errors
    /// As for [`SqliteStore::open`].
    pub fn examine_schema(path: impl AsRef<Path>) -> Result<Option<SchemaReport>, StoreError> {
        let path = path.as_ref();
        let look = || {
            if !path.try_exists().map_err(open_error)? {
                return Ok(None);
            }
            let (direct, flags) = resolve_database_path(path).map_err(open_error)?;
            let flags = flags & !OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_READ_ONLY;
            let connection = Connection::open_with_flags(direct, flags).map_err(store_error)?;
            connection.busy_timeout(BUSY).map_err(store_error)?;
            let version = schema_version(&connection).map_err(store_error)?;
            if version > schema::VERSION {
                return Err(StoreError::Refused(schema::newer_version_text(version)));
            }
            let missing =
                if version == schema::VERSION { missing_schema_objects(&connection)? } else { Vec::new() };
            Ok(Some(SchemaReport { version, missing }))
        };
        look().map_err(|error| add_path_to_error(path, error))
    }

    fn begin_read(&mut self) -> Result<Transaction<'_>, StoreError> {
        self.connection.transaction().map_err(store_error)
    }
}

/// Begins a write and takes the lock at once. A transaction that reads first could not wait for another writer.
fn begin_write(connection: &mut Connection) -> Result<Transaction<'_>, StoreError> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(store_error)
}

/// Adds the path to an error.
fn add_path_to_error(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(text) => StoreError::Unavailable(format!("{}: {text}", path.display())),
        StoreError::Refused(text) => StoreError::Refused(format!("{}: {text}", path.display())),
        StoreError::Unstorable(text) => StoreError::Unstorable(format!("{}: {text}", path.display())),
    }
}

fn open_error(error: io::Error) -> StoreError {
    StoreError::Refused(format!("cannot be opened: {error}"))
}

/// Lists the parts that a server's statements need and the tables lack.
fn missing_schema_objects(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let SqlStatements { put_session, session, open_sessions } = SqlStatements::new();
    let attributes = ATTRIBUTES.map(|(table, key)| select_attributes_sql(table, key));
    let others = [GROUPS, CLIENTS, RESTARTED, LOGIN].map(str::to_owned);
    let mut missing = Vec::new();
    for sql in attributes.into_iter().chain(others).chain([put_session, session, open_sessions]) {
        let what = match connection.prepare(&sql) {
            Ok(_) => continue,
            Err(rusqlite::Error::SqlInputError { msg, .. }) => msg,
            Err(error) if is_permanent_refusal(&error) => error.to_string(),
            Err(error) => return Err(store_error(error)),
        };
        if !missing.contains(&what) {
            missing.push(what);
        }
    }
    Ok(missing)
}

/// Returns the folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the path and the flags for opening an existing file. The flags never create it, since its name may lead
/// elsewhere by then. Root follows no link that others can put into its folder: it would write the tables into the
/// link's target.
fn resolve_database_path(path: &Path) -> io::Result<(Cow<'_, Path>, OpenFlags)> {
    let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let folder = folder_of(path);
        let of = std::fs::metadata(folder)?;
        if rustix::process::geteuid().is_root() && (of.uid() != 0 || of.mode() & 0o022 != 0) {
            if std::fs::symlink_metadata(path)?.is_symlink() {
                let said = "it is a link in a folder that other users can change: root does not follow it";
                return Err(io::Error::other(said));
            }
            let name = path.file_name().unwrap_or_default();
            let direct = folder.canonicalize()?.join(name);
            return Ok((direct.into(), flags | OpenFlags::SQLITE_OPEN_NOFOLLOW));
        }
    }
    Ok((path.into(), flags))
}

/// Creates an empty file, readable only by the owner of its folder, since it has passwords.
///
/// It never opens an existing file. Closing it would release this process's other locks on the file (POSIX). A
/// program could then take itself for the last user and remove the write-ahead log.
fn create_file(path: &Path) -> io::Result<()> {
    use std::io::ErrorKind;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Err(_) if std::fs::metadata(path)?.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Err(_) => Ok(()),
        Ok(file) => crate::set_file_owner_from_folder(folder_of(path), &file),
    }
}

fn configure_connection(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    // If several programs open a new file at once, only one can turn the WAL on. SQLite's busy timeout does not cover
    // this, so retry here.
    let begun = std::time::Instant::now();
    loop {
        let turned = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match turned {
            Err(error) if !is_permanent_refusal(&error) && begun.elapsed() < BUSY => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => break other.map(drop)?,
        }
    }
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA cache_size = -8192; PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY;",
    )
}

fn migrate_schema(connection: &mut Connection) -> Result<(), StoreError> {
    let found = schema_version(connection).map_err(store_error)?;
    if found > schema::VERSION {
        return Err(StoreError::Refused(schema::newer_version_text(found)));
    }
    if found == schema::VERSION {
        return Ok(());
    }
    let work = begin_write(connection)?;
    work.execute_batch("CREATE TABLE IF NOT EXISTS usher_schema (version INTEGER PRIMARY KEY)")
        .map_err(store_error)?;
    // Another program may have migrated while this one waited for the lock.
    let found = schema_version(&work).map_err(store_error)?;
    for step in MIGRATIONS.iter().filter(|step| step.version > found) {
        for column in step.columns {
            if !has_column(&work, column).map_err(store_error)? {
                let add =
                    format!("ALTER TABLE {} ADD COLUMN {} {}", column.table, column.name, column.sqlite);
                work.execute_batch(&add).map_err(store_error)?;
            }
        }
        work.execute_batch(step.sqlite).map_err(store_error)?;
        work.execute("INSERT INTO usher_schema VALUES (?1)", [step.version]).map_err(store_error)?;
    }
    ensure_unique_sessions(&work)?;
    work.commit().map_err(store_error)
}

/// Returns the version of the tables. 0: the tables are not ours.
fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    let there = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'usher_schema'";
    if connection.query_row(there, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(0);
    }
    connection.query_row("SELECT coalesce(max(version), 0) FROM usher_schema", [], |row| row.get(0))
}

fn has_column(connection: &Connection, column: &schema::SchemaColumn) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE lower(name) = ?2";
    connection.query_row(sql, [column.table, column.name], |row| row.get::<_, i64>(0)).map(|n| n > 0)
}

/// Makes sure that session keys are unique, since a session replaces the row with its key.
fn ensure_unique_sessions(connection: &Connection) -> Result<(), StoreError> {
    let sql = "SELECT count(*) FROM pragma_index_list('radacct') AS list WHERE list.\"unique\" AND NOT list.partial AND \
               (SELECT lower(group_concat(name)) FROM pragma_index_info(list.name)) = 'acctuniqueid'";
    if connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(store_error)? > 0 {
        return Ok(());
    }
    connection
        .execute_batch("CREATE UNIQUE INDEX usher_radacct_unique ON radacct (acctuniqueid)")
        .map_err(|e| StoreError::Refused(schema::duplicate_sessions_message(&e.to_string())))
}

fn cell_value(value: ValueRef<'_>) -> CellValue<'_> {
    match value {
        ValueRef::Null => CellValue::Null,
        ValueRef::Integer(n) => CellValue::Number(n),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a time or a count with a fraction; the cast saturates"
        )]
        ValueRef::Real(n) => CellValue::Number(n as i64),
        ValueRef::Text(text) | ValueRef::Blob(text) => CellValue::Text(String::from_utf8_lossy(text)),
    }
}

/// Reads text from a column that other programs can fill with any type.
fn column_text(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<String> {
    Ok(match cell_value(row.get_ref(index)?) {
        CellValue::Null => String::new(),
        CellValue::Text(text) => text.into_owned(),
        CellValue::Number(n) => n.to_string(),
    })
}

fn read_session(row: &rusqlite::Row<'_>) -> rusqlite::Result<SessionRow> {
    let mut cells = [const { CellValue::Null }; SESSION.len()];
    for (index, into) in cells.iter_mut().enumerate() {
        *into = cell_value(row.get_ref(index)?);
    }
    Ok(rows::session_from_cells(cells))
}

/// Builds the statement that reads rows of an attribute table.
fn select_attributes_sql(table: &str, key: &str) -> String {
    format!("SELECT attribute, op, value FROM {table} WHERE {key} = ?1 ORDER BY id")
}

/// Reads the rows of `name` from one of the four attribute tables.
fn read_attributes(
    connection: &Connection,
    table: &str,
    key: &str,
    name: &str,
) -> Result<Vec<AttributeRow>, StoreError> {
    let mut statement = connection.prepare_cached(&select_attributes_sql(table, key)).map_err(store_error)?;
    let mut found = statement.query([name]).map_err(store_error)?;
    let mut all = Vec::new();
    while let Some(row) = found.next().map_err(store_error)? {
        let [attribute, op, value] = [0, 1, 2].map(|i| column_text(row, i));
        all.push(rows::parse_row(
            attribute.map_err(store_error)?,
            &op.map_err(store_error)?,
            value.map_err(store_error)?,
        ));
    }
    Ok(all)
}

fn put_attributes(
    connection: &Connection,
    table: &str,
    key: &str,
    name: &str,
    all: &[AttributeRow],
) -> rusqlite::Result<()> {
    let sql = format!("INSERT INTO {table} ({key}, attribute, op, value) VALUES (?1, ?2, ?3, ?4)");
    let mut statement = connection.prepare_cached(&sql)?;
    for row in all {
        statement.execute(params![
            name,
            rows::storable_text(&row.attribute),
            row.op.as_str(),
            rows::escape_value(&row.attribute, &row.value)
        ])?;
    }
    Ok(())
}

/// Deletes the user's rows. Returns their number.
fn delete_user_rows(connection: &Connection, name: &str) -> rusqlite::Result<usize> {
    let mut count = 0;
    for sql in [
        "DELETE FROM radcheck WHERE username = ?1",
        "DELETE FROM radreply WHERE username = ?1",
        "DELETE FROM radusergroup WHERE username = ?1",
    ] {
        count += connection.prepare_cached(sql)?.execute([name])?;
    }
    Ok(count)
}

fn put_user_rows(connection: &Connection, name: &str, user: &UserRows) -> rusqlite::Result<()> {
    let name = &rows::storable_text(name);
    delete_user_rows(connection, name)?;
    put_attributes(connection, "radcheck", "username", name, &user.check)?;
    put_attributes(connection, "radreply", "username", name, &user.reply)?;
    let sql = "INSERT INTO radusergroup (username, groupname, priority) VALUES (?1, ?2, ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    for (group, priority) in user.groups.iter().zip(1_i64..) {
        statement.execute(params![name, rows::storable_text(&group.name), priority])?;
    }
    Ok(())
}

fn apply_change(connection: &Connection, sql: &SqlStatements, change: &StoreChange) -> rusqlite::Result<()> {
    match change {
        StoreChange::Session(row) => {
            let mut cells = rows::session_cells(row);
            for (cell, (_, kind)) in cells.iter_mut().zip(SESSION) {
                // FreeRADIUS's columns here are NOT NULL, except for times.
                if *cell == CellValue::Null && kind != ColumnKind::Time {
                    *cell = CellValue::Text(Cow::Borrowed(""));
                }
            }
            connection.prepare_cached(&sql.put_session)?.execute(rusqlite::params_from_iter(cells))?;
        }
        StoreChange::NasRestarted { nas, restarted_at: at, cause } => {
            let values = params![nas.to_string(), rows::unix_seconds(*at), rows::storable_text(cause)];
            connection.prepare_cached(RESTARTED)?.execute(values)?;
        }
        StoreChange::Login { username, reply, decided_at: at, callingstationid } => {
            let values = params![
                rows::storable_text(username),
                reply,
                rows::unix_seconds(*at),
                rows::storable_text(callingstationid)
            ];
            connection.prepare_cached(LOGIN)?.execute(values)?;
        }
    }
    Ok(())
}

impl Store for SqliteStore {
    fn find_user(&mut self, name: &str) -> Result<Option<UserRows>, StoreError> {
        let name = rows::check_name(name)?;
        let all = self.begin_read()?;
        let mut user = UserRows {
            check: read_attributes(&all, "radcheck", "username", name)?,
            reply: read_attributes(&all, "radreply", "username", name)?,
            groups: Vec::new(),
        };
        let mut groups: Vec<String> = Vec::new();
        {
            let mut statement = all.prepare_cached(GROUPS).map_err(store_error)?;
            let mut found = statement.query([name]).map_err(store_error)?;
            while let Some(row) = found.next().map_err(store_error)? {
                groups.push(column_text(row, 0).map_err(store_error)?);
            }
        }
        for name in groups {
            if !user.groups.iter().any(|g| g.name == name) {
                let check = read_attributes(&all, "radgroupcheck", "groupname", &name)?;
                let reply = read_attributes(&all, "radgroupreply", "groupname", &name)?;
                user.groups.push(GroupRows { name, check, reply });
            }
        }
        let nothing = user.check.is_empty() && user.reply.is_empty() && user.groups.is_empty();
        Ok((!nothing).then_some(user))
    }

    fn write_changes(&mut self, changes: &[StoreChange]) -> Result<(), StoreError> {
        let work = begin_write(&mut self.connection)?;
        for one in changes {
            apply_change(&work, &self.sql, one).map_err(store_error)?;
        }
        work.commit().map_err(store_error)
    }

    fn open_sessions(&mut self, each: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(&self.sql.open_sessions).map_err(store_error)?;
        let mut found = statement.query([]).map_err(store_error)?;
        while let Some(row) = found.next().map_err(store_error)? {
            each(read_session(row).map_err(store_error)?);
        }
        Ok(())
    }

    fn find_session(&mut self, acctuniqueid: &str) -> Result<Option<SessionRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(&self.sql.session).map_err(store_error)?;
        statement.query_row([rows::storable_text(acctuniqueid)], read_session).optional().map_err(store_error)
    }

    fn list_clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(CLIENTS).map_err(store_error)?;
        let client = |row: &rusqlite::Row<'_>| {
            let demand =
                |i| column_text(row, i).map(|text| ClientRequirement::parse(text.trim()).unwrap_or_default());
            Ok(ClientRow {
                nasname: column_text(row, 0)?,
                shortname: column_text(row, 1)?,
                kind: column_text(row, 2)?,
                secret: column_text(row, 3)?,
                description: column_text(row, 4)?,
                require_message_authenticator: demand(5)?,
                limit_proxy_state: demand(6)?,
                server: column_text(row, 7)?,
            })
        };
        statement.query_map([], client).and_then(Iterator::collect).map_err(store_error)
    }

    fn user_names(&mut self, after: Option<&str>, most: u32) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT username FROM radcheck WHERE username > ?1 \
                   UNION SELECT username FROM radreply WHERE username > ?1 \
                   UNION SELECT username FROM radusergroup WHERE username > ?1 ORDER BY 1 LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql).map_err(store_error)?;
        // Names are never empty, so all names come after the empty one, which therefore starts the list.
        let values = params![rows::storable_text(after.unwrap_or_default()), most];
        statement
            .query_map(values, |row| column_text(row, 0))
            .and_then(Iterator::collect)
            .map_err(store_error)
    }

    fn put_user(&mut self, name: &str, user: &UserRows) -> Result<(), StoreError> {
        let work = begin_write(&mut self.connection)?;
        put_user_rows(&work, name, user).map_err(store_error)?;
        work.commit().map_err(store_error)
    }

    fn put_users(&mut self, users: &mut dyn Iterator<Item = (String, UserRows)>) -> Result<u64, StoreError> {
        let mut count = 0;
        let mut users = users.peekable();
        while users.peek().is_some() {
            let work = begin_write(&mut self.connection)?;
            for (name, user) in users.by_ref().take(USERS_AT_ONCE) {
                put_user_rows(&work, &name, &user).map_err(store_error)?;
                count += 1;
            }
            work.commit().map_err(store_error)?;
        }
        Ok(count)
    }

    fn delete_user(&mut self, name: &str) -> Result<bool, StoreError> {
        let work = begin_write(&mut self.connection)?;
        let count = delete_user_rows(&work, &rows::storable_text(name)).map_err(store_error)?;
        work.commit().map_err(store_error)?;
        Ok(count > 0)
    }

    fn put_group(&mut self, group: &GroupRows) -> Result<(), StoreError> {
        let work = begin_write(&mut self.connection)?;
        let name = &rows::storable_text(&group.name);
        work.execute("DELETE FROM radgroupcheck WHERE groupname = ?1", [name]).map_err(store_error)?;
        work.execute("DELETE FROM radgroupreply WHERE groupname = ?1", [name]).map_err(store_error)?;
        put_attributes(&work, "radgroupcheck", "groupname", name, &group.check).map_err(store_error)?;
        put_attributes(&work, "radgroupreply", "groupname", name, &group.reply).map_err(store_error)?;
        work.commit().map_err(store_error)
    }

    fn put_client(&mut self, client: &ClientRow) -> Result<(), StoreError> {
        let work = begin_write(&mut self.connection)?;
        let values = params![
            rows::storable_text(&client.nasname),
            rows::storable_text(&client.shortname),
            rows::storable_text(&client.kind),
            rows::storable_text(&client.secret),
            rows::storable_text(&client.description),
            client.require_message_authenticator.as_str(),
            client.limit_proxy_state.as_str(),
        ];
        // The update lists its columns, so that other columns of the row, such as its ports, keep their values.
        let update = "UPDATE nas SET shortname = ?2, type = ?3, secret = ?4, description = ?5, require_ma = ?6, \
                      limit_proxy_state = ?7 WHERE nasname = ?1";
        if work.execute(update, values).map_err(store_error)? == 0 {
            let insert = "INSERT INTO nas (nasname, shortname, type, secret, description, require_ma, limit_proxy_state) \
                          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            work.execute(insert, values).map_err(store_error)?;
        }
        work.commit().map_err(store_error)
    }

    fn delete_client(&mut self, nasname: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM nas WHERE nasname = ?1";
        self.connection.execute(sql, [rows::storable_text(nasname)]).map(|n| n > 0).map_err(store_error)
    }
}

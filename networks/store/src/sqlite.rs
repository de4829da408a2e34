//! The store in a file: SQLite, within this program.

use crate::rows::{self, Cell, Kind, SESSION};
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
use usher_aaa::store::{Change, ClientRow, Demand, GroupRows, Row, SessionRow, Store, StoreError, UserRows};

/// How long another's lock is waited for before [`StoreError::Unavailable`].
const BUSY: Duration = Duration::from_secs(5);
/// Users in one transaction of [`Store::put_users`]: others write in between.
const USERS_AT_ONCE: usize = 10_000;

/// A store in an SQLite file. Each value is a connection of its own; any number may be open to one file, in one
/// program or several: readers never wait, writers wait for each other.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    sql: Statements,
}

/// Statements whose texts are put together once.
#[derive(Debug)]
struct Statements {
    put_session: String,
    session: String,
    open_sessions: String,
}

const GROUPS: &str = "SELECT groupname FROM radusergroup WHERE username = ?1 ORDER BY priority, id";
/// A table without the column `server`, as tables of others may be, has the outer one, which says nothing.
const CLIENTS: &str = "SELECT n.nasname, n.shortname, n.type, n.secret, n.description, n.require_ma, n.limit_proxy_state, \
    (SELECT server FROM nas AS same WHERE same.id = n.id) FROM nas AS n, (SELECT NULL AS server) AS lacking ORDER BY n.id";
const RESTARTED: &str = "UPDATE radacct SET acctstoptime = ?2, acctupdatetime = ?2, acctterminatecause = ?3, \
    acctsessiontime = coalesce(max(?2 - acctstarttime, coalesce(acctsessiontime, 0)), acctsessiontime) \
    WHERE acctstoptime IS NULL AND nasipaddress = ?1 AND coalesce(acctstarttime <= ?2, 1) AND usher_diameter_origin = ''";
const LOGIN: &str = "INSERT INTO radpostauth (username, reply, authdate, callingstationid) \
    VALUES (?1, ?2, datetime(?3, 'unixepoch'), ?4)";
/// The tables of attributes, each with the column of whose they are.
const ATTRIBUTES: [(&str, &str); 4] = [
    ("radcheck", "username"),
    ("radreply", "username"),
    ("radgroupcheck", "groupname"),
    ("radgroupreply", "groupname"),
];

impl Statements {
    fn new() -> Self {
        let marks = vec!["?"; SESSION.len()].join(", ");
        let column = |(name, kind): (&str, Kind)| match kind {
            // FreeRADIUS writes seconds; people's scripts and older versions write dates.
            Kind::Time => format!(
                "CASE typeof({name}) WHEN 'text' THEN CAST(strftime('%s', {name}) AS INTEGER) ELSE {name} END"
            ),
            _ => name.to_owned(),
        };
        let columns = SESSION.map(column).join(", ");
        Self {
            put_session: format!(
                "INSERT INTO radacct ({}) VALUES ({marks}) ON CONFLICT (acctuniqueid) DO UPDATE SET {}",
                rows::names(", "),
                rows::replacing()
            ),
            session: format!("SELECT {columns} FROM radacct WHERE acctuniqueid = ?1"),
            open_sessions: format!("SELECT {columns} FROM radacct WHERE acctstoptime IS NULL"),
        }
    }
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Cell::Null => ToSqlOutput::Owned(Value::Null),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Cell::Number(n) => ToSqlOutput::Owned(Value::Integer(*n)),
        })
    }
}

fn refused(error: &rusqlite::Error) -> bool {
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

fn failed(error: rusqlite::Error) -> StoreError {
    let text = format!("SQLite: {error}");
    if refused(&error) { StoreError::Refused(text) } else { StoreError::Unavailable(text) }
}

impl Sqlite {
    /// Opens the file; makes it, for its owner only, where there is none, and brings its tables to
    /// [`crate::SCHEMA_VERSION`].
    ///
    /// # Errors
    /// The file cannot be opened or made, is no database, is of a newer version, or is locked for seconds.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let open = || {
            create(path).map_err(cannot)?;
            let (direct, flags) = direct(path).map_err(cannot)?;
            let mut connection = Connection::open_with_flags(direct, flags).map_err(failed)?;
            prepare(&connection).map_err(failed)?;
            migrate(&mut connection)?;
            connection.set_prepared_statement_cache_capacity(64);
            Ok(Self { connection, sql: Statements::new() })
        };
        open().map_err(|error| within(path, error))
    }

    /// Looks at a file without changing it; `None`: there is none yet, and a server would make it.
    ///
    /// # Errors
    /// As of [`Sqlite::open`].
    pub fn examine(path: impl AsRef<Path>) -> Result<Option<SchemaReport>, StoreError> {
        let path = path.as_ref();
        let look = || {
            if !path.try_exists().map_err(cannot)? {
                return Ok(None);
            }
            let (direct, flags) = direct(path).map_err(cannot)?;
            let flags = flags & !OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_READ_ONLY;
            let connection = Connection::open_with_flags(direct, flags).map_err(failed)?;
            connection.busy_timeout(BUSY).map_err(failed)?;
            let version = version(&connection).map_err(failed)?;
            if version > schema::VERSION {
                return Err(StoreError::Refused(schema::newer(version)));
            }
            let missing = if version == schema::VERSION { missing(&connection)? } else { Vec::new() };
            Ok(Some(SchemaReport { version, missing }))
        };
        look().map_err(|error| within(path, error))
    }

    fn reading(&mut self) -> Result<Transaction<'_>, StoreError> {
        self.connection.transaction().map_err(failed)
    }
}

/// A writer takes its lock at once: one that had read first could not wait for another.
fn writing(connection: &mut Connection) -> Result<Transaction<'_>, StoreError> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)
}

/// What is said of a file.
fn within(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(text) => StoreError::Unavailable(format!("{}: {text}", path.display())),
        StoreError::Refused(text) => StoreError::Refused(format!("{}: {text}", path.display())),
        StoreError::Unstorable(text) => StoreError::Unstorable(format!("{}: {text}", path.display())),
    }
}

fn cannot(error: io::Error) -> StoreError {
    StoreError::Refused(format!("cannot be opened: {error}"))
}

/// What the statements of a server need, and the tables lack.
fn missing(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let Statements { put_session, session, open_sessions } = Statements::new();
    let attributes = ATTRIBUTES.map(|(table, key)| attributes_of(table, key));
    let others = [GROUPS, CLIENTS, RESTARTED, LOGIN].map(str::to_owned);
    let mut missing = Vec::new();
    for sql in attributes.into_iter().chain(others).chain([put_session, session, open_sessions]) {
        let what = match connection.prepare(&sql) {
            Ok(_) => continue,
            Err(rusqlite::Error::SqlInputError { msg, .. }) => msg,
            Err(error) if refused(&error) => error.to_string(),
            Err(error) => return Err(failed(error)),
        };
        if !missing.contains(&what) {
            missing.push(what);
        }
    }
    Ok(missing)
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// By which path and how a file is opened that is there; it is not made, since by then its name may lead elsewhere. Root
/// follows no link that others can put into its folder: root would write the tables into whatever file it leads to.
fn direct(path: &Path) -> io::Result<(Cow<'_, Path>, OpenFlags)> {
    let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let folder = folder_of(path);
        let of = std::fs::metadata(folder)?;
        if rustix::process::geteuid().is_root() && (of.uid() != 0 || of.mode() & 0o022 != 0) {
            if std::fs::symlink_metadata(path)?.is_symlink() {
                let said = "it is a link in a folder that others can change, which root does not follow";
                return Err(io::Error::other(said));
            }
            let name = path.file_name().unwrap_or_default();
            let direct = folder.canonicalize()?.join(name);
            return Ok((direct.into(), flags | OpenFlags::SQLITE_OPEN_NOFOLLOW));
        }
    }
    Ok((path.into(), flags))
}

/// Makes an empty file that only its owner may read, who is that of its folder: there are passwords in it. One that is there is not opened:
/// closing it would end the locks that other connections of this process have on it (POSIX), and a program that then
/// takes itself for the last to leave removes the write-ahead log under them.
fn create(path: &Path) -> io::Result<()> {
    use std::io::ErrorKind;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Err(_) if std::fs::metadata(path)?.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Err(_) => Ok(()),
        Ok(file) => crate::give_to_owner_of(folder_of(path), &file),
    }
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    // Of several that open a new file at once only one can turn the log on, and SQLite does not let the others wait
    // for it.
    let begun = std::time::Instant::now();
    loop {
        let turned = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match turned {
            Err(error) if !refused(&error) && begun.elapsed() < BUSY => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => break other.map(drop)?,
        }
    }
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA cache_size = -8192; PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY;",
    )
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let found = version(connection).map_err(failed)?;
    if found > schema::VERSION {
        return Err(StoreError::Refused(schema::newer(found)));
    }
    if found == schema::VERSION {
        return Ok(());
    }
    let work = writing(connection)?;
    work.execute_batch("CREATE TABLE IF NOT EXISTS usher_schema (version INTEGER PRIMARY KEY)")
        .map_err(failed)?;
    // Another program may have done it while this one waited for the lock.
    let found = version(&work).map_err(failed)?;
    for step in MIGRATIONS.iter().filter(|step| step.version > found) {
        for column in step.columns {
            if !has_column(&work, column).map_err(failed)? {
                let add =
                    format!("ALTER TABLE {} ADD COLUMN {} {}", column.table, column.name, column.sqlite);
                work.execute_batch(&add).map_err(failed)?;
            }
        }
        work.execute_batch(step.sqlite).map_err(failed)?;
        work.execute("INSERT INTO usher_schema VALUES (?1)", [step.version]).map_err(failed)?;
    }
    unique_sessions(&work)?;
    work.commit().map_err(failed)
}

/// The version of the tables; 0 where there is none of ours.
fn version(connection: &Connection) -> rusqlite::Result<i64> {
    let there = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'usher_schema'";
    if connection.query_row(there, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(0);
    }
    connection.query_row("SELECT coalesce(max(version), 0) FROM usher_schema", [], |row| row.get(0))
}

fn has_column(connection: &Connection, column: &schema::Column) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE lower(name) = ?2";
    connection.query_row(sql, [column.table, column.name], |row| row.get::<_, i64>(0)).map(|n| n > 0)
}

/// A session is put in place of the one of its key, so the key must be one.
fn unique_sessions(connection: &Connection) -> Result<(), StoreError> {
    let sql = "SELECT count(*) FROM pragma_index_list('radacct') AS list WHERE list.\"unique\" AND NOT list.partial AND \
               (SELECT lower(group_concat(name)) FROM pragma_index_info(list.name)) = 'acctuniqueid'";
    if connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed)? > 0 {
        return Ok(());
    }
    connection
        .execute_batch("CREATE UNIQUE INDEX usher_radacct_unique ON radacct (acctuniqueid)")
        .map_err(|e| StoreError::Refused(schema::not_unique(&e.to_string())))
}

fn cell(value: ValueRef<'_>) -> Cell<'_> {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(n) => Cell::Number(n),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a time or a count with a fraction; the cast saturates"
        )]
        ValueRef::Real(n) => Cell::Number(n as i64),
        ValueRef::Text(text) | ValueRef::Blob(text) => Cell::Text(String::from_utf8_lossy(text)),
    }
}

/// Text of a column that another program may have filled with anything.
fn said(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<String> {
    Ok(match cell(row.get_ref(index)?) {
        Cell::Null => String::new(),
        Cell::Text(text) => text.into_owned(),
        Cell::Number(n) => n.to_string(),
    })
}

fn session(row: &rusqlite::Row<'_>) -> rusqlite::Result<SessionRow> {
    let mut cells = [const { Cell::Null }; SESSION.len()];
    for (index, into) in cells.iter_mut().enumerate() {
        *into = cell(row.get_ref(index)?);
    }
    Ok(rows::session(cells))
}

/// The statement that finds the rows of a table of attributes.
fn attributes_of(table: &str, key: &str) -> String {
    format!("SELECT attribute, op, value FROM {table} WHERE {key} = ?1 ORDER BY id")
}

/// The rows of one of the four tables of attributes that are of `name`.
fn attributes(connection: &Connection, table: &str, key: &str, name: &str) -> Result<Vec<Row>, StoreError> {
    let mut statement = connection.prepare_cached(&attributes_of(table, key)).map_err(failed)?;
    let mut found = statement.query([name]).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = found.next().map_err(failed)? {
        let [attribute, op, value] = [0, 1, 2].map(|i| said(row, i));
        all.push(rows::row(attribute.map_err(failed)?, &op.map_err(failed)?, value.map_err(failed)?));
    }
    Ok(all)
}

fn put_attributes(
    connection: &Connection,
    table: &str,
    key: &str,
    name: &str,
    all: &[Row],
) -> rusqlite::Result<()> {
    let sql = format!("INSERT INTO {table} ({key}, attribute, op, value) VALUES (?1, ?2, ?3, ?4)");
    let mut statement = connection.prepare_cached(&sql)?;
    for row in all {
        statement.execute(params![
            name,
            rows::text(&row.attribute),
            row.op.as_str(),
            rows::value(&row.attribute, &row.value)
        ])?;
    }
    Ok(())
}

/// The user's rows, away; how many there were.
fn delete(connection: &Connection, name: &str) -> rusqlite::Result<usize> {
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

fn put(connection: &Connection, name: &str, user: &UserRows) -> rusqlite::Result<()> {
    let name = &rows::text(name);
    delete(connection, name)?;
    put_attributes(connection, "radcheck", "username", name, &user.check)?;
    put_attributes(connection, "radreply", "username", name, &user.reply)?;
    let sql = "INSERT INTO radusergroup (username, groupname, priority) VALUES (?1, ?2, ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    for (group, priority) in user.groups.iter().zip(1_i64..) {
        statement.execute(params![name, rows::text(&group.name), priority])?;
    }
    Ok(())
}

fn change(connection: &Connection, sql: &Statements, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Session(row) => {
            let mut cells = rows::cells(row);
            for (cell, (_, kind)) in cells.iter_mut().zip(SESSION) {
                // FreeRADIUS's tables have no nothing here, except for times.
                if *cell == Cell::Null && kind != Kind::Time {
                    *cell = Cell::Text(Cow::Borrowed(""));
                }
            }
            connection.prepare_cached(&sql.put_session)?.execute(rusqlite::params_from_iter(cells))?;
        }
        Change::NasRestarted { nas, at, cause } => {
            let values = params![nas.to_string(), rows::seconds(*at), rows::text(cause)];
            connection.prepare_cached(RESTARTED)?.execute(values)?;
        }
        Change::Login { username, reply, at, callingstationid } => {
            let values =
                params![rows::text(username), reply, rows::seconds(*at), rows::text(callingstationid)];
            connection.prepare_cached(LOGIN)?.execute(values)?;
        }
    }
    Ok(())
}

impl Store for Sqlite {
    fn user(&mut self, name: &str) -> Result<Option<UserRows>, StoreError> {
        let name = rows::name(name)?;
        let all = self.reading()?;
        let mut user = UserRows {
            check: attributes(&all, "radcheck", "username", name)?,
            reply: attributes(&all, "radreply", "username", name)?,
            groups: Vec::new(),
        };
        let mut groups: Vec<String> = Vec::new();
        {
            let mut statement = all.prepare_cached(GROUPS).map_err(failed)?;
            let mut found = statement.query([name]).map_err(failed)?;
            while let Some(row) = found.next().map_err(failed)? {
                groups.push(said(row, 0).map_err(failed)?);
            }
        }
        for name in groups {
            if !user.groups.iter().any(|g| g.name == name) {
                let check = attributes(&all, "radgroupcheck", "groupname", &name)?;
                let reply = attributes(&all, "radgroupreply", "groupname", &name)?;
                user.groups.push(GroupRows { name, check, reply });
            }
        }
        let nothing = user.check.is_empty() && user.reply.is_empty() && user.groups.is_empty();
        Ok((!nothing).then_some(user))
    }

    fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let work = writing(&mut self.connection)?;
        for one in changes {
            change(&work, &self.sql, one).map_err(failed)?;
        }
        work.commit().map_err(failed)
    }

    fn open_sessions(&mut self, each: &mut dyn FnMut(SessionRow)) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(&self.sql.open_sessions).map_err(failed)?;
        let mut found = statement.query([]).map_err(failed)?;
        while let Some(row) = found.next().map_err(failed)? {
            each(session(row).map_err(failed)?);
        }
        Ok(())
    }

    fn session(&mut self, acctuniqueid: &str) -> Result<Option<SessionRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(&self.sql.session).map_err(failed)?;
        statement.query_row([rows::text(acctuniqueid)], session).optional().map_err(failed)
    }

    fn clients(&mut self) -> Result<Vec<ClientRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(CLIENTS).map_err(failed)?;
        let client = |row: &rusqlite::Row<'_>| {
            let demand = |i| said(row, i).map(|text| Demand::parse(text.trim()).unwrap_or_default());
            Ok(ClientRow {
                nasname: said(row, 0)?,
                shortname: said(row, 1)?,
                kind: said(row, 2)?,
                secret: said(row, 3)?,
                description: said(row, 4)?,
                require_message_authenticator: demand(5)?,
                limit_proxy_state: demand(6)?,
                server: said(row, 7)?,
            })
        };
        statement.query_map([], client).and_then(Iterator::collect).map_err(failed)
    }

    fn user_names(&mut self, after: Option<&str>, most: u32) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT username FROM radcheck WHERE username > ?1 \
                   UNION SELECT username FROM radreply WHERE username > ?1 \
                   UNION SELECT username FROM radusergroup WHERE username > ?1 ORDER BY 1 LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        // No name is empty, so all are after the empty one.
        let values = params![rows::text(after.unwrap_or_default()), most];
        statement.query_map(values, |row| said(row, 0)).and_then(Iterator::collect).map_err(failed)
    }

    fn put_user(&mut self, name: &str, user: &UserRows) -> Result<(), StoreError> {
        let work = writing(&mut self.connection)?;
        put(&work, name, user).map_err(failed)?;
        work.commit().map_err(failed)
    }

    fn put_users(&mut self, users: &mut dyn Iterator<Item = (String, UserRows)>) -> Result<u64, StoreError> {
        let mut count = 0;
        let mut users = users.peekable();
        while users.peek().is_some() {
            let work = writing(&mut self.connection)?;
            for (name, user) in users.by_ref().take(USERS_AT_ONCE) {
                put(&work, &name, &user).map_err(failed)?;
                count += 1;
            }
            work.commit().map_err(failed)?;
        }
        Ok(count)
    }

    fn delete_user(&mut self, name: &str) -> Result<bool, StoreError> {
        let work = writing(&mut self.connection)?;
        let count = delete(&work, &rows::text(name)).map_err(failed)?;
        work.commit().map_err(failed)?;
        Ok(count > 0)
    }

    fn put_group(&mut self, group: &GroupRows) -> Result<(), StoreError> {
        let work = writing(&mut self.connection)?;
        let name = &rows::text(&group.name);
        work.execute("DELETE FROM radgroupcheck WHERE groupname = ?1", [name]).map_err(failed)?;
        work.execute("DELETE FROM radgroupreply WHERE groupname = ?1", [name]).map_err(failed)?;
        put_attributes(&work, "radgroupcheck", "groupname", name, &group.check).map_err(failed)?;
        put_attributes(&work, "radgroupreply", "groupname", name, &group.reply).map_err(failed)?;
        work.commit().map_err(failed)
    }

    fn put_client(&mut self, client: &ClientRow) -> Result<(), StoreError> {
        let work = writing(&mut self.connection)?;
        let values = params![
            rows::text(&client.nasname),
            rows::text(&client.shortname),
            rows::text(&client.kind),
            rows::text(&client.secret),
            rows::text(&client.description),
            client.require_message_authenticator.as_str(),
            client.limit_proxy_state.as_str(),
        ];
        // What else the row says, such as its ports, stays.
        let update = "UPDATE nas SET shortname = ?2, type = ?3, secret = ?4, description = ?5, require_ma = ?6, \
                      limit_proxy_state = ?7 WHERE nasname = ?1";
        if work.execute(update, values).map_err(failed)? == 0 {
            let insert = "INSERT INTO nas (nasname, shortname, type, secret, description, require_ma, limit_proxy_state) \
                          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            work.execute(insert, values).map_err(failed)?;
        }
        work.commit().map_err(failed)
    }

    fn delete_client(&mut self, nasname: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM nas WHERE nasname = ?1";
        self.connection.execute(sql, [rows::text(nasname)]).map(|n| n > 0).map_err(failed)
    }
}

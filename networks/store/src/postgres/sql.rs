//! The statements for PostgreSQL. A batch goes as arrays in one statement, so it takes one round trip.

use crate::rows::{self, ColumnKind, SESSION};

/// Reads all rows about user `$1` in one result: kind, group, attribute, operator, value.
pub(super) const USER: &str = "
    SELECT 0 AS kind, ''::text AS name, attribute::text, op::text, value::text, 0 AS priority, id
        FROM radcheck WHERE username = $1
    UNION ALL SELECT 1, '', attribute, op, value, 0, id FROM radreply WHERE username = $1
    UNION ALL SELECT 2, groupname, '', '', '', priority, id FROM radusergroup WHERE username = $1
    UNION ALL SELECT 3, c.groupname, c.attribute, c.op, c.value, 0, c.id FROM radgroupcheck c
        WHERE c.groupname IN (SELECT groupname FROM radusergroup WHERE username = $1)
    UNION ALL SELECT 4, r.groupname, r.attribute, r.op, r.value, 0, r.id FROM radgroupreply r
        WHERE r.groupname IN (SELECT groupname FROM radusergroup WHERE username = $1)
    ORDER BY kind, priority, id";

/// Puts users: names; radcheck's name, attribute, operator, value; radreply's; radusergroup's name, group, priority.
pub(super) const PUT_USERS: &str = "
    WITH a AS (DELETE FROM radcheck WHERE username = ANY ($1::text[])),
        b AS (DELETE FROM radreply WHERE username = ANY ($1::text[])),
        c AS (DELETE FROM radusergroup WHERE username = ANY ($1::text[])),
        d AS (INSERT INTO radcheck (username, attribute, op, value) SELECT u, a, o, v
            FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS t (u, a, o, v, n) ORDER BY n),
        e AS (INSERT INTO radreply (username, attribute, op, value) SELECT u, a, o, v
            FROM unnest($6::text[], $7::text[], $8::text[], $9::text[]) WITH ORDINALITY AS t (u, a, o, v, n) ORDER BY n)
    INSERT INTO radusergroup (username, groupname, priority)
        SELECT u, g, p FROM unnest($10::text[], $11::text[], $12::int[]) AS t (u, g, p)";

/// Deletes user `$1`. Returns the number of rows.
pub(super) const DELETE_USER: &str = "
    WITH a AS (DELETE FROM radcheck WHERE username = $1 RETURNING 1),
        b AS (DELETE FROM radreply WHERE username = $1 RETURNING 1),
        c AS (DELETE FROM radusergroup WHERE username = $1 RETURNING 1)
    SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b) + (SELECT count(*) FROM c)";

/// Puts group `$1`: radgroupcheck's attribute, operator, value; radgroupreply's.
pub(super) const PUT_GROUP: &str = "
    WITH a AS (DELETE FROM radgroupcheck WHERE groupname = $1),
        b AS (DELETE FROM radgroupreply WHERE groupname = $1),
        c AS (INSERT INTO radgroupcheck (groupname, attribute, op, value) SELECT $1, a, o, v
            FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS t (a, o, v, n) ORDER BY n)
    INSERT INTO radgroupreply (groupname, attribute, op, value) SELECT $1, a, o, v
        FROM unnest($5::text[], $6::text[], $7::text[]) WITH ORDINALITY AS t (a, o, v, n) ORDER BY n";

/// Lists at most `$2` names after `$1`, in the order of their bytes.
pub(super) const USER_NAMES: &str = "
    SELECT username::text COLLATE \"C\" AS name FROM radcheck WHERE username COLLATE \"C\" > $1
    UNION SELECT username FROM radreply WHERE username COLLATE \"C\" > $1
    UNION SELECT username FROM radusergroup WHERE username COLLATE \"C\" > $1
    ORDER BY name LIMIT $2";

/// Reads table nas. If a foreign table lacks the column `server`, the name resolves to the outer NULL.
pub(super) const CLIENTS: &str = "
    SELECT n.nasname::text, n.shortname::text, n.type::text, n.secret::text, n.description::text, n.require_ma::text,
        n.limit_proxy_state::text, (SELECT server::text FROM nas AS same WHERE same.id = n.id)
    FROM nas AS n, (SELECT NULL::text AS server) AS lacking ORDER BY n.id";

/// Puts a client. Other columns of its row, such as its ports, stay.
pub(super) const PUT_CLIENT: &str = "
    WITH u AS (UPDATE nas SET shortname = $2, type = $3, secret = $4, description = $5, require_ma = $6,
        limit_proxy_state = $7 WHERE nasname = $1 RETURNING 1)
    INSERT INTO nas (nasname, shortname, type, secret, description, require_ma, limit_proxy_state)
        SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text WHERE NOT EXISTS (SELECT 1 FROM u)";

/// Deletes client `$1`.
pub(super) const DELETE_CLIENT: &str = "DELETE FROM nas WHERE nasname = $1";

/// Records that NAS `$1` restarted at `$2` with cause `$3`.
pub(super) const RESTARTED: &str = "
    UPDATE radacct SET acctstoptime = to_timestamp($2::bigint), acctupdatetime = to_timestamp($2::bigint),
        acctterminatecause = $3::text,
        acctsessiontime = greatest($2::bigint - floor(extract(epoch FROM acctstarttime))::bigint, acctsessiontime)
    WHERE acctstoptime IS NULL AND nasipaddress = $1::text::inet
        AND coalesce(acctstarttime <= to_timestamp($2::bigint), true) AND usher_diameter_origin = ''";

/// Inserts logins: user name, reply, seconds, calling station.
pub(super) const LOGINS: &str = "
    INSERT INTO radpostauth (username, pass, reply, authdate, callingstationid)
        SELECT u, '', r, to_timestamp(a), c
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY AS t (u, r, a, c, n) ORDER BY n";

/// Lists the rights that the server needs and its role lacks: table and right.
pub(super) const DENIED: &str = "
    SELECT t, r FROM (VALUES ('radcheck', 'SELECT'), ('radreply', 'SELECT'), ('radgroupcheck', 'SELECT'),
        ('radgroupreply', 'SELECT'), ('radusergroup', 'SELECT'), ('nas', 'SELECT'), ('radacct', 'SELECT'),
        ('radacct', 'INSERT'), ('radacct', 'UPDATE'), ('radpostauth', 'INSERT')) AS needed (t, r)
    WHERE NOT has_table_privilege(t, r)";

/// Puts sessions: one array per column of [`SESSION`].
pub(super) fn put_sessions() -> String {
    let number = |kind: ColumnKind| matches!(kind, ColumnKind::Number | ColumnKind::Time);
    let array = |(n, (_, kind)): (usize, (&str, ColumnKind))| {
        format!("${}::{}[]", n + 1, if number(kind) { "bigint" } else { "text" })
    };
    let value = |(name, kind): (&str, ColumnKind)| match kind {
        ColumnKind::Text | ColumnKind::Number => name.to_owned(),
        ColumnKind::Time => format!("to_timestamp({name})"),
        ColumnKind::Address | ColumnKind::Prefix => format!("{name}::inet"),
    };
    format!(
        "INSERT INTO radacct ({names}) SELECT {} FROM unnest({}) AS t ({names}) ON CONFLICT (acctuniqueid) DO UPDATE SET {}",
        SESSION.map(value).join(", "),
        SESSION.into_iter().enumerate().map(array).collect::<Vec<_>>().join(", "),
        rows::session_update_clause(),
        names = rows::column_names(", "),
    )
}

fn select_sessions() -> String {
    let column = |(name, kind): (&str, ColumnKind)| match kind {
        ColumnKind::Text => format!("{name}::text"),
        ColumnKind::Number => format!("{name}::bigint"),
        ColumnKind::Time => format!("floor(extract(epoch FROM {name}))::bigint"),
        ColumnKind::Address => format!("host({name})"),
        ColumnKind::Prefix => format!("text({name})"),
    };
    format!("SELECT {} FROM radacct", SESSION.map(column).join(", "))
}

/// Reads the session with key `$1`.
pub(super) fn select_session() -> String {
    format!("{} WHERE acctuniqueid = $1", select_sessions())
}

/// Declares a cursor over the open sessions, for [`FETCH`].
pub(super) fn open_sessions() -> String {
    format!(
        "BEGIN READ ONLY; DECLARE usher_open NO SCROLL CURSOR FOR {} WHERE acctstoptime IS NULL",
        select_sessions()
    )
}

/// Fetches the next rows of [`open_sessions`].
pub(super) const FETCH: &str = "FETCH 2000 FROM usher_open";

//! The tables and their migrations.
//!
//! The tables have the columns and types of FreeRADIUS 3.2. Indexes are limited to those that its queries and ours
//! need, since each one slows every accounting record.

/// The current version of the tables.
pub const VERSION: i64 = 3;

/// The state of a database's tables, found without changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaReport {
    /// The version ([`VERSION`] is this program's). 0: absent, or created by FreeRADIUS. A server migrates them when
    /// it opens the database.
    pub version: i64,
    /// The tables, columns and rights that a server would lack. Empty for tables of another version.
    pub missing: Vec<String>,
}

/// A required column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchemaColumn {
    pub(crate) table: &'static str,
    pub(crate) name: &'static str,
    /// Its type in SQLite.
    pub(crate) sqlite: &'static str,
    /// Its type in PostgreSQL.
    pub(crate) postgres: &'static str,
}

/// A migration step. FreeRADIUS may have done its work already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchemaMigration {
    /// The version after it.
    pub(crate) version: i64,
    /// Statements for SQLite.
    pub(crate) sqlite: &'static str,
    /// Statements for PostgreSQL.
    pub(crate) postgres: &'static str,
    /// The columns to add if missing, before the statements.
    pub(crate) columns: &'static [SchemaColumn],
}

const fn schema_column(
    table: &'static str,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
) -> SchemaColumn {
    SchemaColumn { table, name, sqlite, postgres }
}

/// All steps in order.
pub(crate) const MIGRATIONS: [SchemaMigration; 3] = [
    SchemaMigration {
        version: 1,
        sqlite: include_str!("tables.sqlite.sql"),
        postgres: include_str!("tables.postgres.sql"),
        columns: &[],
    },
    SchemaMigration {
        version: 2,
        columns: &[
            // These are FreeRADIUS's own columns, which its older tables lack.
            schema_column(
                "radacct",
                "acctupdatetime",
                "datetime NULL default NULL",
                "timestamp with time zone",
            ),
            schema_column("radacct", "framedipv6address", "varchar(45) NOT NULL default ''", "inet"),
            schema_column("radacct", "framedipv6prefix", "varchar(45) NOT NULL default ''", "inet"),
            schema_column("radacct", "class", "varchar(64) default NULL", "text"),
            schema_column("radpostauth", "callingstationid", "varchar(50) default NULL", "text"),
            schema_column("nas", "require_ma", "varchar(4) DEFAULT 'auto'", "text DEFAULT 'auto'"),
            schema_column("nas", "limit_proxy_state", "varchar(4) DEFAULT 'auto'", "text DEFAULT 'auto'"),
            // These columns are Usher's own.
            schema_column(
                "radacct",
                "usher_interims",
                "integer NOT NULL default 0",
                "bigint NOT NULL DEFAULT 0",
            ),
        ],
        sqlite: "CREATE INDEX IF NOT EXISTS usher_radacct_open ON radacct (nasipaddress) WHERE acctstoptime IS NULL;",
        postgres: include_str!("version2.postgres.sql"),
    },
    SchemaMigration {
        version: 3,
        // This column marks Diameter sessions and their origin.
        columns: &[schema_column(
            "radacct",
            "usher_diameter_origin",
            "text NOT NULL default ''",
            "text NOT NULL DEFAULT ''",
        )],
        sqlite: "",
        postgres: "",
    },
];

/// The message for a database of a newer version.
pub(crate) fn newer_version_text(found: i64) -> String {
    format!(
        "the tables have version {found}, but this program knows versions up to {VERSION} only: use the newer program \
         that made them, or another database"
    )
}

/// The message if session keys are not unique.
pub(crate) fn duplicate_sessions_message(error: &str) -> String {
    format!(
        "table radacct has several rows of one acctuniqueid, so no unique index is possible ({error}): find them with \
         SELECT acctuniqueid, count(*) FROM radacct GROUP BY 1 HAVING count(*) > 1, and delete all but one of each"
    )
}

/// Returns a script that brings PostgreSQL's tables to [`VERSION`], for a database whose owner keeps the right to
/// create tables. It can run over existing tables, FreeRADIUS's or ours, and repeatedly.
#[must_use]
pub fn postgres_script() -> String {
    let mut script = String::from("BEGIN;\n");
    script.push_str("CREATE TABLE IF NOT EXISTS usher_schema (version bigint PRIMARY KEY);\n");
    for step in &MIGRATIONS {
        script.push_str(&postgres_migration_script(step));
    }
    script.push_str("GRANT SELECT ON usher_schema TO PUBLIC;\nCOMMIT;\n");
    script
}

/// Returns the script of one PostgreSQL step, which records its version at the end.
pub(crate) fn postgres_migration_script(step: &SchemaMigration) -> String {
    let add = |c: &SchemaColumn| {
        format!("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {};\n", c.table, c.name, c.postgres)
    };
    let columns: String = step.columns.iter().map(add).collect();
    let version = step.version;
    format!(
        "{columns}{}\nINSERT INTO usher_schema VALUES ({version}) ON CONFLICT DO NOTHING;\n",
        step.postgres
    )
}

//! Stores of the AAA server: SQLite and PostgreSQL with FreeRADIUS's tables, and an importer of its files.

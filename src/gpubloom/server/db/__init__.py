"""The database: one engine to write, one to read, migrations. It knows no subject and no table's meaning."""

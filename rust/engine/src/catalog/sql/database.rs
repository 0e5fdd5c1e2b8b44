//! The SQL of the catalog. Everything here blocks.

use std::path::PathBuf;
use std::time::Duration;

use frazil_core::{Result, SinkError};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use crate::redact;

/// How long an operation waits for another connection's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

const CREATE_TABLES: &str = "
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000),
  previous_metadata_location VARCHAR(1000),
  iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name VARCHAR(255) NOT NULL,
  namespace VARCHAR(255) NOT NULL,
  property_key VARCHAR(255) NOT NULL,
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, namespace, property_key));";

/// An SQLite file. Each operation opens it: that takes well under a millisecond, and no lock
/// or statement of ours outlives an operation.
#[derive(Debug, Clone)]
pub(super) struct Database {
    path: PathBuf,
}

/// What came of swapping a table's metadata location.
#[derive(Debug)]
pub(super) enum Swap {
    /// The new location is in and durable.
    Done,
    /// The old location was no longer there.
    Lost,
    /// An error before the end: nothing was changed.
    NotDone(SinkError),
    /// An error at the end: it may have been changed.
    Unknown(SinkError),
}

fn failed(error: &rusqlite::Error) -> SinkError {
    let reason = redact::foreign(&error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => SinkError::retriable(
            "CATALOG_BUSY",
            "another connection keeps the SQL catalog locked",
        ),
        Some(ErrorCode::CannotOpen) => SinkError::config(
            "CATALOG_UNAVAILABLE",
            "the file of `iceberg.catalog.uri` cannot be opened: check path and rights",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::NotADatabase) => {
            SinkError::config(
                "CATALOG_UNAVAILABLE",
                "the file of `iceberg.catalog.uri` cannot be written as a database",
            )
        }
        _ => SinkError::retriable("CATALOG_UNAVAILABLE", "the SQL catalog failed"),
    }
    .with("reason", reason)
}

impl Database {
    pub(super) fn new(path: PathBuf) -> Self {
        Database { path }
    }

    fn open(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path).map_err(|error| failed(&error))?;
        connection
            .busy_timeout(BUSY_TIMEOUT)
            .and_then(|()| connection.pragma_update(None, "synchronous", "FULL"))
            .and_then(|()| has_tables(&connection))
            .and_then(|has_tables| match has_tables {
                true => Ok(()),
                false => connection.execute_batch(CREATE_TABLES),
            })
            .map_err(|error| failed(&error))?;
        Ok(connection)
    }

    /// Opens the file and reads from both tables.
    pub(super) fn check(&self) -> Result<()> {
        self.metadata_location(&[String::new(), String::new(), String::new()])?;
        self.namespace_exists("", "")?;
        Ok(())
    }

    pub(super) fn metadata_location(&self, key: &[String; 3]) -> Result<Option<String>> {
        let connection = self.open()?;
        let only_tables = only_tables(&connection).map_err(|error| failed(&error))?;
        let location: Option<Option<String>> = connection
            .query_row(
                &format!("SELECT metadata_location FROM iceberg_tables WHERE {ROW}{only_tables}"),
                params![key[0], key[1], key[2]],
                |row| row.get(0),
            )
            .optional()
            .map_err(|error| failed(&error))?;
        Ok(location.flatten())
    }

    /// Returns namespace and name of each table of a catalog.
    pub(super) fn tables(&self, catalog: &str) -> Result<Vec<(String, String)>> {
        let connection = self.open()?;
        let read = || {
            let only_tables = only_tables(&connection)?;
            let mut statement = connection.prepare(&format!(
                "SELECT table_namespace, table_name FROM iceberg_tables \
                 WHERE catalog_name = ?1{only_tables}"
            ))?;
            let rows =
                statement.query_map(params![catalog], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|error| failed(&error))
    }

    /// Inserts a table; returns whether there was none of this name, nor a view.
    pub(super) fn insert(&self, key: &[String; 3], location: &str) -> Result<bool> {
        let connection = self.open()?;
        let has_type = has_type_column(&connection).map_err(|error| failed(&error))?;
        let sql = if has_type {
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, \
             metadata_location, iceberg_type) VALUES (?1, ?2, ?3, ?4, 'TABLE')"
        } else {
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, \
             metadata_location) VALUES (?1, ?2, ?3, ?4)"
        };
        match connection.execute(sql, params![key[0], key[1], key[2], location]) {
            Ok(_) => Ok(true),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Ok(false)
            }
            Err(error) => Err(failed(&error)),
        }
    }

    /// Deletes a table; returns whether there was one.
    pub(super) fn delete(&self, key: &[String; 3]) -> Result<bool> {
        let connection = self.open()?;
        let only_tables = only_tables(&connection).map_err(|error| failed(&error))?;
        let rows = connection
            .execute(
                &format!("DELETE FROM iceberg_tables WHERE {ROW}{only_tables}"),
                params![key[0], key[1], key[2]],
            )
            .map_err(|error| failed(&error))?;
        Ok(rows > 0)
    }

    /// Puts `new` in the place of `old`, if `old` is still there.
    pub(super) fn swap(&self, key: &[String; 3], old: &str, new: &str) -> Swap {
        let connection = match self.open() {
            Ok(connection) => connection,
            Err(error) => return Swap::NotDone(error),
        };
        // Until COMMIT, the end of the connection rolls back whatever is open.
        let sql = format!(
            "UPDATE iceberg_tables SET metadata_location = ?4, previous_metadata_location = ?5 \
             WHERE {ROW} AND metadata_location = ?5"
        );
        let swapped = connection
            .execute_batch("BEGIN IMMEDIATE")
            .and_then(|()| connection.execute(&sql, params![key[0], key[1], key[2], new, old]));
        match swapped {
            Ok(1) => commit(&connection),
            Ok(_) => Swap::Lost,
            Err(error) => Swap::NotDone(failed(&error)),
        }
    }

    pub(super) fn create_namespace(&self, catalog: &str, namespace: &str) -> Result<()> {
        let connection = self.open()?;
        connection
            .execute(
                "INSERT OR IGNORE INTO iceberg_namespace_properties \
                 (catalog_name, namespace, property_key, property_value) \
                 VALUES (?1, ?2, 'exists', 'true')",
                params![catalog, namespace],
            )
            .map_err(|error| failed(&error))?;
        Ok(())
    }

    /// A namespace is there if it has properties or tables, or if a namespace below it has.
    pub(super) fn namespace_exists(&self, catalog: &str, namespace: &str) -> Result<bool> {
        let connection = self.open()?;
        // `substr`, not LIKE: `_` and `%` occur in names.
        let sql = "SELECT EXISTS (
            SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = ?1
              AND (namespace = ?2 OR substr(namespace, 1, length(?2) + 1) = ?2 || '.')
            UNION ALL
            SELECT 1 FROM iceberg_tables WHERE catalog_name = ?1
              AND (table_namespace = ?2 OR substr(table_namespace, 1, length(?2) + 1) = ?2 || '.'))";
        connection
            .query_row(sql, params![catalog, namespace], |row| row.get(0))
            .map_err(|error| failed(&error))
    }
}

const ROW: &str = "catalog_name = ?1 AND table_namespace = ?2 AND table_name = ?3";

/// Commits the open transaction. `SQLITE_BUSY` leaves it open, so that rolling it back makes the
/// outcome certain; after any other error nobody knows.
fn commit(connection: &Connection) -> Swap {
    let Err(error) = connection.execute_batch("COMMIT") else {
        return Swap::Done;
    };
    let is_busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
    if is_busy && !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_ok() {
        return Swap::NotDone(failed(&error));
    }
    Swap::Unknown(
        SinkError::retriable(
            "COMMIT_UNKNOWN",
            "the SQL catalog failed while it committed",
        )
        .with("reason", redact::foreign(&error.to_string())),
    )
}

fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT count(*) = 2 FROM sqlite_master WHERE type = 'table' \
         AND name IN ('iceberg_tables', 'iceberg_namespace_properties')",
        [],
        |row| row.get(0),
    )
}

/// Returns whether the layout is V1, which has views beside tables; V0 is read and written as it is.
fn has_type_column(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT count(*) > 0 FROM pragma_table_info('iceberg_tables') WHERE name = 'iceberg_type'",
        [],
        |row| row.get(0),
    )
}

fn only_tables(connection: &Connection) -> rusqlite::Result<&'static str> {
    Ok(if has_type_column(connection)? {
        " AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
    } else {
        ""
    })
}

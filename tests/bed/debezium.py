"""Debezium's connectors for the databases of the bed, as they run in a Connect worker."""

from __future__ import annotations

from pathlib import Path

from .artifacts import libraries
from .databases import Maria, Postgres
from .kafka import Broker

JSON = "org.apache.kafka.connect.json.JsonConverter"
# What both ends say about keys and values. A null stays a null where its column has a default.
WITH_SCHEMAS = {
    "key.converter": JSON,
    "key.converter.schemas.enable": "true",
    "value.converter": JSON,
    "value.converter.schemas.enable": "true",
    "value.converter.replace.null.with.default": "false",
}
HEADERS = {"header.converter": JSON, "header.converter.schemas.enable": "false"}


def plugins() -> tuple[Path, ...]:
    """The folders for `plugin.path`."""
    return libraries("debezium-postgres"), libraries("debezium-mysql")


def postgres_source(postgres: Postgres, prefix: str, tables: str, **more: str) -> dict[str, str]:
    """The configuration of a source of PostgreSQL tables, each as `schema.table`."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": postgres.USER,
        "database.password": "any",
        "database.dbname": postgres.DATABASE,
        "topic.prefix": prefix,
        "slot.name": f"{prefix}_slot",
        "publication.name": f"{prefix}_pub",
        "publication.autocreate.mode": "filtered",
        "table.include.list": tables,
        **WITH_SCHEMAS,
        **HEADERS,
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def mysql_source(
    maria: Maria, broker: Broker, prefix: str, tables: str, **more: str
) -> dict[str, str]:
    """The configuration of a source of MariaDB tables, each as `database.table`."""
    return {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(maria.port),
        "database.user": maria.USER,
        "database.password": maria.PASSWORD,
        "database.server.id": "5400",
        "database.ssl.mode": "disabled",
        "database.include.list": tables.split(".")[0],
        "table.include.list": tables,
        "topic.prefix": prefix,
        "schema.history.internal.kafka.bootstrap.servers": broker.bootstrap,
        "schema.history.internal.kafka.topic": f"{prefix}-history",
        "include.schema.changes": "false",
        **WITH_SCHEMAS,
        **HEADERS,
        **{key.replace("__", "."): value for key, value in more.items()},
    }

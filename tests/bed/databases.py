"""Databases whose changes Debezium follows: servers of Debian's packages, each with a folder and a port
of its own. `./x` installs the packages; what the packages start by themselves is not used."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path

from .process import BedError, Process, free_port, listens

POSTGRESQL_CONF = """\
listen_addresses='127.0.0.1'
port={port}
unix_socket_directories=''
wal_level=logical
max_replication_slots=10
max_wal_senders=10
fsync=off
synchronous_commit=off
full_page_writes=off
shared_buffers=32MB
"""


def _program(name: str, *folders: str) -> str:
    """Finds a program where Debian lays it: server programs are not in everybody's PATH."""
    found = shutil.which(name)
    if found is not None:
        return found
    for folder in folders:
        for place in sorted(Path("/").glob(f"{folder.strip('/')}/{name}"), reverse=True):
            return str(place)
    raise BedError(f"{name} is missing: install postgresql and mariadb-server, as ./x does")


def _home(folder: Path, user: str) -> str | None:
    """Makes a folder for a server. These servers refuse to be root: then the folder is the package's
    user's, who must be able to get there, and that user is returned."""
    folder.mkdir(parents=True)
    if os.geteuid() != 0:
        return None
    account = pwd.getpwnam(user)
    os.chown(folder, account.pw_uid, account.pw_gid)
    folder.chmod(0o700)
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if not mode & 0o001:
            parent.chmod(mode & 0o777 | 0o011)
    return user


def _run(command: list[str], what: str, text: str | None = None, user: str | None = None) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=120, user=user
    )
    if done.returncode != 0:
        raise BedError(f"{what} failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


class Postgres:
    """PostgreSQL with logical decoding; everybody on this machine is its superuser `bed`."""

    USER = "bed"
    DATABASE = "postgres"

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process = Process("postgresql", logs / "postgresql.log")
        self._user: str | None = None

    def start(self) -> Postgres:
        places = "/usr/lib/postgresql/*/bin"
        if not self.folder.exists():
            self._user = _home(self.folder, "postgres")
            make = [_program("initdb", places), "-D", str(self.folder), "-U", self.USER]
            make += ["-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
            _run(make, "initdb", user=self._user)
            with (self.folder / "postgresql.conf").open("a") as conf:
                conf.write(POSTGRESQL_CONF.format(port=self.port))
        self.process.start([_program("postgres", places), "-D", self.folder], user=self._user)
        self.process.wait_ready(self._answers, 60)
        return self

    def _answers(self) -> bool:
        try:
            return listens(self.port) and self.sql("select 1") == "1\n"
        except BedError:
            return False

    def stop(self) -> None:
        # It waits for its clients when it is asked politely.
        self.process.interrupt()

    def sql(self, text: str) -> str:
        """Runs statements, each for itself unless they say otherwise."""
        command = [_program("psql", "/usr/lib/postgresql/*/bin"), "-XqAt", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", "127.0.0.1", "-p", str(self.port), "-U", self.USER, "-d", self.DATABASE]
        return _run(command, "psql", text)

    def rows(self, query: str) -> list[dict]:
        """Returns the rows of a query."""
        lines = self.sql(f"select row_to_json(r) from ({query}) r").splitlines()
        return [json.loads(line) for line in lines]


class Maria:
    """MariaDB with a binlog of rows. It calls itself MySQL 5.7, as which Debezium's connector for MySQL
    takes it: a stand-in for MySQL, which Debian does not have."""

    USER = "dbz"
    PASSWORD = "dbz"

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process = Process("mariadb", logs / "mariadb.log")

    @property
    def _socket(self) -> Path:
        return self.folder / "s.sock"

    def start(self) -> Maria:
        user = None
        if not self.folder.exists():
            user = _home(self.folder, "mysql")
            make = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={self.folder}"]
            make += ["--auth-root-authentication-method=normal", "--skip-test-db"]
            _run(make, "mariadb-install-db", user=user)
        options = {
            "datadir": self.folder,
            "bind-address": "127.0.0.1",
            "port": self.port,
            "socket": self._socket,
            "server-id": 1,
            "log-bin": "bin",
            "binlog-format": "ROW",
            "binlog-row-image": "FULL",
            "innodb-flush-log-at-trx-commit": 0,
            "sync-binlog": 0,
            "innodb-buffer-pool-size": "64M",
            "performance-schema": "OFF",
            "character-set-server": "utf8mb4",
            "version": "5.7.19-log",
        }
        command = [_program("mariadbd", "/usr/sbin"), "--no-defaults", "--skip-name-resolve"]
        command += [f"--{key}={value}" for key, value in options.items()]
        self.process.start(command, user=user)
        self.process.wait_ready(self._answers, 60)
        self.sql(
            f"create user {self.USER}@'127.0.0.1' identified by '{self.PASSWORD}';"
            " grant select, reload, show databases, replication slave, replication client,"
            f" binlog monitor, lock tables on *.* to {self.USER}@'127.0.0.1';"
        )
        return self

    def _answers(self) -> bool:
        try:
            return listens(self.port) and self.sql("select 1") == "1\n"
        except BedError:
            return False

    def stop(self) -> None:
        self.process.stop()

    def sql(self, text: str) -> str:
        """Runs statements as root."""
        command = [_program("mariadb"), "--no-defaults", f"--socket={self._socket}", "--user=root"]
        command += ["--batch", "--raw", "--skip-column-names", "--default-character-set=utf8mb4"]
        return _run(command, "mariadb", text)

    def rows(self, columns: dict[str, str], rest: str) -> list[dict]:
        """Returns rows: `columns` are expressions by name, `rest` is the query from `from` on."""
        pairs = ", ".join(f"'{name}', {expression}" for name, expression in columns.items())
        lines = self.sql(f"select json_object({pairs}) {rest}").splitlines()
        return [json.loads(line) for line in lines]

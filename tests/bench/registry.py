"""A schema registry that holds what it is given: the parts of Confluent's and of Apicurio's interface
that converters and Frazil read."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Registry:
    """Serves on loopback, in a thread of this process."""

    def __init__(self) -> None:
        self.schemas: dict[int, tuple[str, str]] = {}
        self.subjects: dict[str, list[int]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, kind, body = registry.answer(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                if kind is not None:
                    self.send_header("X-Registry-ArtifactType", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(self, subject: str, kind: str, schema: str) -> int:
        """Adds a version to a subject and returns the id of the schema."""
        number = len(self.schemas) + 1
        self.schemas[number] = (kind, schema)
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> tuple[int, str | None, bytes]:
        """Returns status, Apicurio's name of the kind of schema, and body."""
        if path == "/schemas/types":
            return 200, None, json.dumps(sorted({kind for kind, _ in self.schemas.values()})).encode()
        if found := re.fullmatch(r"/apis/registry/v2/ids/(?:globalIds|contentIds)/(\d+)(/references)?", path):
            number = int(found[1])
            if number in self.schemas:
                kind, schema = self.schemas[number]
                return 200, kind, b"[]" if found[2] else schema.encode()
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            number = int(found[1])
            if number in self.schemas:
                return 200, None, self._confluent(number, {})
            return 404, None, json.dumps({"error_code": 40403, "message": "Schema not found"}).encode()
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", path):
            versions = self.subjects.get(found[1], [])
            version = len(versions) if found[2] == "latest" else int(found[2])
            if 0 < version <= len(versions):
                number = versions[version - 1]
                extra = {"subject": found[1], "version": version, "id": number}
                return 200, None, self._confluent(number, extra)
            return 404, None, json.dumps({"error_code": 40401, "message": "Subject not found"}).encode()
        return 404, None, json.dumps({"error_code": 404, "message": "not here"}).encode()

    def _confluent(self, number: int, extra: dict[str, object]) -> bytes:
        kind, schema = self.schemas[number]
        answer = {**extra, "schema": schema}
        if kind != "AVRO":  # Confluent's registry leaves the usual kind out.
            answer["schemaType"] = kind
        return json.dumps(answer).encode()

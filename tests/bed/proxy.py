"""An HTTP proxy on loopback that fails in the ways that networks and load balancers fail.

It stands between the plugin and a catalog or a store. Rules decide by method and path what becomes
of a request; what no rule fits passes. Requests with an `X-Bed` header, which tests send, always do.

The client's `Host` header is passed on as it is, for a signature may cover it.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import re
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Callable

from .process import BedError, wait_until

# Headers that belong to one connection, and the length, which is written anew.
OWN = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"}
ERROR = '{"error":{"message":"injected","type":"%s","code":%d}}'


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


@dataclass
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    at: float


# Takes the request and what sends it on, and gives the answer; None resets the connection.
Action = Callable[[Asked, Callable[[Asked], Answer]], "Answer | None"]


def error(status: int, kind: str = "Injected", **headers: str) -> Answer:
    """An error as a REST catalog words it."""
    shown = [("Content-Type", "application/json")]
    shown += [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Answer(status, shown, (ERROR % (kind, status)).encode())


def refuse(status: int, kind: str = "Injected", **headers: str) -> Action:
    """Answers an error; the request never arrives."""
    return lambda asked, forward: error(status, kind, **headers)


def after(status: int, kind: str = "CommitStateUnknownException") -> Action:
    """The request is done, and an error is answered."""

    def act(asked: Asked, forward: Callable[[Asked], Answer]) -> Answer:
        forward(asked)
        return error(status, kind)

    return act


def reset(applied: bool) -> Action:
    """The connection is reset, after the request was done or before it arrived."""

    def act(asked: Asked, forward: Callable[[Asked], Answer]) -> None:
        if applied:
            forward(asked)

    return act


def delay(seconds: float) -> Action:
    """The request is done at once and its answer comes late."""

    def act(asked: Asked, forward: Callable[[Asked], Answer]) -> Answer:
        answer = forward(asked)
        time.sleep(seconds)
        return answer

    return act


def replay() -> Action:
    """The request is sent twice, as a retrying load balancer does; the second answer is given."""

    def act(asked: Asked, forward: Callable[[Asked], Answer]) -> Answer:
        forward(asked)
        return forward(asked)

    return act


def rewrite(change: Callable[[bytes], bytes]) -> Action:
    """The body of the answer is changed."""

    def act(asked: Asked, forward: Callable[[Asked], Answer]) -> Answer:
        answer = forward(asked)
        return Answer(answer.status, answer.headers, change(answer.body))

    return act


class Hold:
    """Holds requests until `release`. With `early`, the client is answered that at once, and the
    request is still on its way: it arrives when it is released."""

    def __init__(self, early: Answer | None = None, before: bool = True) -> None:
        self.early = early
        self.before = before
        self.held = 0
        self.answers: list[Answer] = []
        self._open = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, asked: Asked, forward: Callable[[Asked], Answer]) -> Answer:
        if self.early is not None:
            threading.Thread(target=self._later, args=(asked, forward), daemon=True).start()
            return self.early
        return self._later(asked, forward)

    def _later(self, asked: Asked, forward: Callable[[Asked], Answer]) -> Answer:
        answer = None if self.before else forward(asked)
        with self._lock:
            self.held += 1
        self._open.wait(600)
        answer = answer or forward(asked)
        with self._lock:
            self.answers.append(answer)
        return answer

    def wait_held(self, count: int = 1, timeout: float = 60) -> None:
        wait_until(f"{count} held requests", lambda: self.held >= count, timeout)

    def release(self) -> None:
        self._open.set()

    def wait_answers(self, timeout: float = 60) -> list[int]:
        """Releases all and returns the statuses that the held requests got."""
        self.release()
        wait_until("answers of held requests", lambda: len(self.answers) >= self.held, timeout)
        return [answer.status for answer in self.answers]


@dataclass
class Rule:
    """What becomes of the next `count` requests that fit, or of a share of all."""

    action: Action
    method: str | None = None
    path: str = ""
    count: int | None = None
    share: float = 1.0
    met: int = 0

    def fits(self, asked: Asked, random_number: float) -> bool:
        return (
            (self.count is None or self.met < self.count)
            and (self.method is None or asked.method in self.method.split("|"))
            and re.search(self.path, asked.path) is not None
            and random_number < self.share
        )

    def wait_met(self, count: int = 1, timeout: float = 60) -> None:
        wait_until(f"{count} requests for a rule", lambda: self.met >= count, timeout)


# A commit of one table, or of several.
COMMIT = r"/tables/[^/?]+$|/transactions/commit$"


class Proxy:
    """Listens on a free port, and sends on to `target` on loopback."""

    def __init__(self, target: int, seed: int = 7, certificate: Path | None = None) -> None:
        self.target = target
        self.log: list[tuple[str, str, int]] = []
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            # A client that resumes a session does not look at the certificate again.
            self._tls.num_tickets = 0
            self._tls.options |= ssl.OP_NO_TICKET
            self.present(certificate)
        scheme = "http" if self._tls is None else "https"
        self.uri = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def start(self) -> Proxy:
        self._thread.start()
        return self

    def present(self, certificate: Path) -> None:
        """Shows another certificate from now on, and ends all connections."""
        if self._tls is None:
            raise BedError("the proxy has no TLS")
        self._tls.load_cert_chain(certificate)
        self._server.hang_up()

    def ask_for_certificates(self, authority: Path) -> None:
        """Serves only clients with a certificate of `authority` from now on, and ends all connections."""
        if self._tls is None:
            raise BedError("the proxy has no TLS")
        self._tls.verify_mode = ssl.CERT_REQUIRED
        self._tls.load_verify_locations(authority)
        self._server.hang_up()

    def secured(self, connection: socket.socket) -> socket.socket:
        """Begins TLS on a connection, where there is any."""
        return connection if self._tls is None else self._tls.wrap_socket(connection, True)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def rule(self, action: Action, **options) -> Rule:
        """Adds a rule; the first that fits decides."""
        rule = Rule(action, **options)
        with self._lock:
            self._rules.append(rule)
        return rule

    def on_commit(self, action: Action, **options) -> Rule:
        """Adds a rule for commits."""
        return self.rule(action, method="POST", path=COMMIT, **options)

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def count(self, method: str, path: str) -> int:
        """Counts the requests so far."""
        with self._lock:
            return sum(1 for m, p, _ in self.log if m == method and re.search(path, p))

    def answer(self, asked: Asked) -> Answer | None:
        action = None
        if not any(name.lower() == "x-bed" for name, _ in asked.headers):
            with self._lock:
                for rule in self._rules:
                    if rule.fits(asked, self._random.random()):
                        rule.met += 1
                        action = rule.action
                        break
        answer = self.forward(asked) if action is None else action(asked, self.forward)
        with self._lock:
            self.log.append((asked.method, asked.path, 0 if answer is None else answer.status))
        return answer

    def forward(self, asked: Asked) -> Answer:
        """Sends a request on, once."""
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=120)
        try:
            connection.putrequest(asked.method, asked.path, skip_host=True, skip_accept_encoding=True)
            for name, value in asked.headers:
                if name.lower() not in OWN:
                    connection.putheader(name, value)
            if asked.body or asked.method in ("POST", "PUT"):
                connection.putheader("Content-Length", str(len(asked.body)))
            connection.endheaders(asked.body or None)
            got = connection.getresponse()
            return Answer(got.status, got.getheaders(), got.read())
        except OSError as broken:
            return error(502, f"BadGateway {type(broken).__name__}")
        finally:
            connection.close()


class Gate:
    """A TCP port in front of another one. While it is closed it takes connections and is silent, as
    a host behind a broken firewall is."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._opened = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self) -> None:
        self._opened.set()

    def stop(self) -> None:
        self._opened.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._opened.wait()
        with contextlib.suppress(OSError):
            server = socket.create_connection(("127.0.0.1", self._target))
            pipe = threading.Thread(target=self._copy, args=(server, client), daemon=True)
            pipe.start()
            self._copy(client, server)

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(65536):
                target.sendall(data)


class Proxied:
    """A catalog whose connector goes through a proxy, while tests go straight to it."""

    def __init__(self, catalog, port: int, certificate: Path | None = None) -> None:
        self.direct = catalog
        self.proxy = Proxy(port, certificate=certificate).start()

    def connector(self) -> dict[str, str]:
        return {**self.direct.connector(), "iceberg.catalog.uri": self.proxy.uri}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: Proxy

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self._connections: list[socket.socket] = []

    def hang_up(self) -> None:
        """Ends all connections."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()

    def process_request_thread(self, request, client_address) -> None:
        """A thread of its own takes the time that a handshake needs."""
        try:
            connection = self.proxy.secured(request)
        except OSError:
            # The client does not like the certificate.
            self.shutdown_request(request)
            return
        self._connections.append(connection)
        super().process_request_thread(connection, client_address)

    def handle_error(self, request, client_address) -> None:
        """A client that went away is part of the game."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_) -> None:
        """The proxy keeps its own log."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _any(self) -> None:
        server = self.server
        if not isinstance(server, _Server):
            raise BedError("the handler belongs to the proxy")
        asked = Asked(
            self.command, self.path, list(self.headers.items()), self._body(), time.monotonic()
        )
        answer = server.proxy.answer(asked)
        if answer is None:
            # No farewell, but a reset.
            self.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            self.connection.close()
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            lower = name.lower()
            if lower not in OWN or lower == "content-length" and self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD" and answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD" and answer.status not in (204, 304):
            self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _any

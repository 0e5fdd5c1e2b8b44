"""Child processes of the bed: loopback ports, logs in a file, ended by their own pid."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable, Mapping, Sequence


class BedError(Exception):
    """The bed itself, not what is tested on it, does not work."""


_handed_out: set[int] = set()


def free_port() -> int:
    """Returns a loopback port that nobody listens on and that was not handed out before."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        # SeaweedFS derives a second port from each one: stay clear of the top of the range.
        if port not in _handed_out and port < 55000:
            _handed_out.add(port)
            return port


def wait_until(what: str, condition: Callable[[], object], timeout: float, pause: float = 0.1):
    """Calls `condition` until it answers something true, and returns that."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise BedError(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(pause)


def listens(port: int) -> bool:
    """Tells whether somebody accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """One child process whose output goes to `log`."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._child is None:
            raise BedError(f"{self.name} was not started")
        return self._child.pid

    def start(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
    ) -> None:
        """Starts the child; a log of an earlier start is continued. Root may name another user."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self._child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
                user=user,
            )

    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def wait_ready(self, ready: Callable[[], object], timeout: float = 120) -> None:
        """Waits until `ready` answers, and fails at once when the child has ended."""

        def check() -> bool:
            if not self.running():
                raise BedError(f"{self.name} ended while it started:\n{self.tail()}")
            return bool(ready())

        try:
            wait_until(f"{self.name} to be ready", check, timeout)
        except BedError as error:
            raise BedError(f"{error}\n{self.tail()}") from None

    def stop(self, timeout: float = 30) -> None:
        """Asks the child to end, and ends it when it does not."""
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def interrupt(self, timeout: float = 30) -> None:
        """As `stop`, by the signal that a terminal sends."""
        if self._child is None or self._child.poll() is not None:
            return
        self._child.send_signal(signal.SIGINT)
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends the child at once, as `kill -9` does."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()

    def pause(self) -> None:
        """Stops the child as it stands, as a long garbage collection or a frozen machine does."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused child go on."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_ended(self, timeout: float = 60) -> None:
        """Waits until the child has ended by itself."""
        wait_until(f"{self.name} to end", lambda: not self.running(), timeout)

    def output(self) -> str:
        """Returns everything that the child has said."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.output().splitlines()[-lines:])

"""A relay in front of a store, in a process of its own: bytes pass, or every request gets a 503.

Turned bad, it also cuts the connections that are open, so that bodies end in the middle. It is told
by files: `<folder>/bad` is there or not. `python relay.py TARGET-PORT PORT FOLDER` runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

BAD = b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
BODY = b"<Error><Code>SlowDown</Code><Message>injected</Message></Error>"


class Relay:
    def __init__(self, target: int, folder: Path) -> None:
        self.target, self.bad = target, folder / "bad"
        self.open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await (self.refuse(reader, writer) if self.bad.exists() else self.pass_on(reader, writer))
        self.open.discard(writer)
        writer.close()

    async def refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(BAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
        await writer.drain()

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            await asyncio.gather(copy(reader, back), copy(there, writer))
        finally:
            back.close()

    async def watch(self) -> None:
        was = False
        while True:
            now = self.bad.exists()
            if now and not was:
                for writer in list(self.open):
                    writer.transport.abort()
            was = now
            await asyncio.sleep(0.1)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies until the end, and passes that on too."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def main(target: int, port: int, folder: Path) -> None:
    relay = Relay(target, folder)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", port, limit=1 << 20)
    async with server:
        await asyncio.gather(server.serve_forever(), relay.watch())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))

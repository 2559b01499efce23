"""Messages between the leader of a service and its replicas: a length of four bytes, then bytes.

The leader sends requests, a replica answers. An empty message of a replica says that it leaves: it
still answers a request that the leader has sent, and gets no further one.
"""

from __future__ import annotations

import asyncio
import struct

MOST_BYTES = 16 << 20  # of a request or an answer
LEAVES = b""  # what a replica says in place of an answer before it ends
_LENGTH = struct.Struct(">I")


async def read_frame(reader: asyncio.StreamReader, most: int = MOST_BYTES) -> bytes:
    """The next message.

    Raises:
        ConnectionError: the other side is gone, or its message is too long.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > most:
            raise ConnectionError(f"a message of {length} bytes, above {most}")
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the other side has closed the connection") from error


async def write_frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a message.

    Raises:
        ConnectionError: the other side is gone.
    """
    send_frame(writer, data)
    await writer.drain()


def send_frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a message without a wait; whether the other side is gone shows at the next one."""
    writer.write(_LENGTH.pack(len(data)) + data)

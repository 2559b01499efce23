"""Messages between the leader of a service and its replicas: a length of four bytes, then bytes."""

from __future__ import annotations

import asyncio
import struct

MOST_BYTES = 16 << 20  # of a request or an answer
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
    writer.write(_LENGTH.pack(len(data)) + data)
    await writer.drain()

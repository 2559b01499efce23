"""The frames of a call on the local socket for calls; standard library only.

A connection carries one call: the client sends a head (the method's name and the size of its
message) and the message; the server answers with frames, of which the last is an end or a refusal.
The kernel tells the server which user calls, so nothing of that is sent.
"""

from __future__ import annotations

import struct

HEAD = struct.Struct(">4sBI")  # the mark, the length of the method's name, the message's bytes
MARK = b"DLS1"
FRAME = struct.Struct(">BI")  # its kind, its bytes
MESSAGE, END, REFUSED = 0, 1, 2
NOT_TAKEN_MARK = "not-taken"
_LINE = "\n"


def calls_path(socket_path: str) -> str:
    """Return the path of the socket for calls beside a daemon's gRPC socket."""
    return socket_path.removesuffix(".sock") + ".calls"


def head_of(method: str, size: int) -> bytes:
    """Return the head of a call; the method without its service."""
    name = method.encode()
    return HEAD.pack(MARK, len(name), size) + name


def frame_of(kind: int, body: bytes = b"") -> bytes:
    """Return one frame of an answer."""
    return FRAME.pack(kind, len(body)) + body


def refusal_body(code: str, text: str, *, not_taken: bool) -> bytes:
    """Return the body of a refusal: the name of its status, a mark, and the line for the user."""
    return _LINE.join((code, NOT_TAKEN_MARK if not_taken else "", text)).encode()


def parsed_refusal(body: bytes) -> tuple[str, bool, str]:
    """Return the status, whether the daemon did nothing, and the line of a refusal."""
    code, mark, text = body.decode("utf-8", "replace").split(_LINE, 2)
    return code, mark == NOT_TAKEN_MARK, text

"""Addresses that are listened on or dialled: `HOST:PORT`, `[::1]:PORT`, `unix:/path`.

Parsed once, at the door; what is loopback is decided by the numbers a name resolves to.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass

from dlsched.core.errors import BadInput, NotTrusted

__all__ = ["MAX_MESSAGE_BYTES", "Endpoint", "check_socket", "parse_endpoint"]

MAX_MESSAGE_BYTES = 32 * 2**20  # on both sides of every channel
PATH_BYTES = 107  # of a unix socket's address, without the closing zero


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address; `path` for unix sockets, else `host` and `port`."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def login_path(self) -> str:
        """Of the login socket beside a daemon's unix socket."""
        return os.path.join(os.path.dirname(self.path), "login.sock")

    def loopback(self) -> Endpoint:
        """This address as numbers, when nobody outside this machine can reach it.

        Raises:
            NotTrusted: when somebody could.
        """
        if self.path:
            return self
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise BadInput(f"{self}: {error.strerror or error}") from None
        numbers = [str(where[4][0]) for where in found]
        if not all(ipaddress.ip_address(number.split("%")[0]).is_loopback for number in numbers):
            raise NotTrusted(
                f"{self} is not a loopback address: without TLS only this machine may connect "
                "(dlsched admin init makes certificates)"
            )
        return Endpoint(host=numbers[0], port=self.port)


def parse_endpoint(text: str) -> Endpoint:
    """An address from its text.

    Raises:
        BadInput: when it is none.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/"):
            raise BadInput(f"{text!r}: unix:/PATH, from the root")
        if len(os.fsencode(path)) > PATH_BYTES:
            raise BadInput(f"{text!r}: a socket's path has up to {PATH_BYTES} bytes")
        return Endpoint(path=path)
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadInput(f"{text!r}: write an IPv6 address as [ADDRESS]:PORT")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise BadInput(f"{text!r}: HOST:PORT or unix:/PATH")
    return Endpoint(host=host, port=int(port))


def check_socket(path: str) -> int:
    """The user who serves a local socket, by the file's owner.

    A folder that others can write to could hold anybody's socket, so there only one's own and
    root's count.

    Raises:
        NotTrusted: when it may be somebody else's.
    """
    found, folder = os.stat(path), os.stat(os.path.dirname(path))
    trusted = {0, os.getuid()}
    if found.st_uid in trusted:
        return found.st_uid
    if folder.st_uid not in {*trusted, found.st_uid} or folder.st_mode & 0o022:
        raise NotTrusted(
            f"{path} belongs to user id {found.st_uid}, in a folder that others can write to"
        )
    return found.st_uid

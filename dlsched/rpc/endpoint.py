"""Addresses of servers: `HOST:PORT`, `[::1]:PORT`, `unix:/path`.

Whether a host is loopback depends on the IP addresses to which its name resolves.
"""

from __future__ import annotations

import os
import socket

from dlsched.core.errors import BadInput, NotTrusted
from dlsched.record import Record

MAX_MESSAGE_BYTES = 32 * 2**20  # on both sides of every channel
NOT_TAKEN = "dlsched-not-taken"  # in the metadata of a refusal: the daemon did nothing
PATH_BYTES = 107  # of a unix socket's address, without the closing zero


class Endpoint(Record, kw_only=False):
    """One address; `path` for unix sockets, else `host` and `port`."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def loopback(self) -> Endpoint:
        """This address with an IP address for its host, if only this machine can reach it.

        Raises:
            NotTrusted: other machines could reach it.
        """
        if self.path:
            return self
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise BadInput(f"{self}: {error.strerror or error}") from None
        import ipaddress  # noqa: PLC0415  # few addresses are checked

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
        BadInput: it is not an address.
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


def endpoint_at(host: str, port: int) -> Endpoint:
    """The address of a host with this port; an IPv6 address may stand in brackets or without.

    Raises:
        BadInput: it is no host.
    """
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    return parse_endpoint(str(Endpoint(host=bare, port=port)))


def check_socket(path: str) -> int:
    """The user id of a local socket's server: the owner of the file.

    In a folder that other users can write to, only sockets of root and of this process's user are
    trusted.

    Raises:
        NotTrusted: the socket may belong to another user.
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

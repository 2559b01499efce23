"""Which browser sees the page, and as which user its questions reach the daemon.

The daemon itself authorises every question, as it does for the command line; here a browser only
hands over with what it is to be asked.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie
from typing import Protocol

from dlsched.client.daemon_address import DaemonAddress

COOKIE = "dlsched-key"


@dataclass(frozen=True, slots=True)
class Turned:
    """A browser that is not let in: the status, headers, and one line for its user."""

    status: int
    line: str
    headers: tuple[tuple[str, str], ...] = ()


class Viewers(Protocol):
    """The rule by which browsers are let in."""

    def address_for(self, headers: Mapping[str, str], key: str | None) -> DaemonAddress | Turned:
        """How the daemon is asked for this browser.

        Args:
            headers: of the request.
            key: the value of `key` in the address of the page, if there is one.
        """


@dataclass(frozen=True, slots=True)
class EveryViewer:
    """For development: every process of this machine, as with `--insecure-loopback`."""

    address: DaemonAddress

    def address_for(self, headers: Mapping[str, str], key: str | None) -> DaemonAddress | Turned:
        """The same for all."""
        return self.address


@dataclass(frozen=True, slots=True)
class ByToken:
    """A viewer shows a token of `dlsched admin token create` as the password (HTTP Basic)."""

    address: DaemonAddress

    def address_for(self, headers: Mapping[str, str], key: str | None) -> DaemonAddress | Turned:
        """The address with the viewer's token, which the daemon checks with each question."""
        kind, _, rest = headers.get("Authorization", "").partition(" ")
        token = ""
        if kind.lower() == "basic":
            try:
                token = base64.b64decode(rest, validate=True).decode("ascii").partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                token = ""
        if not token or not token.isprintable():
            return ask_for_token("a token of `dlsched admin token create` is the password")
        return replace(self.address, token=token)


def ask_for_token(line: str) -> Turned:
    """Make the browser ask for a token."""
    realm = 'Basic realm="dlsched: a token is the password", charset="UTF-8"'
    return Turned(401, line, (("WWW-Authenticate", realm),))


class ByKey:
    """One user's own page: the address that is printed has a random key; then a cookie has it."""

    def __init__(self, address: DaemonAddress) -> None:
        """Make a key; `address` is the user's own."""
        self.key = secrets.token_urlsafe(24)
        self._address = address

    def address_for(self, headers: Mapping[str, str], key: str | None) -> DaemonAddress | Turned:
        """The user's own address, for a browser that has the key."""
        if key is not None and hmac.compare_digest(key.encode(), self.key.encode()):
            cookie = f"{COOKIE}={self.key}; HttpOnly; SameSite=Strict; Path=/"
            return Turned(303, "", (("Location", "/"), ("Set-Cookie", cookie)))
        try:
            held = SimpleCookie(headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            held = None
        if held is None or not hmac.compare_digest(held.value.encode(), self.key.encode()):
            return Turned(403, "open the address that `dlsched web` has printed")
        return self._address

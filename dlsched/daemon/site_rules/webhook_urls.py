"""Which URLs a daemon may call: those that the site names, and those that begin as it allows.

A daemon sits inside the site's network. So users choose no host, no port and no way around a
path: a job's URL has the scheme, host and port of an allowed one, and continues its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from dlsched.core.errors import BadInput, shorten

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f:.]*:[0-9a-f:.]*")
_PORTS = {"http": 80, "https": 443}


class WebhookUrl(NamedTuple):
    """A checked URL; a path begins with a slash, and a query with a question mark."""

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def place(self) -> str:
        """Scheme, host and port: what may be shown, because a path can be a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    def __str__(self) -> str:
        return f"{self.place}{self.path}{self.query}"


def read_url(text: str) -> WebhookUrl:
    """Read a URL.

    Raises:
        BadInput: it is not a plain http or https URL.
    """
    shown = repr(shorten(text))
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadInput(f"{shown} is not a URL") from None
    host = (parts.hostname or "").lower()
    if parts.scheme not in _PORTS or not _HOST.fullmatch(host):
        raise BadInput(f"{shown} is not an http:// or https:// URL")
    if "@" in parts.netloc or parts.fragment:
        raise BadInput(f"{shown}: a URL with a user name or a fragment is not taken")
    if not text.isascii() or any(c.isspace() or ord(c) < 32 or c == "\\" for c in text):
        raise BadInput(f"{shown}: write what is not plain ASCII as %XX")
    path = parts.path or "/"
    if any(piece in (".", "..") for piece in re.split(r"[/\\]", unquote(path))):
        raise BadInput(f"{shown}: its path has . or .. in it")
    query = f"?{parts.query}" if parts.query else ""
    return WebhookUrl(parts.scheme, host, port or _PORTS[parts.scheme], path, query)


def is_allowed(url: WebhookUrl, allowed: Iterable[WebhookUrl]) -> bool:
    """Whether a URL begins as one of some allowed ones; a path counts by whole pieces."""
    for each in allowed:
        same = (url.scheme, url.host, url.port) == (each.scheme, each.host, each.port)
        folder = each.path if each.path.endswith("/") else each.path + "/"
        if same and (url.path == each.path or url.path.startswith(folder)):
            return True
    return False

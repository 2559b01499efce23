"""The HTTP server of the page: GET only, a bounded number of requests at once.

Without TLS it listens on loopback only. A request that names another host is refused, so that no
other site can make a browser read the page under a name of its own.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections import Counter, OrderedDict
from http.server import HTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from dlsched.cli.web.cluster_view import ClusterView
from dlsched.cli.web.page import cluster_page
from dlsched.cli.web.viewers import ByToken, Turned, Viewers, ask_for_token
from dlsched.client.daemon_address import DaemonAddress
from dlsched.core.errors import BadInput, DlschedError, NotTrusted
from dlsched.rpc.bounded_http import BoundedHandler, BoundedServer
from dlsched.rpc.endpoint import Endpoint
from dlsched.rpc.tls import KeyFiles

log = logging.getLogger("dlsched.cli.web")
AT_ONCE = 16  # requests that are answered; further ones are refused
AT_ONCE_OF_ONE = 4  # of one viewer
MOST_VIEWERS = 64  # whose last page is kept
SILENT_S = 20.0  # until a connection that says nothing is closed
Headers = tuple[tuple[str, str], ...]
_HEADERS: Headers = (
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)


class Answer(NamedTuple):
    """An answer to a browser."""

    status: int
    content: bytes
    headers: Headers = ()
    kind: str = "text/html; charset=utf-8"


class PageServer:
    """Serves the page of one cluster.

    Attributes:
        address: of the page, as a browser takes it.
    """

    def __init__(self, listen: Endpoint, viewers: Viewers, *, tls: KeyFiles | None = None) -> None:
        """Listen; `serve` answers.

        Args:
            listen: address of the page; port 0: any free one.
            viewers: which browsers are let in.
            tls: the certificate to use where others than this machine can reach the address.

        Raises:
            DlschedError: the address cannot be used, or needs a certificate that is not there.
        """
        try:
            end = listen.loopback()
            tls = None  # what is said stays on this machine
        except NotTrusted:
            if tls is None:
                raise
            end = listen
        self._viewers = viewers
        self._views: OrderedDict[DaemonAddress, ClusterView] = OrderedDict()
        self._lock = threading.Lock()
        self._answered: Counter[DaemonAddress] = Counter()  # requests under way, by viewer
        self._tls = None if tls is None else _context(tls)
        try:
            self._server = _Server(self, (end.host, end.port))
        except OSError as error:
            raise BadInput(f"{listen}: cannot listen there ({error.strerror})") from None
        self.port = int(self._server.server_address[1])
        scheme = "http" if self._tls is None else "https"
        self.address = f"{scheme}://{Endpoint(host=listen.host, port=self.port)}/"
        names = {listen.host, end.host, "localhost"}
        self._hosts = {str(Endpoint(host=name, port=self.port)).lower() for name in names}

    def serve(self) -> None:
        """Answer until `close`."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop listening and hang up on the daemon."""
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            views = list(self._views.values())
            self._views.clear()
        for view in views:
            view.close()

    def answer(self, request: _Request) -> Answer:
        """What a request is answered with."""
        if self._tls is None and request.headers.get("Host", "").lower() not in self._hosts:
            return _line(421, f"this is {self.address}")
        parts = urlsplit(request.path)
        if parts.path != "/":
            return _line(404, "there is one page: /")
        key = parse_qs(parts.query).get("key", [None])[0]
        found = self._viewers.address_for(dict(request.headers.items()), key)
        if isinstance(found, Turned):
            return _line(found.status, found.line, found.headers)
        if not self._takes_room(found):
            return _line(503, "many requests at once: try again", (("Retry-After", "2"),))
        try:
            return self._page(found)
        finally:
            with self._lock:
                self._answered[found] -= 1
                self._answered = +self._answered  # without those that have none

    def _takes_room(self, viewer: DaemonAddress) -> bool:
        """Count one more request of a viewer; False: there are as many as may be."""
        with self._lock:
            mine, every = self._answered[viewer], self._answered.total()
            if mine >= AT_ONCE_OF_ONE or every >= AT_ONCE:
                return False
            self._answered[viewer] += 1
            return True

    def _page(self, address: DaemonAddress) -> Answer:
        try:
            return Answer(200, cluster_page(self._view(address).seen()).encode())
        except NotTrusted as error:
            self._forget(address)
            if not isinstance(self._viewers, ByToken):
                return _line(403, str(error))
            again = ask_for_token(str(error))
            return _line(again.status, again.line, again.headers)
        except DlschedError as error:
            return _line(502, str(error), (("Retry-After", "5"),))
        except Exception:
            log.exception("event=page-failed")
            return _line(500, "the page cannot be made: the server's log says why")

    def _view(self, address: DaemonAddress) -> ClusterView:
        dropped = None
        with self._lock:
            view = self._views.setdefault(address, ClusterView(address))
            self._views.move_to_end(address)
            if len(self._views) > MOST_VIEWERS:
                _, dropped = self._views.popitem(last=False)
        if dropped is not None:
            dropped.close()
        return view

    def _forget(self, address: DaemonAddress) -> None:
        with self._lock:
            view = self._views.pop(address, None)
        if view is not None:
            view.close()


def _line(status: int, line: str, headers: Headers = ()) -> Answer:
    return Answer(status, f"{line}\n".encode(), headers, "text/plain; charset=utf-8")


def _context(files: KeyFiles) -> ssl.SSLContext:
    files.read()  # says in one line what is wrong with them
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    return context


class _Server(BoundedServer, HTTPServer):
    def __init__(self, owner: PageServer, where: tuple[str, int]) -> None:
        self.owner = owner
        if ":" in where[0]:
            self.address_family = socket.AF_INET6
        super().__init__(where, _Request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Speak TLS in the thread of the request, so that a silent caller holds up no other."""
        request.settimeout(SILENT_S)
        context = self.owner._tls
        if context is not None:
            plain = request
            try:
                request = context.wrap_socket(plain, server_side=True)
            except OSError:
                return
            self.goes_on_as(plain, request)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that hangs up is no error."""


class _Request(BoundedHandler):
    server: _Server
    timeout = SILENT_S
    server_version = "dlsched"
    sys_version = ""

    def do_GET(self) -> None:  # noqa: N802  # the name is the library's
        """Answer with the page."""
        answer = self.server.owner.answer(self)
        self.send_response(answer.status)
        length = ("Content-Length", str(len(answer.content)))
        for name, value in (("Content-Type", answer.kind), length, *answer.headers, *_HEADERS):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep silent: addresses of the page may hold a key."""

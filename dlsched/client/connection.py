"""One connection to the daemon: a call on the local socket, or over gRPC.

A client on the daemon's machine makes its short calls on the socket beside the gRPC one, since
loading gRPC costs more than such a call. Whatever does not go that way goes over gRPC, which also
waits for a daemon that is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from dlsched.client.daemon_address import DaemonAddress
from dlsched.client.errors import ConnectionLost, Unavailable, refusal
from dlsched.client.local_call import NotReached, Refused, local_call
from dlsched.rpc.endpoint import parse_endpoint

if TYPE_CHECKING:
    from dlsched.client.grpc_connection import BidirectionalCall, GrpcConnection

T = TypeVar("T")
ANSWER_S = 60.0


def _as_it_is(message: Any) -> Any:
    return message


class Connection:
    """How requests reach the daemon, for one thread."""

    def __init__(
        self, address: DaemonAddress, on_wait: Callable[[str], None] = lambda _: None
    ) -> None:
        """Connect later, with the first request.

        Args:
            address: one address, or those of several daemons of which one leads.
            on_wait: is called with a line when the daemon is waited for.
        """
        self.fate_unknown = False  # may a daemon have done the last request all the same?
        self._answered = False
        self._address = address
        self._on_wait = on_wait
        self._grpc: GrpcConnection | None = None
        ends = [parse_endpoint(each.strip()) for each in address.daemon.split(",")]
        self._path = ends[0].path if len(ends) == 1 else ""

    @property
    def answered(self) -> bool:
        """Has a daemon answered before?"""
        return self._answered or (self._grpc is not None and self._grpc.answered)

    def close(self) -> None:
        """End all calls."""
        if self._grpc is not None:
            self._grpc.close()

    def ask(
        self, method: str, request: Any, *, repeatable: bool, within_s: float = ANSWER_S
    ) -> Any:
        """Send a request and return the answer; repeat the request while that is safe.

        Args:
            method: a method of the Control service.
            request: its message.
            repeatable: has doing it twice the same effect as doing it once?
            within_s: time limit for each answer, in seconds.

        Raises:
            DlschedError: with one line that says why.
        """
        answers = self._locally(method, request, _as_it_is, repeatable, within_s)
        if answers is not None:
            return answers[0]
        over = self._over_grpc()
        try:
            return over.ask(method, request, repeatable=repeatable, within_s=within_s)
        finally:
            self.fate_unknown |= over.fate_unknown

    def gather(
        self, method: str, request: Any, read: Callable[[Any], T], *, within_s: float = ANSWER_S
    ) -> list[T]:
        """Return what is read of every message of a stream that changes nothing.

        Args:
            method: a method of the Control service.
            request: its message.
            read: is called with each message as it comes, while the daemon makes the next ones.
            within_s: time limit, in seconds.

        Raises:
            DlschedError: as for `ask`.
        """
        answers = self._locally(method, request, read, True, within_s)
        if answers is not None:
            return answers
        return self._over_grpc().gather(method, request, read, within_s=within_s)

    def stream(
        self, method: str, request: Any, *, first_again: bool = False, patient: bool = True
    ) -> Iterator[Any]:
        """Return the messages of a stream as they come.

        Args:
            method: a method of the Control service.
            request: its message.
            first_again: whether to ask again when the connection is lost before the first message.
            patient: whether a daemon that is away is waited for.

        Raises:
            ConnectionLost: the connection was lost.
            DlschedError: as for `ask`.
        """
        over = self._over_grpc()
        return over.stream(method, request, first_again=first_again, patient=patient)

    def converse(
        self, method: str, requests: Iterator[Any], *, patient: bool = True
    ) -> BidirectionalCall:
        """Begin a call in both directions.

        Args:
            method: a method of the Control service.
            requests: its messages, read by a thread.
            patient: whether a daemon that is away is waited for.

        Raises:
            DlschedError: as for `ask`.
        """
        return self._over_grpc().converse(method, requests, patient=patient)

    def _over_grpc(self) -> GrpcConnection:
        if self._grpc is None:
            from dlsched.client.grpc_connection import GrpcConnection  # noqa: PLC0415  # costs most

            self._grpc = GrpcConnection(self._address, self._on_wait)
            self._grpc.answered = self._answered
        self._grpc.fate_unknown = False
        return self._grpc

    def _locally(
        self,
        method: str,
        request: Any,
        read: Callable[[Any], T],
        repeatable: bool,
        within_s: float,
    ) -> list[T] | None:
        """The answers of a call on the local socket; None: ask over gRPC."""
        self.fate_unknown = False
        if not self._path:
            return None
        end = f"unix:{self._path}"
        lost = ConnectionLost(f"lost the connection to the daemon at {end}")
        try:
            answers = local_call(self._path, method, request, within_s, read)
        except NotReached:
            return None  # gRPC says why, and waits
        except Refused as refused:
            if refused.code == "UNAVAILABLE" and (refused.not_taken or repeatable):
                self.fate_unknown = not refused.not_taken
                return None
            self.fate_unknown = not refused.not_taken
            raise refusal(refused.code, str(refused), end) from None
        except TimeoutError:
            self.fate_unknown = True
            raise Unavailable(f"no answer from the daemon at {end}") from None
        except OSError:
            self.fate_unknown = True
            if repeatable:
                return None
            raise lost from None
        self._answered = True
        return answers

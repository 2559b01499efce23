"""Why runs fail: which rank failed first, and with which error.

When one rank of a gang fails, the others fail too, because it has closed its connections to them.
Their errors are follow-ups. The cause is the first error that is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dlsched.protocol.messages import RunId

MOST_RUNS = 10_000
MOST_OF_A_RUN = 64
LONGEST = 500  # characters of an error
_FOLLOW_UP = re.compile(
    r"connection (closed|reset)|broken ?pipe|socket timeout|remote process exited|closed by peer"
    r"|timed out waiting|watchdog|eoferror|signal (9|15)\b|exit (137|143)\b|ChildFailedError",
    re.IGNORECASE,
)
_ONLY_A_CODE = re.compile(r"(exit|signal) \d+")
_PREFIX = re.compile(r"\[(?:rank ?)?(\d+)\]:? ?|(\d+): ")  # of a rank, before its lines
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Failure|Exit)\b.*|[\w.]+: .+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One rank's failure.

    Attributes:
        rank: None where it is not known.
        node: where it ran.
        error: in one line.
        at: seconds since the epoch, on its node.
    """

    rank: int | None
    node: str
    error: str
    at: float

    @property
    def is_bare(self) -> bool:
        """Whether only an exit code or a signal is known."""
        return _ONLY_A_CODE.fullmatch(self.error) is not None

    def __str__(self) -> str:
        where = self.node if self.rank is None else f"rank {self.rank} on {self.node}"
        return f"{where}: {self.error}"


class Failures:
    """What ranks have said of their failures, until their runs are over."""

    def __init__(self) -> None:
        self.of: dict[RunId, list[Failure]] = {}
        self.over_since: dict[RunId, float] = {}  # by `boottime`

    def add(self, run: RunId, failure: Failure) -> None:
        """Note a failure; the newest runs are kept."""
        known = self.of.setdefault(run, [])
        if len(known) < MOST_OF_A_RUN:
            known.append(failure)
        while len(self.of) > MOST_RUNS:
            self.forget(next(iter(self.of)))

    def forget(self, run: RunId) -> None:
        """Forget a run."""
        self.of.pop(run, None)
        self.over_since.pop(run, None)


def first_cause(failures: Iterable[Failure]) -> Failure:
    """The failure from which the others follow, of at least one."""
    said = list(failures)
    in_words = {each.rank for each in said if not each.is_bare}
    told = [each for each in said if not (each.is_bare and each.rank in in_words)]
    return min(told, key=lambda each: (_follows(each.error), each.at))


def _follows(error: str) -> bool:
    return _FOLLOW_UP.search(error) is not None


def error_in(output: str) -> tuple[int | None, str] | None:
    """The error that the end of an output tells, with the rank where its lines name it.

    Of several tracebacks the first counts that is no follow-up; without any, the last line that
    speaks of an error. None: there is none.
    """
    found = list(_exceptions(output.splitlines()))
    for rank, text in found:
        if not _follows(text):
            return rank, text[:LONGEST]
    if found:
        return found[0][0], found[0][1][:LONGEST]
    for line in reversed(output.splitlines()):
        rank, text = _unprefixed(line)
        if re.search(r"error|fatal|killed|not found", text, re.IGNORECASE):
            return rank, text.strip()[:LONGEST]
    return None


def _exceptions(lines: Iterable[str]) -> Iterator[tuple[int | None, str]]:
    """The last line of each traceback; lines of several ranks may be mixed."""
    inside: set[int | None] = set()
    for line in lines:
        rank, text = _unprefixed(line)
        if text.startswith("Traceback (most recent call last)"):
            inside.add(rank)
        elif rank in inside and text[:1].strip() and _EXCEPTION.fullmatch(text):
            inside.discard(rank)
            yield rank, text


def _unprefixed(line: str) -> tuple[int | None, str]:
    match = _PREFIX.match(line)
    if match is None:
        return None, line
    return int(match[1] or match[2]), line[match.end() :]

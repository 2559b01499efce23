"""What ranks of runs have said of their failures, and which of them is the cause."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dlsched.daemon.reported.error_texts import Weight, weight_of
from dlsched.protocol.messages import RunId

MOST_RUNS = 10_000
MOST_OF_A_RUN = 64
_ONLY_A_CODE = re.compile(r"(?:exit|signal) \d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One rank's failure.

    Attributes:
        rank: None where it is not known.
        node: where it ran.
        error: in one line.
        at: seconds since the epoch, on its node.
        known_weight: how much it says of the cause, where the error alone does not tell.
    """

    rank: int | None
    node: str
    error: str
    at: float
    known_weight: Weight | None = None

    @property
    def is_bare(self) -> bool:
        """Whether only an exit code or a signal is known."""
        return _ONLY_A_CODE.fullmatch(self.error) is not None

    @property
    def weight(self) -> Weight:
        """How much it says of the cause."""
        return weight_of(self.error) if self.known_weight is None else self.known_weight

    @property
    def order(self) -> tuple[int, bool, float]:
        """The lowest is the cause; exit code 1 is that of an exception, which has words."""
        return self.weight, self.error == "exit 1", self.at

    def __str__(self) -> str:
        where = self.node if self.rank is None else f"rank {self.rank} on {self.node}"
        return f"{where}: {self.error}"


class Failures:
    """What ranks have said of their failures, until their runs are over."""

    def __init__(self) -> None:
        self.of: dict[RunId, list[Failure]] = {}
        self.over_since: dict[RunId, float] = {}  # by `boottime`

    def add(self, run: RunId, failure: Failure) -> None:
        """Note a failure; the newest runs are kept, and of each what says most of the cause."""
        known = self.of.setdefault(run, [])
        known.append(failure)
        if len(known) > MOST_OF_A_RUN:
            known.remove(max(known, key=lambda each: each.order))
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
    return min(told, key=lambda each: each.order)

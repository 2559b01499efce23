"""What a row of the table of job fields says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from dlsched.record import Record

Value = str | float | int | bool | tuple[str, ...] | None
Values: TypeAlias = dict[str, Any]  # by name of a field; the table says the type of each

Form = Literal[
    "text",  # one line
    "lines",  # a text that may have line breaks
    "events",  # of the site's notifications, comma-separated
    "pattern",  # a path with %j and the like
    "number",
    "whole",  # a whole number
    "seconds",
    "limit",  # seconds, or no limit
    "moment",  # seconds since the epoch, UTC
    "flag",
    "names",  # several words
    "hosts",  # a host list
    "choice",  # one of `choices`
    "features",  # a constraint on nodes
    "curve",  # a reward curve, as `dlsched.core.rewards` has it
    "own",  # read by code of its own
]


class Option(Record):
    """One spelling of a field on the command line.

    Attributes:
        key: the field's name in `--from` files and DLSCHED_SUBMIT_… variables.
        words: how the option is written.
        help: one line for `--help`.
        kind: a value, a flag, or an option that may be given several times.
        metavar: what stands for the value in `--help`.
        slurm: whether `#SBATCH` lines may hold the option.
        says: what a flag sets.
        grammar: of the value where it is not that of `key`: `gres`.
    """

    key: str
    words: tuple[str, ...]
    help: str
    kind: Literal["value", "flag", "many"] = "value"
    metavar: str = ""
    slurm: bool = False
    says: str = "yes"
    grammar: Literal["", "gres"] = ""

    @property
    def name(self) -> str:
        """The first long word, without dashes, as a Python name."""
        longs = [word for word in self.words if word.startswith("--")]
        return longs[0][2:].replace("-", "_")


class Column(Record):
    """How policies see a field: one number a job.

    Attributes:
        name: of the column of `UnitTable` and `Units`.
        doc: unit and sign: what a larger number means.
        unknown: the value of a job that does not say it; whole numbers have -1.
        is_whole: an int64 column; else float64.
        of: from the field's value, the time of the submit (seconds since the epoch) and the number
            of nodes to the column's value; None: as it is.
    """

    name: str
    doc: str
    unknown: float = math.nan
    is_whole: bool = False
    of: Callable[[Any, float, int], float] | None = None

    def value(self, said: Any, submitted_at: float, nodes: int) -> float:
        """The column's value of one job.

        Args:
            said: the field's value.
            submitted_at: seconds since the epoch.
            nodes: on how many nodes the job runs, 1 where it does not say.
        """
        if said is None:
            return self.unknown
        found: float = said if self.of is None else self.of(said, submitted_at, nodes)
        return found


class Field(Record):
    """One row of the table.

    Attributes:
        name: of the field in `JobBody`, in updates and in JSON.
        form: how texts are read and values are checked.
        options: spellings on the command line.
        least: the smallest number allowed.
        most: the largest number allowed.
        longest: bytes of a text at most.
        choices: the words of a choice.
        bare: what a duration without a unit counts.
        label: what errors call the field; made of the name where it is not given.
        wire: the field of `JobRequest`; empty: it is not sent.
        inverted: the wire's flag says the opposite.
        kept: with the job's body, with the protocol's request, or not.
        update: when `dlsched update` may change it: never, before a start, or at any time.
        clearable: whether an update may take it back.
        shown: whether other users may see it in views.
        csv: the column of a native trace.
        column: the policies' column.
        further: policies see it among the further columns (`Units.extra`), by its CSV name.
        launch: the field of the launch specification that nodes get.
    """

    name: str
    form: Form = "own"
    options: tuple[Option, ...] = ()
    least: float = 0.0
    most: float = 1e15
    longest: int = 256
    choices: tuple[str, ...] = ()
    bare: Literal["minutes", "seconds"] = "minutes"
    label: str = ""
    wire: str = ""
    inverted: bool = False
    kept: Literal["body", "request", "no"] = "body"
    update: Literal["never", "waiting", "always"] = "never"
    clearable: bool = True
    shown: bool = True
    csv: str = ""
    column: Column | None = None
    further: bool = False
    launch: str = ""

    @property
    def title(self) -> str:
        """What messages call the field."""
        for unit in ("_s", "_at"):
            if self.name.endswith(unit) and not self.label:
                return self.name.removesuffix(unit).replace("_", " ")
        return self.label or self.name.replace("_", " ")

"""The parameters of a sweep: one job of an array for each row of a table.

Each column is a variable of the job's environment under its own name, and `{column}` stands for its
value in the command's words, the job's name and its output patterns. `{{` and `}}` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from dlsched.record import Record

MOST_COLUMNS = 64
LONGEST_VALUE = 4096  # bytes
MOST_BYTES = 4 * 1024 * 1024  # of all values together
MODES = ("min", "max")
MOST_STEPS = 2**53

# what the runtime says to the processes of a job
RUNTIME_NAMES = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"),
        *("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    }
)
# how commands inside a job reach the daemon, as its user has set it
OF_CLIENTS = frozenset(
    {
        *("DLSCHED_DAEMON", "DLSCHED_DAEMON_WAIT", "DLSCHED_TOKEN_FILE"),
        *("DLSCHED_INSECURE_LOOPBACK", "DLSCHED_DEBUG"),
    }
)
# of the variables of Slurm, those that the client sets: what the submission asked for
OF_SUBMISSIONS = frozenset(
    {
        *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_CPUS_PER_GPU"),
        *("SLURM_NTASKS_PER_GPU", "SLURM_JOB_DEPENDENCY", "SLURM_JOB_QOS", "SLURM_EXPORT_ENV"),
        "SLURM_KILL_BAD_EXIT",  # the site's
        *("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_OPEN_MODE"),
        *("SLURM_GPU_BIND", "SLURM_DISTRIBUTION", "SLURM_DIST_PLANESIZE"),
    }
)
_OF_THE_SHELL = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "IFS"}
_PREFIXES = ("DLSCHED_", "SLURM_", "CUDA_", "LD_")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Halving(Record):
    """The rule of successive halving that stops jobs of a sweep early.

    Attributes:
        metric: what is compared, as the jobs report it.
        mode: `min` where smaller is better, or `max`.
        eta: at each rung one of so many goes on.
        rung: steps until the first rung; each further one is `eta` times as far.
        most: no rung beyond this step; None: no bound.
    """

    metric: str = "loss"
    mode: str = "min"
    eta: int = 3
    rung: int
    most: int | None = None

    @property
    def rungs_text(self) -> str:
        """The rungs as the job library reads them: `FIRST:FACTOR[:LAST]`."""
        last = "" if self.most is None else f":{self.most}"
        return f"{self.rung}:{self.eta}{last}"

    def rungs_up_to(self, step: int) -> list[int]:
        """The rungs that a job has reached after some steps."""
        last = step if self.most is None else min(step, self.most)
        found, rung = [], self.rung
        while rung <= last:
            found.append(rung)
            rung *= self.eta
        return found


class Sweep(Record):
    """The table of a sweep; the rows belong to the tasks of its array, in their order."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    halving: Halving | None = None

    def of(self, index: int) -> dict[str, str]:
        """The parameters of one job by column."""
        return dict(zip(self.columns, self.rows[index], strict=True))


def column_fault(name: str) -> str:
    """What is wrong with the name of a column; empty when nothing is."""
    if not _COLUMN.fullmatch(name):
        return "is not the name of a variable"
    if name in RUNTIME_NAMES or name in _OF_THE_SHELL or name.startswith(_PREFIXES):
        return "is a variable that the job has already"
    return ""


def text_fault(text: str, columns: Collection[str]) -> str:
    """What is wrong with the `{column}`s of a text; empty when nothing is."""
    for match in _PLACE.finditer(text):
        name = match[1]
        if match[0] in ("{{", "}}") or name in columns:
            continue
        known = ", ".join(columns)
        if name is None:
            return f"a single {match[0]}; write {match[0] * 2} for a brace (columns: {known})"
        return f"{{{name[:40]}}} is no column; columns: {known} (write {{{{ and }}}} for braces)"
    return ""


def columns_in(text: str, columns: Collection[str]) -> list[str]:
    """Those columns that a text has in braces."""
    return [match[1] for match in _PLACE.finditer(text) if match[1] in columns]


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with values put in; what is no column stays as it is."""

    def value(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        return values.get(match[1], match[0]) if match[1] is not None else match[0]

    return _PLACE.sub(value, text)

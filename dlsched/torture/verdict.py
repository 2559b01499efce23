"""What a torture test has seen, and which promises that breaks.

`judge` looks at nothing but its argument, so that each promise can be tried with a history that
breaks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.torture.marks import Marks

ENDED = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "GPU_FAIL", "DEADLINE")
)
PROMISES = {
    "accepted": "every id that was acknowledged is known",
    "terminal": "every such job has ended",
    "unique-ids": "no id was given twice",
    "one-run": "no two runs of a job at once, and no run twice",
    "gpu-once": "no GPU had two jobs at once",
    "exit-codes": "each job ended with its own exit code",
    "ends-stay": "no end was replaced",
    "logs-whole": "no line of an output is lost or doubled",
    "reasons": "every waiting job has a reason",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A promise that was not kept, and where that was seen."""

    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A job that was acknowledged.

    Attributes:
        job: its id.
        code: the exit code that its script ends with.
        lines: how many lines of output a run writes that is left alone.
        may_fail: a fault ended its processes, so it may have failed by that.
    """

    job: int
    code: int = 0
    lines: int = 0
    may_fail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A job as the daemon showed it."""

    state: str
    code: int | None = None
    signal: int | None = None
    starts: int = 0
    reason: str = ""

    @property
    def end(self) -> tuple[str, int | None, int | None] | None:
        """How it ended; None: it has not."""
        return (self.state, self.code, self.signal) if self.state in ENDED else None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that was seen.

    Attributes:
        accepted: the jobs, in the order of their acknowledgements.
        jobs: what the daemon showed last, by id.
        marks: what the jobs themselves wrote.
        outputs: of each job, its output.
        earlier: what the daemon showed before: job and state, oldest first.
        shared: GPUs that the daemon showed with two jobs.
    """

    accepted: Sequence[Accepted] = ()
    jobs: Mapping[int, Seen] = field(default_factory=dict)
    marks: Marks = Marks()
    outputs: Mapping[int, str] = field(default_factory=dict)
    earlier: Sequence[tuple[int, Seen]] = ()
    shared: Sequence[str] = ()


def judge(history: History) -> list[Broken]:
    """The promises that a history breaks; empty when it keeps them all."""
    ids = [each.job for each in history.accepted]
    found = [
        *same_ids(ids),
        *lost(ids, history.jobs),
        *overlaps(history.marks),
        *(Broken(promise="gpu-once", what=text) for text in history.shared),
        *_replaced(history),
    ]
    for each in history.accepted:
        seen = history.jobs.get(each.job)
        if seen is not None:
            found += _of_job(each, seen, history)
    return found


def same_ids(ids: Iterable[int]) -> list[Broken]:
    """The ids that were given twice."""
    doubled = [job for job, count in Counter(ids).items() if count > 1]
    return [Broken(promise="unique-ids", what=f"job {job} was given twice") for job in doubled]


def lost(ids: Iterable[int], known: Iterable[int]) -> list[Broken]:
    """The acknowledged ids that the daemon does not know."""
    there = set(known)
    return [
        Broken(promise="accepted", what=f"job {job} was acknowledged and is not known")
        for job in dict.fromkeys(ids)
        if job not in there
    ]


def overlaps(marks: Marks) -> list[Broken]:
    """The locks that two processes wanted at once, and runs that began twice."""
    found = []
    for text in marks.clashes:
        promise = "one-run" if text.startswith("job-") else "gpu-once"
        found.append(Broken(promise=promise, what=f"a lock was taken: {text}"))
    begun = Counter(line[:3] for line in marks.lines if line[3] == "begin")
    for (job, run, rank), count in begun.items():
        if count > 1:
            what = f"run {run} of job {job} began {count} times as rank {rank}"
            found.append(Broken(promise="one-run", what=what))
    return found


def _replaced(history: History) -> list[Broken]:
    ends: dict[int, tuple[str, int | None, int | None]] = {}
    found = []
    for job, seen in (*history.earlier, *history.jobs.items()):
        if job in ends and seen.end != ends[job]:
            what = f"job {job} had ended as {_words(ends[job])} and was {seen.state} later"
            found.append(Broken(promise="ends-stay", what=what))
        if seen.end is not None:
            ends[job] = seen.end
    return found


def _of_job(each: Accepted, seen: Seen, history: History) -> list[Broken]:
    found = []
    begun = {line[1] for line in history.marks.lines if line[0] == str(each.job)}
    if len(begun) > seen.starts:
        what = f"job {each.job} has begun {len(begun)} runs and is shown with {seen.starts} starts"
        found.append(Broken(promise="one-run", what=what))
    if seen.state == "PENDING" and not seen.reason:
        found.append(Broken(promise="reasons", what=f"job {each.job} waits without a reason"))
    if seen.end is None:
        why = f" ({seen.reason})" if seen.reason else ""
        found.append(Broken(promise="terminal", what=f"job {each.job} is {seen.state}{why}"))
        return found
    wanted = ("COMPLETED" if each.code == 0 else "FAILED", each.code, 0)
    as_wanted = seen.end == wanted
    by_fault = each.may_fail and seen.state in ("FAILED", "NODE_FAIL")
    if not as_wanted and not by_fault:
        what = f"job {each.job} ended as {_words(seen.end)}, its script as {_words(wanted)}"
        found.append(Broken(promise="exit-codes", what=what))
    if each.job in history.outputs:
        found += _output(each, history.outputs[each.job], whole=as_wanted)
    elif each.lines and as_wanted:
        found.append(Broken(promise="logs-whole", what=f"job {each.job} has no output"))
    return found


def _output(each: Accepted, text: str, *, whole: bool) -> list[Broken]:
    """Each run's lines are numbered from 1; only the last run's need be complete."""
    of_runs: dict[str, list[str]] = {}
    for line in text.splitlines():
        run, _, number = line.partition(" ")
        of_runs.setdefault(run, []).append(number)
    found = []
    for run, numbers in of_runs.items():
        if numbers != [str(k + 1) for k in range(len(numbers))]:
            what = f"run {run} of job {each.job}: lines are lost or doubled"
            found.append(Broken(promise="logs-whole", what=what))
    last = len(of_runs[max(of_runs, key=int)]) if of_runs else 0
    if whole and last != each.lines:
        what = f"job {each.job} has {last} of {each.lines} lines of its last run"
        found.append(Broken(promise="logs-whole", what=what))
    return found


def _words(end: tuple[str, int | None, int | None]) -> str:
    state, code, signal = end
    return f"{state} {code}:{signal}"

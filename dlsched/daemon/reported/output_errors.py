"""The errors that the end of an output tells: of one process, or the mixed lines of several ranks.

Read are tracebacks, errors of syntax, aborts of C++ libraries, and what launchers (torchrun,
`torch.multiprocessing.spawn`, `srun`) write about the ranks that they have started. An output is
the user's own and may be anything, so lines, ranks and errors that are read of it are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dlsched.daemon.reported.error_texts import Weight, weight_of

LONGEST = 500  # characters of an error
_MOST_LINES = 5000  # the last ones
_MOST_OF_LINE = 1000  # characters
_MOST_OF_CONTEXT = 2000
_MOST_RANKS = 1024
_MOST_ERRORS = 64  # of one rank, the last ones
_MOST_LINES_BETWEEN = 20  # two errors of one failure
_MOST_LINES_AFTER = 8  # an error, which still tell of it
_PREFIX = re.compile(  # of a rank, before its lines: `2: ` of dlsched and srun, the others of torch
    r"(?:(?P<label>\d{1,6}): )?(?:\[(?:rank|default|trainer|worker) ?(?P<rank>\d{1,6})\]: ?)?"
)
_EXCEPTION = re.compile(
    r"(?!During|The above)"
    r"(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Failure|Exit)\b.*|[A-Za-z_][\w.]*: .+)"
)
_PLACE = re.compile(r"\s*File \"(?:.*/)?([^/]+)\", line (\d+)")
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): .+")
_JOINS = re.compile(
    r"The above exception was the direct cause|During handling of the above exception"
    r"|-- Process \d+ terminated"
)
_SPAWNED = re.compile(r"-- Process (\d+) terminated with the following error")
_IGNORED = re.compile(r"Exception ignored |Error in atexit|--- Logging error ---")
_GLOG = re.compile(  # as C++ libraries log: what ends the process, and what PyTorch says of ranks
    r"\[?(?:F\d{4} [^\]]*|E\d{4} [^\]]*ProcessGroup[^\]]*)\] ?(?:\[.*?\] ?)?(.+)"
)
_ABORT = re.compile(r"terminate called after throwing an instance of '(.+)'")
_WHAT = re.compile(r"\s+what\(\):\s+(.+)")
_SPAWN_CODE = re.compile(r"process (\d+) terminated with (?:signal (\w+)|exit code (\d+))")
_SRUN_CODE = re.compile(
    r"dlsched: run: rank (?P<rank>\d+) on (?P<node>\S+): "
    r"(?:exit code (?P<code>\d+)|ended by signal (?P<signal>\d+))"
)
_SLURM_CODE = re.compile(
    r"srun: error: (?P<node>[^:\s]+): task (?P<rank>\d+): (?:Exited with exit code (?P<code>\d+))"
)
_TABLE = re.compile(r"\s+(host|rank|exitcode) +: (-?[\w.-]+)")
_SPEAKS_OF_ERROR = re.compile(r"error|fatal|killed|not found", re.IGNORECASE)
_LAUNCHERS_OWN = re.compile(
    r"torch/distributed/elastic|Root Cause \(first|Failures:|error_file|traceback :|^-+$|^=+$"
    r"|dlsched: run: |srun: error: "
)
_SIGNALS = {"SIGKILL": 9, "SIGTERM": 15, "SIGSEGV": 11, "SIGABRT": 6, "SIGBUS": 7, "SIGINT": 2}


@dataclass(slots=True, kw_only=True)
class OutputError:
    """One error in an output.

    Attributes:
        text: in one line; of a code or a signal `exit N` or `signal N`.
        label: the number before the line.
        rank: as PyTorch or a launcher names it.
        node: as a launcher names it.
        line: where it is in the output; -1: a launcher names this rank as the first one.
        place: the file and line that has raised it, or empty.
        is_code: nothing is known but the code.
    """

    text: str
    line: int
    label: int | None = None
    rank: int | None = None
    node: str = ""
    place: str = ""
    is_code: bool = False
    context: str = ""  # more lines of it

    @property
    def weight(self) -> Weight:
        """How much it says of the cause."""
        return weight_of(f"{self.text}\n{self.context}")

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return self.text.rstrip(": ")[: LONGEST - len(where)] + where

    @property
    def order(self) -> tuple[int, bool, int]:
        """The lowest is the cause; exit code 1 is that of an exception, which has words."""
        return self.weight, self.is_code and self.text == "exit 1", self.line


@dataclass(slots=True)
class _Source:
    """The lines of one rank, or those without a label."""

    label: int | None
    rank: int | None
    groups: list[list[OutputError]] = field(default_factory=list)  # of each, errors of one chain
    begun: list[int] = field(default_factory=list)  # of each, after so many lines of no error
    plain: int = 0  # lines that belong to no error
    inside: bool = False  # a traceback
    ignored: bool = False  # the traceback that comes next
    joins: bool = False  # the next traceback belongs to the one before
    named_rank: int | None = None  # of the next traceback
    after: int = 0  # so many lines may still tell of the last error
    place: str = ""  # the last one that a traceback has named
    takes_next: bool = False  # the next line is more of the last error
    aborted: str = ""  # the C++ exception whose text comes
    weak: tuple[int, str] = (-1, "")  # the last line that speaks of an error, and where it is

    def add(self, text: str, number: int) -> None:
        """Note an error."""
        error = OutputError(
            text=text,
            line=number,
            place=self.place,
            label=self.label,
            rank=self.rank if self.named_rank is None else self.named_rank,
        )
        if self.joins and self.groups:
            self.groups[-1].append(error)
            del self.groups[-1][:-_MOST_ERRORS]
        else:
            self.groups.append([error])
            self.begun.append(self.plain)
            del self.groups[:-_MOST_ERRORS], self.begun[:-_MOST_ERRORS]
        self.joins, self.named_rank, self.place = False, None, ""
        self.after = _MOST_LINES_AFTER
        self.takes_next = text.endswith(":") and weight_of(text) is not Weight.WRAPPER

    def take(self, text: str, number: int) -> None:  # noqa: PLR0912  # one case a kind of line
        """Read a line without what names the rank."""
        bare = text.strip()
        if found := _PLACE.match(text):
            self.place, self.after = f"{found[1]}:{found[2]}", 0
        elif bare.startswith(("Traceback (most recent", "Original Traceback (most recent")):
            self.inside, self.after, self.takes_next = True, 0, False
            self.joins = self.joins or bare.startswith("Original")
        elif _JOINS.match(bare):
            found = _SPAWNED.match(bare)
            self.joins, self.named_rank = True, int(found[1]) if found else None
        elif _IGNORED.match(bare):
            self.ignored = True
        elif self.inside and text[:1].strip() and _EXCEPTION.fullmatch(text):
            if not self.ignored:
                self.add(bare, number)
            self.inside = self.ignored = False
        elif self.inside:
            pass
        elif _SYNTAX.fullmatch(text) or text.startswith("Fatal Python error: "):
            self.add(bare, number)
        elif found := _ABORT.match(bare):
            self.aborted = found[1]
        elif self.aborted and (found := _WHAT.match(text)):
            self.add(f"{self.aborted}: {found[1]}", number)
            self.aborted = ""
        elif found := _GLOG.match(text):
            self.add(found[1], number)
        elif self.after > 0 and self.groups:
            self._more(bare)
        else:
            self.plain += 1
            if _SPEAKS_OF_ERROR.search(bare) and not _LAUNCHERS_OWN.search(text):
                self.weak = number, bare

    def _more(self, bare: str) -> None:
        """Read a line right after an error."""
        last = self.groups[-1][-1]
        self.after -= 1
        last.context = f"{last.context}\n{bare}"[:_MOST_OF_CONTEXT]
        if self.takes_next and bare:
            last.text, self.takes_next = f"{last.text.rstrip(':')}: {bare}", False
        elif bare == "Last error:":
            self.takes_next = True

    def errors(self) -> Iterator[OutputError]:
        """The errors of the failure; of one rank, the last one that says most of the cause.

        A process that has written other lines after an error has survived it.
        """
        first = len(self.groups) - 1
        while first > 0 and self.begun[first] - self.begun[first - 1] <= _MOST_LINES_BETWEEN:
            first -= 1
        found = [_last_of_least(group) for group in self.groups[max(first, 0) :]]
        if found and (self.label is not None or self.rank is not None):
            found = [_last_of_least(found)]
        yield from found


def _last_of_least(errors: list[OutputError]) -> OutputError:
    return min(reversed(errors), key=lambda each: each.weight)


@dataclass(slots=True)
class _Codes:
    """What launchers write of the ranks that they have started, in lines with one label."""

    label: int | None
    of: dict[int, OutputError] = field(default_factory=dict)  # by rank
    is_first: bool = False  # what torchrun's table tells next
    host: str = ""
    rank: str = ""

    def take(self, line: str, number: int) -> None:
        """Read a line."""
        if line.startswith("Root Cause (first observed"):
            self.is_first = True
        elif found := _TABLE.match(line):
            name, value = found.groups()
            if name == "exitcode" and self.rank.isdigit():
                at = -1 if self.is_first else number
                self._note(int(self.rank), int(value), at, self.host)
            self.host = value if name == "host" else self.host
            self.rank = value if name == "rank" else self.rank
        elif found := _SPAWN_CODE.search(line):
            self._note(int(found[1]), -_SIGNALS.get(found[2], 9) if found[2] else int(found[3]), -1)
        elif found := _SRUN_CODE.search(line):
            code = -int(found["signal"]) if found["signal"] else int(found["code"])
            self._note(int(found["rank"]), code, number, found["node"])
        elif found := _SLURM_CODE.search(line):
            self._note(int(found["rank"]), int(found["code"]), number, found["node"])

    def _note(self, rank: int, code: int, line: int, node: str = "") -> None:
        if rank not in self.of and len(self.of) == _MOST_RANKS:
            return
        text = f"exit {code}" if code >= 0 else f"signal {-code}"
        self.of[rank] = OutputError(
            text=text, line=line, label=self.label, rank=rank, node=node, is_code=True
        )


class Output:
    """What the end of an output tells of a failure."""

    def __init__(self, text: str) -> None:
        """Read it."""
        self._sources: dict[tuple[int | None, int | None], _Source] = {}
        self._codes: dict[int | None, _Codes] = {}  # by label
        for number, whole in enumerate(text.splitlines()[-_MOST_LINES:]):
            line = whole[:_MOST_OF_LINE]
            found = _PREFIX.match(line)
            label = int(found["label"]) if found and found["label"] else None
            rank = int(found["rank"]) if found and found["rank"] else None
            rest = line[found.end() :] if found else line
            if (label, rank) in self._sources or len(self._sources) < _MOST_RANKS:
                self._sources.setdefault((label, rank), _Source(label, rank)).take(rest, number)
                self._codes.setdefault(label, _Codes(label)).take(rest, number)

    def errors(self) -> list[OutputError]:
        """All errors, the cause first."""
        words = [each for source in self._sources.values() for each in source.errors()]
        for each in words:
            if each.rank is None and each.weight is Weight.CAUSE:
                each.rank = self._first_without_words(each.label, words)
        without_words = [each for codes in self._codes.values() for each in codes.of.values()]
        for each in words:
            for code in [code for code in without_words if _is_same_rank(code, each)]:
                each.node = code.node
                without_words.remove(code)
        return sorted((*words, *without_words), key=lambda each: each.order)

    def _first_without_words(self, label: int | None, words: list[OutputError]) -> int | None:
        """The rank that a launcher names first, whose words can only be those without a name."""
        codes = self._codes[label].of.values()
        first = min(codes, key=lambda each: each.line, default=None)
        if first is None or first.weight is not Weight.CAUSE:
            return None
        return None if any(_is_same_rank(first, each) for each in words) else first.rank

    def last_words(self, label: int | None) -> str:
        """The last line with a label, or of all, that speaks of an error; empty: there is none."""
        found = (s.weak for s in self._sources.values() if label is None or s.label == label)
        return max(found, default=(-1, ""))[1][:LONGEST]


def _is_same_rank(code: OutputError, words: OutputError) -> bool:
    """Whether a code of a launcher is that of the rank with these words."""
    if code.label is None and words.rank is None:
        return code.rank == words.label
    return code.rank == words.rank and code.label in (None, words.label)

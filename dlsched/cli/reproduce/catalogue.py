"""What can be reproduced: the commands to run, and the published figures to put beside ours.

The list is `catalogue.toml`; each entry is a table or figure of a paper, or a run of its artifact.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

from dlsched.core.errors import BadInput

DATA, WORK = "{data}", "{work}"  # in commands: the folder of published data, and one for this run


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published number.

    Attributes:
        path: of our number in the JSON of the run, such as `deadlines.met_share`.
        published: as it was printed, in the unit of our number.
        within: the relative difference that is allowed; 0: ours is the same in all its digits.
        at_least: is the published number a lower bound?
        over: the label of the run whose number ours is divided by; empty: by none.
        because: why ours differs by more than that; empty: it does not.
    """

    path: str
    published: str
    within: float = 0.0
    at_least: bool = False
    over: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One command and its figures.

    Attributes:
        label: unique within the reproduction; most often the policy.
        words: of the command, without `dlsched`.
        figures: compared with what it finds.
    """

    label: str
    words: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A table or figure, or a run of an artifact.

    Attributes:
        name: typed to run it.
        system: whose result it is.
        shows: what it is about, with the number of the table or figure.
        source: `paper`, `authors` (their recorded results) or `artifact` (their code, run again).
        cpu_s: about how many CPU-seconds it takes.
        files: written to the folder of the run first, by name.
        prepare: commands that come first, such as one that generates a trace.
        runs: in order.
    """

    name: str
    system: str
    shows: str
    source: str
    cpu_s: float
    files: dict[str, str]
    prepare: tuple[tuple[str, ...], ...]
    runs: tuple[Run, ...]

    @property
    def data(self) -> tuple[str, ...]:
        """The published files that the commands read, below the folder of data."""
        parts = [
            part
            for words in _words(self.runs)
            for word in words
            for part in word.replace("=", ",").split(",")
        ]
        found = [part.removeprefix(DATA + "/") for part in parts if part.startswith(DATA)]
        return tuple(dict.fromkeys(found))

    @property
    def commands(self) -> list[str]:
        """What to type, in order."""
        return [f"dlsched {' '.join(words)}" for words in (*self.prepare, *_words(self.runs))]

    def missing(self, folder: Path | None) -> str:
        """Why it cannot run with this folder of data; empty: it can."""
        if not self.data:
            return ""
        if folder is None:
            return "needs published data: set DLSCHED_DATA or --data"
        lost = [name for name in self.data if not (folder / name).exists()]
        return f"no {folder / lost[0]}" if lost else ""


def catalogue() -> dict[str, Reproduction]:
    """All reproductions by name, in the order of the file."""
    text = resources.files(__package__).joinpath("catalogue.toml").read_text("utf-8")
    return {name: _reproduction(name, entry) for name, entry in tomllib.loads(text).items()}


def chosen(names: Iterable[str]) -> list[Reproduction]:
    """Those of some names, or of systems.

    Raises:
        BadInput: nothing has such a name.
    """
    known, found = catalogue(), {}
    for name in names:
        of_system = [each for each in known.values() if each.system.lower() == name.lower()]
        for each in [known[name]] if name in known else of_system:
            found[each.name] = each
        if name not in known and not of_system:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadInput(f"nothing to reproduce is called {name!r}{hint} (see --list)")
    return list(found.values())


def _words(runs: Iterable[Run]) -> Iterable[tuple[str, ...]]:
    return (run.words for run in runs)


def _reproduction(name: str, entry: dict[str, Any]) -> Reproduction:
    return Reproduction(
        name=name,
        system=entry["system"],
        shows=entry["shows"],
        source=entry["source"],
        cpu_s=entry["cpu_s"],
        files=entry.get("files", {}),
        prepare=tuple(tuple(shlex.split(text)) for text in entry.get("prepare", ())),
        runs=tuple(_run(label, run) for label, run in entry["runs"].items()),
    )


def _run(label: str, run: dict[str, Any]) -> Run:
    figures = tuple(Figure(path=path, **figure) for path, figure in run.get("figures", {}).items())
    return Run(label=label, words=tuple(shlex.split(run["command"])), figures=figures)

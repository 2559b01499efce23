"""Runs the commands of a reproduction and judges each published figure.

Each command runs in a process of its own, as it would from a shell.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dlsched.cli.reproduce.catalogue import DATA, WORK, Figure, Reproduction
from dlsched.core.errors import DlschedError

Verdict = Literal["as published", "differs, explained", "differs"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A published figure beside ours.

    Attributes:
        label: of the run.
        figure: what was published.
        ours: in the same unit; NaN: the run does not say it.
    """

    label: str
    figure: Figure
    ours: float

    @property
    def published(self) -> float:
        """The published figure as a number."""
        return float(self.figure.published)

    @property
    def off(self) -> float:
        """The relative difference; of a published 0 the difference itself."""
        return (self.ours - self.published) / (abs(self.published) or 1.0)

    @property
    def digits(self) -> int:
        """Digits after the point of what was published."""
        return len(self.figure.published.partition(".")[2])

    @property
    def verdict(self) -> Verdict:
        """Does ours agree? An explanation counts only where it does not."""
        figure = self.figure
        if figure.at_least:
            agrees = self.off >= 0
        elif figure.within:
            agrees = abs(self.off) <= figure.within
        else:
            agrees = abs(self.ours - self.published) <= 0.5000001 * 10.0**-self.digits
        if agrees:
            return "as published"
        return "differs, explained" if figure.because else "differs"

    @property
    def condition(self) -> str:
        """What was asked of ours, in words."""
        if self.figure.at_least:
            return "at least"
        return f"within {100 * self.figure.within:g} %" if self.figure.within else "to the digit"

    def told(self) -> dict[str, Any]:
        """The row as `--json` has it."""
        return {
            "run": self.label,
            "figure": self.figure.path,
            "over": self.figure.over or None,
            "published": self.published,
            "ours": None if math.isnan(self.ours) else self.ours,
            "off": None if math.isnan(self.off) else self.off,
            "condition": self.condition,
            "verdict": self.verdict,
            "because": self.figure.because or None,
        }


def reproduce(wanted: Reproduction, data: Path | None) -> list[Compared]:
    """Run its commands, one after the other.

    Args:
        wanted: what to reproduce; its data is there.
        data: the folder of published data.

    Raises:
        DlschedError: a command failed; with its last words.
    """
    found: dict[str, Mapping[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="dlsched-reproduce-") as name:
        folder = Path(name)
        for file, text in wanted.files.items():
            (folder / file).write_text(text)
        for words in wanted.prepare:
            _call(_filled(words, data, folder), folder)
        for run in wanted.runs:
            found[run.label] = _result(_filled(run.words, data, folder), folder)
    return [
        Compared(run.label, figure, _ours(found, run.label, figure))
        for run in wanted.runs
        for figure in run.figures
    ]


def _filled(words: tuple[str, ...], data: Path | None, folder: Path) -> list[str]:
    return [word.replace(DATA, str(data)).replace(WORK, str(folder)) for word in words]


def _call(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dlsched", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DlschedError(f"`dlsched {' '.join(words)}` ended with {done.returncode}: {last}")
    return done.stdout


def _result(words: list[str], folder: Path) -> Mapping[str, Any]:
    """The summary of a replay, or what another command prints as JSON."""
    if words[0] != "replay":
        printed: Mapping[str, Any] = json.loads(_call(words, folder))
        return printed
    summary = folder / "summary.json"
    _call([*words, "--summary-out", str(summary)], folder)
    written: Mapping[str, Any] = json.loads(summary.read_text())
    return written


def _ours(found: Mapping[str, Mapping[str, Any]], label: str, figure: Figure) -> float:
    value = _at(found[label], figure.path)
    return value / _at(found[figure.over], figure.path) if figure.over else value


def _at(result: Any, path: str) -> float:
    for part in path.split("."):
        if isinstance(result, list) and part.isdigit():
            result = result[int(part)] if int(part) < len(result) else None
        elif isinstance(result, list):  # of objects that one of their words names
            result = next((each for each in result if part in each.values()), None)
        else:
            result = (result or {}).get(part)
    return math.nan if result is None else float(result)

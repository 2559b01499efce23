"""The files that a replay was asked for: checked before the first run, written after the last."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dlsched.cli.replay import ReplayWords
from dlsched.core.errors import BadInput
from simulate.output import appearing_whole, summary_text, write_jobs
from simulate.results import ReplayResult
from simulate.sweep.statistics import aggregates

__all__ = ["Outputs", "outputs_of"]

STDOUT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where results go; "-" is standard output.

    Attributes:
        tagged: leading columns of the jobs' file, for a study of several runs.
        several: is the summary a list?
    """

    jobs: str | None
    summary: str | None
    report: Path | None
    plots: Path | None
    tagged: tuple[str, ...] = ()
    several: bool = False

    @property
    def takes_stdout(self) -> bool:
        """Is standard output taken by a file, so that people read on standard error?"""
        return STDOUT in (self.jobs, self.summary)

    @property
    def draws(self) -> bool:
        """Are there pictures to make, for which runs must keep their time lines?"""
        return self.report is not None or self.plots is not None

    def write(self, results: Sequence[ReplayResult]) -> list[str]:
        """Write every file; returns their names.

        Raises:
            BadInput: one of them cannot be written; those before it have been.
        """
        written: list[str] = []
        if self.jobs == STDOUT:
            write_jobs(results, sys.stdout.buffer, tagged=self.tagged)
        elif self.jobs is not None:
            write_jobs(results, self.jobs, tagged=self.tagged)
            written.append(self.jobs)
        if self.summary is not None:
            text = summary_text(self._entries(results), several=self.several)
            if self.summary == STDOUT:
                sys.stdout.write(text)
            else:
                _write_text(Path(self.summary), text)
                written.append(self.summary)
        if self.report is not None:
            from simulate.report import write_report  # noqa: PLC0415 - only where asked for

            with appearing_whole(self.report) as part:
                write_report(results, part)
            written.append(str(self.report))
        if self.plots is not None:
            from simulate.report import write_plots  # noqa: PLC0415

            write_plots(results, self.plots)
            written.append(f"{self.plots}{os.sep}")
        return written

    def _entries(self, results: Sequence[ReplayResult]) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = [
            {
                "policy": result.policy,
                "label": result.label,
                **result.summary,
                "notes": list(result.warnings),
            }
            for result in results
        ]
        return [*entries, *aggregates(results)]


def outputs_of(
    words: ReplayWords, *, tagged: tuple[str, ...] = (), several: bool = False
) -> Outputs:
    """The outputs of a call.

    Raises:
        BadInput: a path that cannot be written, or that two outputs or a trace share.
    """
    outputs = Outputs(
        jobs=words.jobs_out,
        summary=words.summary_out,
        report=words.report,
        plots=words.plots,
        tagged=tagged,
        several=several,
    )
    named = {
        "--jobs-out": words.jobs_out,
        "--summary-out": words.summary_out,
        "--report": words.report,
    }
    taken: dict[Path, str] = {Path(trace).absolute(): "the trace" for trace in words.traces}
    for flag, name in named.items():
        if name is None or str(name) == STDOUT:
            continue
        path = Path(name)
        _check_file(flag, path)
        if path.absolute() in taken:
            raise BadInput(f"{flag} {path} is also {taken[path.absolute()]}")
        taken[path.absolute()] = f"that of {flag}"
    if words.jobs_out == words.summary_out == STDOUT:
        raise BadInput("--jobs-out - and --summary-out - cannot share standard output")
    if words.plots is not None:
        _check_folder(words.plots)
    return outputs


def _check_file(flag: str, path: Path) -> None:
    if path.is_dir():
        raise BadInput(f"{flag} {path}: a folder; name a file")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise BadInput(f"{flag} {path}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK):
        raise BadInput(f"{flag} {path}: the folder {folder} cannot be written")


def _check_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise BadInput(f"--plots {path}: not a folder")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"--plots {path}: the folder {path.absolute().parent} does not exist")
    if find_spec("matplotlib") is None:
        raise BadInput("matplotlib is needed for --plots: pip install 'dlsched[plots]'")


def _write_text(path: Path, text: str) -> None:
    try:
        with appearing_whole(path) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from None

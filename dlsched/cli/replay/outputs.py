"""The output files of a replay: checked before the first run, written after the last."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dlsched.cli.output.file_output import check_writable
from dlsched.cli.replay.call import ReplayCall
from dlsched.core.errors import BadInput, DlschedError
from dlsched.system.output_files import appearing_whole
from simulate.results.output import (
    run_columns,
    summary_text,
    write_jobs,
    write_trajectories,
)
from simulate.results.tables import ReplayResult
from simulate.sweep.statistics import FIGURES, aggregates

STDOUT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where results go; "-" is standard output.

    Attributes:
        tagged: leading columns of the jobs' file that identify a run; empty for a single run.
        several: is the summary a list?
    """

    jobs: str | None
    summary: str | None
    report: Path | None
    plots: Path | None
    trajectories: Path | None = None
    flows: Path | None = None
    table: Path | None = None
    latex: Path | None = None
    tagged: tuple[str, ...] = ()
    several: bool = False

    @property
    def takes_stdout(self) -> bool:
        """Does a file go to standard output, so that the tables must go to standard error?"""
        return STDOUT in (self.jobs, self.summary)

    def write(self, results: Sequence[ReplayResult]) -> list[str]:
        """Write every file; returns their names.

        Raises:
            DlschedError: some files cannot be written; the others have been written.
        """
        written: list[str] = []
        failed: list[str] = []
        for target, write in (
            (self.jobs, self._write_jobs),
            (self.trajectories, self._write_trajectories),
            (self.summary, self._write_summary),
            (self.table, self._write_table),
            (self.latex, self._write_latex),
            (self.report, self._write_report),
            (self.plots, self._write_plots),
        ):
            if target is None:
                continue
            try:
                write(results)
            except DlschedError as error:
                failed.append(str(error))
            except OSError as error:
                failed.append(f"{target}: cannot be written ({error.strerror or error})")
            else:
                written.extend([] if target == STDOUT else [str(target)])
        if failed:
            raise DlschedError("; ".join(failed))
        return written

    def _write_jobs(self, results: Sequence[ReplayResult]) -> None:
        assert self.jobs is not None
        write_jobs(
            results, sys.stdout.buffer if self.jobs == STDOUT else self.jobs, tagged=self.tagged
        )

    def _write_trajectories(self, results: Sequence[ReplayResult]) -> None:
        assert self.trajectories is not None
        write_trajectories(results, self.trajectories, tagged=self.tagged)

    def _write_summary(self, results: Sequence[ReplayResult]) -> None:
        assert self.summary is not None
        text = summary_text(self._entries(results), several=self.several)
        if self.summary == STDOUT:
            sys.stdout.write(text)
            return
        with appearing_whole(Path(self.summary)) as part:
            part.write_text(text, encoding="utf-8", newline="\n")

    def _write_table(self, results: Sequence[ReplayResult]) -> None:
        assert self.table is not None
        run_columns(results).write_csv(self.table)

    def _write_latex(self, results: Sequence[ReplayResult]) -> None:
        from simulate.report.latex import latex_tables  # noqa: PLC0415  # rarely needed

        assert self.latex is not None
        with appearing_whole(self.latex) as part:
            part.write_text(latex_tables(results, FIGURES), encoding="utf-8", newline="\n")

    def _write_report(self, results: Sequence[ReplayResult]) -> None:
        from simulate.report import write_report  # noqa: PLC0415  # rarely needed

        assert self.report is not None
        with appearing_whole(self.report) as part:
            write_report(results, part)

    def _write_plots(self, results: Sequence[ReplayResult]) -> None:
        from simulate.report import write_plots  # noqa: PLC0415  # needs an extra

        assert self.plots is not None
        write_plots(results, self.plots)

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


def outputs_of(call: ReplayCall, *, tagged: tuple[str, ...] = (), several: bool = False) -> Outputs:
    """Return the outputs of a call.

    Raises:
        BadInput: a path that cannot be written, or that two outputs or a trace share.
    """
    outputs = Outputs(
        jobs=call.jobs_out,
        summary=call.summary_out,
        report=call.report,
        plots=call.plots,
        trajectories=call.trajectories_out,
        flows=call.flows_out,
        table=None if call.summary_csv is None else Path(call.summary_csv),
        latex=None if call.latex is None else Path(call.latex),
        tagged=tagged,
        several=several,
    )
    named = {
        "--jobs-out": call.jobs_out,
        "--summary-out": call.summary_out,
        "--summary-csv": call.summary_csv,
        "--latex": call.latex,
        "--trajectories-out": call.trajectories_out,
        "--flows-out": call.flows_out,
        "--report": call.report,
    }
    taken: dict[Path, str] = {Path(trace).absolute(): "the trace" for trace in call.paths}
    for flag, name in named.items():
        if name is None or str(name) == STDOUT:
            continue
        path = Path(name)
        check_writable(flag, path)
        if path.absolute() in taken:
            raise BadInput(f"{flag} {path} is also {taken[path.absolute()]}")
        taken[path.absolute()] = f"that of {flag}"
    if call.jobs_out == call.summary_out == STDOUT:
        raise BadInput("--jobs-out - and --summary-out - cannot share standard output")
    if call.plots is not None:
        _check_folder(call.plots)
    return outputs


def _check_folder(path: Path) -> None:
    there = os.path.isdir(path)
    if not there and os.path.exists(path):
        raise BadInput(f"--plots {path}: not a folder")
    check_writable("--plots", path / "x.svg" if there else path)
    if find_spec("matplotlib") is None:
        raise BadInput("matplotlib is needed for --plots: pip install 'dlsched[plots]'")

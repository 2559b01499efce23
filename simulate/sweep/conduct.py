"""Conducting a sweep: what is stored is taken, the rest is done, and nothing finished is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from dlsched.core.errors import DlschedError
from simulate.results.tables import ReplayResult
from simulate.sweep.executor import Executor, Progress
from simulate.sweep.run import Failed, Finished, Inputs, Run
from simulate.sweep.store import Store
from simulate.traces.trace import Trace


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How a sweep went; `results` and `failures` are by the number of their run.

    Attributes:
        planned: runs of the study.
        stored: runs whose results were there already.
        interrupted: whether it was stopped before all runs had ended.
        unsaved: why results could not be stored from some run on; "" if they could.
    """

    planned: int
    stored: int = 0
    interrupted: bool = False
    unsaved: str = ""
    results: dict[int, ReplayResult] = field(default_factory=dict)
    failures: dict[int, tuple[Run, Failed]] = field(default_factory=dict)

    @property
    def finished(self) -> list[ReplayResult]:
        """The results in the order of the grid, whatever order they came in."""
        return [self.results[number] for number in sorted(self.results)]

    @property
    def failed(self) -> list[tuple[Run, Failed]]:
        """The runs that failed, in the order of the grid."""
        return [self.failures[number] for number in sorted(self.failures)]


def conduct(
    inputs: Inputs,
    runs: Sequence[Run],
    choose: Callable[[int], Executor],
    *,
    store: Store | None = None,
    on_progress: Progress = lambda run, ended: None,
    on_finished: Callable[[Finished], None] = lambda finished: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Do every run of a study that is not stored yet.

    KeyboardInterrupt ends the sweep, not the program: what has finished is returned.

    Args:
        inputs: what the runs share.
        runs: all of them.
        choose: makes the executor for so many runs.
        store: where results are kept, if anywhere.
        on_progress: called while runs go on, where the executor can tell.
        on_finished: called with each run and its result, stored ones first.
        is_stopped: asked after each run; true ends the sweep as KeyboardInterrupt does, which is
            lost where Python raises it in a destructor.

    Raises:
        DlschedError: the executor cannot do its work.
    """
    outcome = Outcome(planned=len(runs))
    try:
        missing = []
        for run in runs:
            known = store.load(run) if store is not None else None
            if known is None:
                missing.append(run)
            else:
                outcome.results[run.number] = _lighter(known, inputs.traces[run.trace])
                on_finished((run, known))
        outcome.stored = len(outcome.results)
        if missing:
            finished = choose(len(missing)).start(inputs, missing, on_progress)
            with closing(finished):  # type: ignore[type-var]  # executors are generators
                for run, result in finished:
                    if isinstance(result, Failed):
                        outcome.failures[run.number] = (run, result)
                    else:
                        outcome.results[run.number] = _lighter(result, inputs.traces[run.trace])
                        if store is not None and not outcome.unsaved:
                            outcome.unsaved = _saved(store, run, result)
                    on_finished((run, result))
                    if is_stopped():
                        raise KeyboardInterrupt
    except KeyboardInterrupt:
        outcome.interrupted = True
    return outcome


def _saved(store: Store, run: Run, result: ReplayResult) -> str:
    """Store a result; says why not, since a full disk must not cost the study."""
    try:
        store.save(run, result)
    except DlschedError as error:
        return str(error)
    return ""


def _lighter(result: ReplayResult, trace: Trace) -> ReplayResult:
    """The same result with the trace's own texts: they need not be in memory once for each run."""
    jobs = replace(result.jobs, job_id=trace.job_id, user=trace.user, vc=trace.vc)
    return replace(result, jobs=jobs)

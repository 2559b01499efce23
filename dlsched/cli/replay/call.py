"""The table of `dlsched replay`'s options.

Each option is one field here: its words, its help, its type and its default. The command line, the
checks and the study read this table; `docs/replay.md` has every option of it, which a test holds.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from dlsched.cli.completions import policies
from dlsched.cli.option_groups import typed
from dlsched.cli.trace import FormatOption, WorkloadOption
from dlsched.cli.typer_commands import option_hints
from dlsched.record import Record

WITH_SNAPSHOT = "goes with --snapshot"  # marks options which a live state can be replayed with

Text = str | None
Seconds = float | None


class ReplayCall(Record):
    """One call of `dlsched replay`, as it was typed; None where nothing was typed."""

    traces: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TRACE...",
            help="Files or folders of any known format; each is a workload of its own.",
            show_default=False,
        ),
    ] = None
    snapshot: Text = typed(
        "--snapshot FILE",
        "Instead of traces: a live state saved by `dlsched admin snapshot`. It is "
        "continued under its own policy and under each policy named.",
        mark=WITH_SNAPSHOT,
    )
    from_db: Text = typed(
        "--from-db URL", "Instead of traces: the jobs that have ended in a daemon's database."
    )
    since: Text = typed("--since TIME", "With --from-db: only jobs ended since 2h, a day, …")
    cluster: Text = typed(
        "--cluster SPEC|FILE.toml",
        "COUNTxGPUS[:TYPE], joined by +, for example 16x8:v100 or 4x4:v100+4x4:k80; "
        "or a file with [[nodes]] and [[vcs]].",
    )
    profiles: Text = typed(
        "--profiles DIR|FILE[,FILE]",
        "Throughput tables: steps per second by model, batch size, GPU type, number of "
        "GPUs and partner; jobs then run for total_iterations steps. May include a table of "
        "how batch sizes grow. Or a folder of measured applications (applications.csv, …), "
        "as which trainings then progress.",
    )
    workload: WorkloadOption = None
    policy: Text = typed(
        "--policy NAME[,NAME]",
        "Which jobs run; `dlsched policy list` shows the names. [default: fifo]",
        autocompletion=policies,
        mark=WITH_SNAPSHOT,
    )
    placement: Text = typed(
        "--placement NAME[,NAME]", "Which GPUs a job gets. [default: min-nodes]", mark=WITH_SNAPSHOT
    )
    admission: Text = typed(
        "--admission NAME[,NAME]",
        "Which jobs enter the queue. [default: accept-all]",
        mark=WITH_SNAPSHOT,
    )
    fairness: Text = typed(
        "--fairness NAME[,NAME]",
        "How tenants share. [default: vc-quota if the cluster has quotas, else none]",
        mark=WITH_SNAPSHOT,
    )
    estimate: Text = typed(
        "--estimate NAME[,NAME]",
        "What policies know of durations: oracle, user, declared, history, loss-curve, "
        "co-location, additive or noise:SIGMA. [default: oracle]",
        mark=WITH_SNAPSHOT,
    )
    launch: Text = typed("--launch NAME[,NAME]", "What a start costs. [default: constant]")
    preemption: Text = typed(
        "--preemption NAME[,NAME]", "Which progress a suspension saves. [default: checkpoint]"
    )
    metrics: Text = typed("--metrics NAME[,NAME]", "What jobs report. [default: none]")
    host: Text = typed(
        "--host NAME[,NAME]",
        "Which processors and memory jobs get beside their GPUs. [default: what they ask for]",
        mark=WITH_SNAPSHOT,
    )
    options: list[str] | None = typed(
        "-o --option KEY=VALUE",
        "An option of the parts that have it; POLICY.KEY, placement.KEY or admission.KEY "
        "for one of them; semantics=NAME for a profile. Repeatable.",
        mark=WITH_SNAPSHOT,
    )
    clock: Text = typed(
        "--clock rounds|events", "Decide in rounds, or at every change. [default: rounds]"
    )
    round_s: Seconds = typed("--round S", "Length of a round. [default: 60]")
    restart_overhead: Seconds = typed(
        "--restart-overhead S",
        "Time without progress after each start. [default: the job's own from the "
        "trace, else that of the semantics, mostly 0]",
    )
    interference: Text = typed(
        "--interference NAME|PART",
        "How jobs on the same GPUs slow each other down: none, measured (pairs), stages, "
        "overlap or utilisation. With profiles of applications: the part of its speed that a "
        "training on several nodes loses beside another such. [default: as pairs were measured, "
        "else by stages where the trace has them, else none]",
    )
    checkpoint_interval: Seconds = typed(
        "--checkpoint-interval S",
        "Time between checkpoints; a failure loses no more than that. [default: none]",
    )
    min_run: float = typed(
        "--min-run S", "Do not preempt a job before it has run for S seconds.", default=0.0
    )
    load: Text = typed(
        "--load X[,X]", "Divide the times between submissions by X. [default: as recorded]"
    )
    seed: str = typed("--seed N[,N]", "Of everything random in a run.", default="0")
    warmup: float = typed(
        "--warmup S",
        "Jobs submitted in the first S seconds do not count in the figures.",
        default=0.0,
    )
    track: Text = typed("--track A:B", "Only these job ids count; stop when they are done.")
    events: Text = typed(
        "--events FILE.csv", "time,event,node: join, leave, fail, drain, undrain or retype."
    )
    services: Text = typed(
        "--services FILE.toml",
        "Services with an SLA whose replicas lend GPUs to the jobs and take them back.",
    )
    mtbf: Seconds = typed("--mtbf S", "Nodes fail at random, after S seconds on average.")
    mttr: Seconds = typed(
        "--mttr S", "Failed nodes return after S seconds on average. [default: 3600]"
    )
    what_if: Text = typed(
        "--what-if JOB",
        "Instead of figures: what would become of this job, predicted when it is submitted, under "
        "each policy named and on other GPUs.",
    )
    what_if_gpus: Text = typed(
        "--what-if-gpus N[:S][,…]", "With --what-if: on so many GPUs, taking S seconds there."
    )
    what_if_arrivals: bool = typed(
        "--what-if-arrivals", "With --what-if: later jobs of the trace arrive.", default=False
    )
    explain: Text = typed(
        "--explain JOB",
        "Instead of figures: the rank of this job when the policy first ranks it, and what its "
        "predicted duration is the sum of.",
    )
    format: FormatOption = "auto"
    skip_bad_rows: bool = typed(
        "--skip-bad-rows",
        "Count malformed rows and jobs that can never run, instead of stopping.",
        default=False,
    )
    resume: Path | None = typed(
        "--resume DIR", "Store each finished run in DIR; do not repeat the runs that are there."
    )
    compare_isolated: bool = typed(
        "--compare-isolated",
        "Run the policy isolated too (each tenant gets an equal part) and take each "
        "job's time under it as fair: ρ of the variant gavel-report.",
        default=False,
    )
    executor: str = typed(
        "--executor NAME", "processes, processes:N or dask://HOST:PORT.", default="processes"
    )
    jobs_out: Text = typed(
        "--jobs-out FILE.csv[.gz]", "One row for each job; - for stdout.", mark=WITH_SNAPSHOT
    )
    summary_out: Text = typed(
        "--summary-out FILE.json", "The figures; - for stdout.", mark=WITH_SNAPSHOT
    )
    summary_csv: Text = typed(
        "--summary-csv FILE.csv[.gz]", "The figures as a table: one row for each run."
    )
    latex: Text = typed(
        "--latex FILE.tex", "The printed table for a paper (needs the package booktabs)."
    )
    trajectories_out: Path | None = typed(
        "--trajectories-out FILE.csv[.gz]",
        "GPUs, batch size and goodput of elastic jobs over time.",
    )
    flows_out: Path | None = typed(
        "--flows-out FILE.csv[.gz]",
        "Data, gradients and checkpoints of the jobs as flows over their nodes' links.",
    )
    report: Path | None = typed("--report FILE.html", "A report in one HTML file.")
    plots: Path | None = typed("--plots DIR", "The report's plots as SVG and PDF.")

    @property
    def paths(self) -> tuple[str, ...]:
        """The traces named."""
        return tuple(self.traces or ())


def given_beside(call: ReplayCall, mark: str) -> str | None:
    """Return the first option of a call that was given and does not carry a mark.

    Returns:
        The option's word, such as `--load`; None when there is none.
    """
    hints = option_hints(ReplayCall)
    for field in fields(call):
        told = hints[field.name].__metadata__
        if mark not in told and getattr(call, field.name) not in (field.default, []):
            word = told[0].default
            return word if isinstance(word, str) else "TRACE"
    return None

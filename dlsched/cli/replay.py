"""`dlsched replay`: a trace under one policy or many, and what would have happened.

Only the words are here; `replay_study` does the work, and is imported when there is any.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["replay_command"]


Text = str | None
Seconds = float | None


def replay_command(
    traces: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TRACE...",
            help="Files or folders of any known format; each is a workload of its own.",
            show_default=False,
        ),
    ] = None,
    snapshot: Annotated[
        Text,
        typer.Option(
            "--snapshot",
            metavar="FILE",
            help="Instead of traces: a live state of `dlsched admin snapshot`, run on as it is and "
            "under each policy named.",
        ),
    ] = None,
    from_db: Annotated[
        Text,
        typer.Option(
            "--from-db",
            metavar="URL",
            help="Instead of traces: the jobs that have ended in a daemon's database.",
        ),
    ] = None,
    since: Annotated[
        Text,
        typer.Option("--since", metavar="TIME", help="With --from-db: ended since 2h, a day, …"),
    ] = None,
    cluster: Annotated[
        Text,
        typer.Option(
            "--cluster",
            metavar="SPEC|FILE.toml",
            help="COUNTxGPUS[:TYPE], joined by +, for example 16x8:v100 or 4x4:v100+4x4:k80; "
            "or a file with [[nodes]] and [[vcs]].",
        ),
    ] = None,
    profiles: Annotated[
        Text,
        typer.Option(
            "--profiles",
            metavar="DIR|FILE[,FILE]",
            help="Throughput tables: steps a second by model, batch size, GPU type, number of "
            "GPUs and partner. Jobs then do total_iterations steps. Beside it, a table of how "
            "batch sizes grow. Or a folder of measured applications (applications.csv, …), whose "
            "trainings then learn as they did.",
        ),
    ] = None,
    workload: Annotated[
        Text,
        typer.Option(
            "--workload",
            metavar="SET:N",
            help="Which workload of a file that holds several.",
        ),
    ] = None,
    policy: Annotated[
        Text,
        typer.Option(
            "--policy",
            metavar="NAME[,NAME]",
            help="Who runs; `dlsched policy list` shows the names. [default: fifo]",
        ),
    ] = None,
    placement: Annotated[
        Text,
        typer.Option("--placement", metavar="NAME[,NAME]", help="Which GPUs. [default: min-nodes]"),
    ] = None,
    admission: Annotated[
        Text,
        typer.Option(
            "--admission", metavar="NAME[,NAME]", help="Who enters. [default: accept-all]"
        ),
    ] = None,
    fairness: Annotated[
        Text,
        typer.Option(
            "--fairness",
            metavar="NAME[,NAME]",
            help="How tenants share. [default: vc-quota where the cluster has quotas, else none]",
        ),
    ] = None,
    estimate: Annotated[
        Text,
        typer.Option(
            "--estimate",
            metavar="NAME[,NAME]",
            help="What policies know of durations: oracle, user, history or noise:SIGMA. "
            "[default: oracle]",
        ),
    ] = None,
    launch: Annotated[
        Text,
        typer.Option(
            "--launch", metavar="NAME[,NAME]", help="What a start costs. [default: constant]"
        ),
    ] = None,
    preemption: Annotated[
        Text,
        typer.Option(
            "--preemption",
            metavar="NAME[,NAME]",
            help="What a suspension saves. [default: checkpoint]",
        ),
    ] = None,
    metrics: Annotated[
        Text,
        typer.Option("--metrics", metavar="NAME[,NAME]", help="What jobs report. [default: none]"),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--option",
            metavar="KEY=VALUE",
            help="An option of the parts that have it; POLICY.KEY, placement.KEY or admission.KEY "
            "for one of them; semantics=NAME for a profile. Repeatable.",
        ),
    ] = None,
    clock: Annotated[
        Text,
        typer.Option(
            "--clock",
            metavar="rounds|events",
            help="Decide in rounds, or at every change. [default: rounds]",
        ),
    ] = None,
    round_s: Annotated[
        Seconds,
        typer.Option("--round", metavar="S", help="Length of a round. [default: 60]"),
    ] = None,
    restart_overhead: Annotated[
        Seconds,
        typer.Option(
            "--restart-overhead",
            metavar="S",
            help="Time without progress after each start. [default: what the trace says of the "
            "job, else the semantics; mostly 0]",
        ),
    ] = None,
    interference: Annotated[
        float,
        typer.Option(
            "--interference",
            metavar="PART",
            help="The part of its pace that a training on several nodes loses while it shares one "
            "of them with another such; with profiles of applications.",
        ),
    ] = 0.0,
    checkpoint_interval: Annotated[
        Seconds,
        typer.Option(
            "--checkpoint-interval",
            metavar="S",
            help="Time between checkpoints, which bound what a failure loses. [default: none]",
        ),
    ] = None,
    min_run: Annotated[
        float,
        typer.Option("--min-run", metavar="S", help="No preemption before a job ran so long."),
    ] = 0.0,
    load: Annotated[
        Text,
        typer.Option(
            "--load",
            metavar="X[,X]",
            help="Divide the gaps between submits by X. [default: as recorded]",
        ),
    ] = None,
    seed: Annotated[
        str, typer.Option("--seed", metavar="N[,N]", help="Of everything random in a run.")
    ] = "0",
    warmup: Annotated[
        float,
        typer.Option(
            "--warmup", metavar="S", help="Jobs submitted earlier do not count in the figures."
        ),
    ] = 0.0,
    track: Annotated[
        Text,
        typer.Option(
            "--track", metavar="A:B", help="Only these job ids count; stop when they are done."
        ),
    ] = None,
    events: Annotated[
        Text,
        typer.Option(
            "--events",
            metavar="FILE.csv",
            help="time,event,node: join, leave, fail, drain, undrain or retype.",
        ),
    ] = None,
    mtbf: Annotated[
        Seconds,
        typer.Option("--mtbf", metavar="S", help="Nodes fail by chance, after so long on average."),
    ] = None,
    mttr: Annotated[
        Seconds,
        typer.Option(
            "--mttr", metavar="S", help="They are back after so long on average. [default: 3600]"
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="auto, dlsched, philly, philly-passed, helios, venus, pai, alibaba2023, acme, "
            "slurm, tiresias, blox, gavel or shockwave; auto tells by header and content.",
        ),
    ] = "auto",
    skip_bad_rows: Annotated[
        bool,
        typer.Option(
            "--skip-bad-rows",
            help="Count malformed rows and jobs that cannot run at all instead of stopping.",
        ),
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="DIR",
            help="Keep each finished run there, and take what is there already.",
        ),
    ] = None,
    compare_isolated: Annotated[
        bool,
        typer.Option(
            "--compare-isolated",
            help="Run the policy isolated too (everybody an equal split) and take each job's time "
            "under it as what is fair: ρ of the variant gavel-report.",
        ),
    ] = False,
    executor: Annotated[
        str,
        typer.Option(
            "--executor",
            metavar="NAME",
            help="processes, processes:N or dask://HOST:PORT.",
        ),
    ] = "processes",
    jobs_out: Annotated[
        Text,
        typer.Option("--jobs-out", metavar="FILE.csv[.gz]", help="One row a job; - for stdout."),
    ] = None,
    summary_out: Annotated[
        Text,
        typer.Option("--summary-out", metavar="FILE.json", help="The figures; - for stdout."),
    ] = None,
    courses_out: Annotated[
        Path | None,
        typer.Option(
            "--courses-out",
            metavar="FILE.csv[.gz]",
            help="GPUs, batch size and goodput of elastic jobs over time.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help="One self-contained page."),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option("--plots", metavar="DIR", help="Its pictures as SVG and PDF."),
    ] = None,
) -> None:
    """Replay a trace on a cluster and say what would have happened.

    Words with a comma make a study: every policy at every load with every seed on every trace, on
    all processors, in one table.
    """
    from dlsched.cli.replay_call import ReplayWords  # noqa: PLC0415
    from dlsched.cli.replay_kinds import replay_called  # noqa: PLC0415

    code = replay_called(
        ReplayWords(
            traces=tuple(traces or ()),
            snapshot=snapshot,
            from_db=from_db,
            since=since,
            format=format,
            cluster=cluster,
            profiles=profiles,
            workload=workload,
            interference=interference,
            policy=policy,
            placement=placement,
            admission=admission,
            fairness=fairness,
            estimate=estimate,
            launch=launch,
            preemption=preemption,
            metrics=metrics,
            options=tuple(option or ()),
            clock=clock,
            round_s=round_s,
            restart_overhead=restart_overhead,
            checkpoint_interval=checkpoint_interval,
            min_run=min_run,
            load=load,
            seed=seed,
            warmup=warmup,
            track=track,
            events=events,
            mtbf=mtbf,
            mttr=mttr,
            skip_bad_rows=skip_bad_rows,
            resume=resume,
            compare_isolated=compare_isolated,
            executor=executor,
            jobs_out=jobs_out,
            summary_out=summary_out,
            courses_out=courses_out,
            report=report,
            plots=plots,
        )
    )
    raise typer.Exit(code)

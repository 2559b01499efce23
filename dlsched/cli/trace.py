"""`dlsched trace`: bring traces into the native form, look at them, make them up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulate.traces.trace import Trace

__all__ = ["trace_app"]

trace_app = typer.Typer(
    add_completion=False,
    help="Import, show and generate traces.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Source = Annotated[Path, typer.Argument(help="The trace: a file (plain or gzip) or its folder.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help="auto, dlsched, philly, philly-passed, helios, venus, pai, alibaba2023, acme, slurm, "
        "tiresias, blox, gavel, shockwave or pollux; auto tells by header and content.",
    ),
]
DropCpuJobs = Annotated[
    bool, typer.Option("--drop-cpu-jobs/--keep-cpu-jobs", help="Leave out jobs without GPUs.")
]
MinDuration = Annotated[
    float | None,
    typer.Option(
        "--min-duration",
        metavar="S",
        help="Leave out shorter jobs. [default: 1 for logs, 0 for research traces]",
    ),
]
Status = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="WORD,…",
        help="Keep jobs that ended so: completed, failed, cancelled, unfinished. "
        "[default: the first three for logs, all for research traces]",
    ),
]
OnMissing = Annotated[
    str,
    typer.Option("--on-missing", metavar="drop|keep", help="Jobs of unknown size or duration."),
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Count malformed rows instead of stopping.")
]
Workload = Annotated[
    str | None,
    typer.Option(
        "--workload", metavar="SET:N", help="Which workload of a file that holds several."
    ),
]
ClusterSpec = Annotated[
    str | None,
    typer.Option("--cluster", metavar="SPEC", help="16x8:v100, 4x4:v100+4x4:k80, or a TOML file."),
]


@trace_app.command("import")
def import_trace(
    source: Source,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to: .csv, .csv.gz or .parquet.")
    ],
    format: Format = "auto",
    drop_cpu_jobs: DropCpuJobs = True,
    min_duration: MinDuration = None,
    status: Status = None,
    on_missing: OnMissing = "drop",
    skip_bad_rows: SkipBadRows = False,
    workload: Workload = None,
) -> None:
    """Turn a trace of any known format into a native one, and say what was left out."""
    from simulate.traces.write import write_trace  # noqa: PLC0415  # numpy is heavy

    trace = _open(
        source,
        format,
        drop_cpu_jobs=drop_cpu_jobs,
        min_duration=min_duration,
        status=status,
        on_missing=on_missing,
        skip_bad_rows=skip_bad_rows,
        workload=workload,
    )
    write_trace(trace, output)
    typer.echo(f"{output}: {len(trace)} jobs of {source} ({trace.source})")
    for line in _left_out(dict(trace.dropped), list(trace.notes)):
        typer.echo(line)


@trace_app.command("show")
def show_trace(
    source: Source,
    format: Format = "auto",
    drop_cpu_jobs: DropCpuJobs = True,
    min_duration: MinDuration = None,
    status: Status = None,
    on_missing: OnMissing = "drop",
    skip_bad_rows: SkipBadRows = False,
    workload: Workload = None,
    cluster: ClusterSpec = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Describe a trace: sizes, durations, arrivals, who, how they ended, what was left out."""
    import json  # noqa: PLC0415

    from simulate.traces.statistics import describe  # noqa: PLC0415  # numpy is heavy

    trace = _open(
        source,
        format,
        drop_cpu_jobs=drop_cpu_jobs,
        min_duration=min_duration,
        status=status,
        on_missing=on_missing,
        skip_bad_rows=skip_bad_rows,
        workload=workload,
    )
    description = describe(trace, gpus=_total_gpus(cluster))
    if as_json:
        typer.echo(json.dumps(description, ensure_ascii=False, allow_nan=False))
        return
    for line in _table(description):
        typer.echo(line)


@trace_app.command("generate")
def generate(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to: .csv, .csv.gz or .parquet.")
    ],
    profile: Annotated[str, typer.Option("--profile", help="philly or venus.")] = "philly",
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", help="How many.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Same seed, same bytes.")] = 0,
    cluster: ClusterSpec = None,
    load: Annotated[
        float | None,
        typer.Option(
            "--load",
            metavar="X",
            help="Offered load on the cluster to reach. [default: the source's own arrival rate]",
        ),
    ] = None,
) -> None:
    """Make up a trace in the likeness of a real one; no gang is larger than the cluster."""
    from simulate.traces.generate import generate_trace  # noqa: PLC0415  # numpy is heavy
    from simulate.traces.statistics import offered_load  # noqa: PLC0415
    from simulate.traces.write import write_trace  # noqa: PLC0415

    gpus = _total_gpus(cluster)
    trace = generate_trace(profile, jobs=jobs, seed=seed, gpus=gpus, load=load)
    write_trace(trace, output)
    reached = offered_load(trace, gpus) if gpus else None
    on_cluster = f", offered load {reached:.3f} on {gpus} GPUs" if reached is not None else ""
    typer.echo(f"{output}: {len(trace)} jobs like {profile}, seed {seed}{on_cluster}")
    for line in _left_out({}, list(trace.notes)):
        typer.echo(line)


def _open(
    source: Path,
    format: str,
    *,
    drop_cpu_jobs: bool,
    min_duration: float | None,
    status: str | None,
    on_missing: str,
    skip_bad_rows: bool,
    workload: str | None,
) -> Trace:
    from simulate.traces.open import open_trace  # noqa: PLC0415  # numpy is heavy
    from simulate.traces.options import ReadOptions  # noqa: PLC0415

    options = ReadOptions(
        drop_cpu_jobs=drop_cpu_jobs,
        min_duration=min_duration,
        status=None if status is None else tuple(word.strip() for word in status.split(",")),
        on_missing=on_missing,
        skip_bad_rows=skip_bad_rows,
        workload=workload,
    )
    return open_trace(source, format, options=options)


def _total_gpus(spec: str | None) -> int | None:
    if spec is None:
        return None
    from dlsched.core.cluster import parse_cluster_spec  # noqa: PLC0415

    if spec.endswith(".toml"):
        return _gpus_of_file(Path(spec))
    return parse_cluster_spec(spec).total_gpus


def _gpus_of_file(path: Path) -> int:
    import tomllib  # noqa: PLC0415

    from dlsched.core.cluster import cluster_from_tables  # noqa: PLC0415
    from dlsched.core.errors import BadInput  # noqa: PLC0415

    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML ({error})") from None
    return cluster_from_tables(document, where=str(path)).total_gpus


def _left_out(dropped: dict[str, int], notes: list[str]) -> Iterator[str]:
    if dropped:
        parts = ", ".join(f"{count} x {reason}" for reason, count in dropped.items())
        yield f"dropped {sum(dropped.values())}: {parts}"
    for note in notes:
        yield f"note: {note}"


def _table(description: dict[str, Any]) -> Iterator[str]:
    first = description["first_submit"]
    zone = f" (zone {description['zone']})" if description["zone"] else ""
    arrivals, duration = description["arrivals"], description["duration_s"]
    yield f"{description['name']} ({description['source']})"
    yield f"jobs        {description['jobs']}"
    yield f"submitted   over {_span(description['submit_span_s'])}" + (
        f" from {first}{zone}" if first else ""
    )
    yield f"GPU time    {description['gpu_hours']:,.2f} GPU-hours, " + (
        f"{_number(description['mean_demand_gpus'])} GPUs wanted on average"
    )
    if "offered_load" in description:
        load, gpus = description["offered_load"], description["cluster_gpus"]
        yield f"load        {_number(load, '.3f')} of {gpus} GPUs"
    yield f"arrivals    {_number(arrivals['jobs_per_hour'])} jobs an hour, variance/mean " + (
        f"{_number(arrivals['hourly_variance_over_mean'])}; "
        f"gap {_number(arrivals['mean_gap_s'])} s, CV {_number(arrivals['gap_cv'], '.2f')}"
    )
    yield "duration s  " + ", ".join(f"{name} {_number(value)}" for name, value in duration.items())
    yield f"users       {description['users'] or 'unknown'}"
    sizes = [{**each, "name": f"{each['num_gpus']:g}"} for each in description["sizes"]]
    for title, shares in (
        ("GPUs", sizes),
        ("status", description["statuses"]),
        ("vc", description["vcs"]),
    ):
        if shares:
            yield ""
            yield from _share_lines(title, shares)
    left_out = list(_left_out(description["dropped"], description["notes"]))
    if left_out:
        yield ""
        yield from left_out


def _share_lines(title: str, shares: list[dict[str, Any]]) -> Iterator[str]:
    width = max(len(title), *(len(each["name"]) for each in shares))
    yield f"{title:<{width}}  {'jobs':>9}  {'jobs %':>6}  {'GPU time %':>10}"
    for each in shares:
        yield (
            f"{each['name']:<{width}}  {each['jobs']:>9}  {_percent(each['share']):>6}  "
            f"{_percent(each['gpu_time_share']):>10}"
        )


def _number(value: float | None, form: str = ",.1f") -> str:
    return "unknown" if value is None else format(value, form)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"


def _span(seconds: float) -> str:
    """Write [D-]H:MM:SS, as all durations are shown."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-{hour:02}" if days else f"{hour}") + f":{minute:02}:{second:02}"

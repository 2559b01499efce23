"""`dlsched trace`: convert traces to the native form, describe them, generate them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.option_groups import option, typed
from dlsched.cli.typer_commands import CommandGroup
from dlsched.core.errors import plural
from dlsched.record import Record

if TYPE_CHECKING:
    from simulate.traces.trace import Trace

trace_app = CommandGroup("Import, show and generate traces.")

FormatOption = Annotated[
    str,
    option(
        "--format NAME",
        "auto, dlsched, philly, philly-passed, helios, venus, pai, alibaba2023, acme, slurm, "
        "chronus, elasticflow, lucid, muri, synergy, tiresias, blox, gavel, shockwave, pollux or "
        "sia; auto detects it from header and content.",
    ),
]
WorkloadOption = Annotated[
    str | None, option("--workload SET:N", "The workload to read, if the file has several.")
]
Source = Annotated[
    Path, typer.Argument(metavar="TRACE", help="A file (plain or gzip), or its folder.")
]
ClusterSpec = Annotated[
    str | None, option("--cluster SPEC", "16x8:v100, 4x4:v100+4x4:k80, or a TOML file.")
]
OutputOption = Annotated[
    Path, option("--output -o FILE", "A file to write: .csv, .csv.gz, .parquet.")
]


class ReadingOptions(Record):
    """Which jobs of a trace are kept."""

    format: FormatOption = "auto"
    drop_cpu_jobs: bool = typed(
        "--drop-cpu-jobs/--keep-cpu-jobs", "Leave out jobs without GPUs.", default=True
    )
    min_duration: float | None = typed(
        "--min-duration S", "Leave out shorter jobs. [default: 1 for logs, 0 for research traces]"
    )
    status: str | None = typed(
        "--status WORD,…",
        "Keep jobs that ended so: completed, failed, cancelled, unfinished. "
        "[default: the first three for logs, all for research traces]",
    )
    on_missing: str = typed(
        "--on-missing drop|keep", "Jobs of unknown size or duration.", default="drop"
    )
    skip_bad_rows: bool = typed(
        "--skip-bad-rows", "Count malformed rows instead of stopping.", default=False
    )
    workload: WorkloadOption = None

    def open(self, source: Path) -> Trace:
        """Read a trace."""
        from simulate.traces.open import open_trace  # noqa: PLC0415  # numpy is heavy
        from simulate.traces.options import ReadOptions  # noqa: PLC0415

        words = None if self.status is None else self.status.split(",")
        options = ReadOptions(
            drop_cpu_jobs=self.drop_cpu_jobs,
            min_duration=self.min_duration,
            status=None if words is None else tuple(word.strip() for word in words),
            on_missing=self.on_missing,
            skip_bad_rows=self.skip_bad_rows,
            workload=self.workload,
        )
        return open_trace(source, self.format, options=options)


@trace_app.command("import")
def import_trace(source: Source, output: OutputOption, reading: ReadingOptions) -> None:
    """Convert a trace of any known format to the native one, and print what was left out."""
    from simulate.traces.write import write_trace  # noqa: PLC0415  # numpy is heavy

    trace = reading.open(source)
    write_trace(trace, output)
    typer.echo(f"{output}: {plural(len(trace), 'job')} of {source} ({trace.source})")
    for line in _left_out(dict(trace.dropped), list(trace.notes)):
        typer.echo(line)


@trace_app.command("show")
def show_trace(
    source: Source,
    reading: ReadingOptions,
    cluster: ClusterSpec = None,
    as_json: Annotated[bool, option("--json", "One JSON object.")] = False,
) -> None:
    """Describe a trace: sizes, durations, arrivals, users, status, what was left out."""
    import json  # noqa: PLC0415

    from simulate.traces.statistics import describe  # noqa: PLC0415  # numpy is heavy

    trace = reading.open(source)
    description = describe(trace, gpus=_total_gpus(cluster))
    if as_json:
        typer.echo(json.dumps(description, ensure_ascii=False, allow_nan=False))
        return
    for line in _table(description):
        typer.echo(line)


@trace_app.command("generate")
def generate(
    output: OutputOption,
    profile: Annotated[str, option("--profile", "philly or venus.")] = "philly",
    jobs: Annotated[int, option("--jobs N", "Number of jobs.")] = 10_000,
    seed: Annotated[int, option("--seed N", "The same seed gives the same file.")] = 0,
    cluster: ClusterSpec = None,
    load: Annotated[
        float | None,
        option(
            "--load X", "Offered load to reach on the cluster. [default: as the real one arrives]"
        ),
    ] = None,
    deadlines: Annotated[
        float, option("--deadlines SHARE", "So many of the jobs have a deadline, 0 to 1.")
    ] = 0.0,
    slack: Annotated[
        str,
        option("--slack LOW:HIGH", "Deadlines lie so many durations after the submit, at random."),
    ] = "1.5:6",
    elastic: Annotated[
        Path | None,
        option("--elastic FILE", "Jobs are elastic, and FILE gets their speeds, for --profiles."),
    ] = None,
    workloads: Annotated[
        Path | None,
        option("--workloads FILE", "Each job trains a workload of this table, drawn at random."),
    ] = None,
    opportunistic: Annotated[
        float,
        option("--opportunistic SHARE", "So many of the jobs up to 8 GPUs are opportunistic."),
    ] = 0.0,
) -> None:
    """Generate a trace that resembles a real one; every job fits on the cluster."""
    from simulate.traces.generate import generate_trace  # noqa: PLC0415  # numpy is heavy
    from simulate.traces.statistics import offered_load  # noqa: PLC0415
    from simulate.traces.synthetic.further_columns import (  # noqa: PLC0415
        with_deadlines,
        with_opportunistic,
    )
    from simulate.traces.write import write_trace  # noqa: PLC0415

    gpus = _total_gpus(cluster)
    trace = generate_trace(profile, jobs=jobs, seed=seed, gpus=gpus, load=load)
    if deadlines:
        trace = with_deadlines(trace, share=deadlines, slack=_slack(slack), seed=seed)
    if elastic is not None:
        trace = _elastic(trace, elastic, cluster, seed)
    if workloads is not None:
        from simulate.profiles.workloads import read_workloads  # noqa: PLC0415
        from simulate.traces.synthetic.further_columns import with_workloads  # noqa: PLC0415

        trace = with_workloads(trace, read_workloads(workloads), seed=seed)
    if opportunistic:
        trace = with_opportunistic(trace, share=opportunistic, seed=seed)
    write_trace(trace, output)
    on_cluster = ""
    if gpus:
        on_cluster = f", offered load {offered_load(trace, gpus):.3f} on {plural(gpus, 'GPU')}"
    typer.echo(f"{output}: {plural(len(trace), 'job')} like {profile}, seed {seed}{on_cluster}")
    for line in _left_out({}, list(trace.notes)):
        typer.echo(line)


def _elastic(trace: Trace, file: Path, cluster: str | None, seed: int) -> Trace:
    """The trace with elastic jobs, whose speeds are written to a file."""
    from dlsched.cli.output.file_output import save  # noqa: PLC0415
    from dlsched.core.errors import BadInput  # noqa: PLC0415
    from simulate.clusters.cluster_files import open_cluster  # noqa: PLC0415
    from simulate.traces.synthetic.further_columns import speed_lines, with_elastic_jobs  # noqa: PLC0415

    if cluster is None:
        raise BadInput("--elastic needs --cluster, whose GPU types have the speeds")
    found = with_elastic_jobs(trace, seed=seed)
    types = open_cluster(cluster).gpu_types
    save((f"{line}\n".encode() for line in speed_lines(found, types)), str(file))
    return found


def _slack(text: str) -> tuple[float, float]:
    from dlsched.core.errors import BadInput  # noqa: PLC0415

    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        raise BadInput(f"--slack must be LOW:HIGH, such as 1.5:6, not {text!r}") from None
    return low, high


def _total_gpus(spec: str | None) -> int | None:
    if spec is None:
        return None
    from dlsched.core.cluster.description import parse_cluster_spec  # noqa: PLC0415

    if spec.endswith(".toml"):
        return _gpus_of_file(Path(spec))
    return parse_cluster_spec(spec).total_gpus


def _gpus_of_file(path: Path) -> int:
    import tomllib  # noqa: PLC0415

    from dlsched.core.cluster.description import cluster_from_tables  # noqa: PLC0415
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
        yield f"load        {_number(load, '.3f')} of {plural(gpus, 'GPU')}"
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

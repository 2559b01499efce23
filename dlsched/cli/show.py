"""`dlsched show`: all about a job; a pending one ends with why, and what would help."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.connect import (
    AsJson,
    AsJsonLines,
    ColourOption,
    DaemonOption,
    InsecureOption,
    client,
)

if TYPE_CHECKING:
    from dlsched.cli.terminal import Terminal
    from dlsched.client.views import Detail, Event, Job, Run, Training

__all__ = ["show_command"]

SCHEMA = "dlsched.jobs/1"


def show_command(
    jobs: Annotated[list[str], typer.Argument(metavar="ID…", help="7, 7_3 or 7_[2-5].")],
    why_order: Annotated[
        bool, typer.Option("--why-order", help="The policy's own numbers of the job.")
    ] = False,
    as_json: AsJson = False,
    as_lines: AsJsonLines = False,
    colour: ColourOption = "auto",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """All about jobs: wishes, runs, events, and why a pending one waits."""
    from dlsched.cli.job_filter import ids_of, job_filter  # noqa: PLC0415
    from dlsched.cli.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.terminal import terminal  # noqa: PLC0415

    ids_of(jobs)
    out = terminal(colour)
    chosen = job_filter(jobs)
    with client(daemon, insecure) as cluster:
        found = cluster.show(chosen, why_order=why_order)
    if as_json or as_lines:
        objects = ({**object_of(each.job), **_rest(object_of(each))} for each in found)
        if as_lines:
            print_json_lines(objects)
        else:
            print_json(SCHEMA, jobs=objects)
        return
    for place, detail in enumerate(found):
        if place:
            typer.echo("")
        for line in _lines(detail, out, why_order=why_order):
            typer.echo(line, color=out.colour)


def _rest(entry: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in entry.items() if key != "job"}


def _lines(detail: Detail, out: Terminal, *, why_order: bool) -> Iterator[str]:
    from dlsched.cli.terminal import shown  # noqa: PLC0415

    job = detail.job
    title = f"job {job.shown_id}" + (f"  {job.name}" if job.name else "")
    yield out.styled(shown(title), "strong")
    pairs = [*_facts(job), *_sharing(detail), *_files(detail)]
    width = max(len(key) for key, _ in pairs)
    for key, value in pairs:
        yield f"  {key:<{width}}  {shown(value)}"
    if why_order and detail.order_numbers:
        yield out.styled("In the policy's order:", "strong")
        for key, value in detail.order_numbers.items():
            yield f"  {shown(key)}  {shown(value)}"
    if detail.training is not None:
        yield out.styled("Training:", "strong")
        lines = list(_training_lines(detail.training))
        width = max(len(key) for key, _ in lines)
        for key, value in lines:
            yield f"  {key:<{width}}  {shown(value)}"
    if detail.runs:
        yield out.styled("Runs:", "strong")
        for run in detail.runs:
            yield f"  {shown(_run_line(run))}"
    if detail.events:
        yield out.styled("Events:", "strong")
        for event in detail.events:
            yield f"  {shown(_event_line(event))}"
    if job.is_pending:
        yield out.styled("Why pending:", "strong")
        for line in [*(detail.why_pending or [job.reason or "not known"]), *_prediction(job)]:
            yield f"  {shown(line)}"


def _facts(job: Job) -> Iterator[tuple[str, str]]:
    from dlsched.cli.job_columns import COLUMNS, Row, exit_text  # noqa: PLC0415
    from dlsched.cli.moments import local_text  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    row = Row(job, time.time())
    state = COLUMNS["state"].text(row)
    if job.reason:
        state += f" ({job.reason})"
    yield "state", state + (f", run {job.run}" if job.run else "")
    if job.ended_at is not None:
        yield "exit", exit_text(job)
    owner = [job.user, job.account, job.vc, job.partition, job.priority_class]
    titles = ["user", "account", "vc", "partition", "class"]
    yield (
        "owner",
        ", ".join(f"{title} {value}" for title, value in zip(titles, owner, strict=True) if value)
        or "-",
    )
    types = "|".join(job.gpu_types) or "any type"
    yield "gpus", f"{COLUMNS['gpus'].text(row)} ({types})"
    if job.nodes:
        yield "where", COLUMNS["nodes"].text(row)
        if job.gpu_indices:
            yield "indices", COLUMNS["gpu_indices"].text(row)
    yield "submitted", local_text(job.submitted_at)
    for title, at in (
        ("not before", job.begin_at),
        ("deadline", job.deadline_at),
        ("started", job.started_at),
        ("ended", job.ended_at),
    ):
        if at is not None:
            yield title, local_text(at)
    if job.run_s is not None:
        limit = "" if job.time_limit_s is None else f" of {duration_text(job.time_limit_s)}"
        yield "executed", f"{duration_text(job.run_s)}{limit}"
    elif job.time_limit_s is not None:
        yield "time limit", duration_text(job.time_limit_s)
    if job.starts:
        each = "" if job.restart_s is None else f", {job.restart_s:.3g} s each to the first step"
        yield (
            "starts",
            f"{job.starts} ({job.preemptions} preemptions, {job.migrations} migrations, "
            f"{job.resizes} resizes, {job.failures} failures; {duration_text(job.lost_s)} lost)"
            f"{each}",
        )
    for title, value in (
        ("priority", None if job.priority is None else f"{job.priority:g}"),
        ("depends on", ",".join(job.dependencies) or None),
        ("steps", None if job.progress is None else f"{job.progress:g}"),
        ("model", job.model),
        ("comment", job.comment),
    ):
        if value is not None:
            yield title, value


def _sharing(detail: Detail) -> Iterator[tuple[str, str]]:
    share = detail.job.gpu_share
    if share is not None:
        beside = f", beside {', '.join(map(str, detail.beside))}" if detail.beside else ""
        yield "share", f"{share:g} of each GPU{beside}"


def _files(detail: Detail) -> Iterator[tuple[str, str]]:
    import shlex  # noqa: PLC0415

    if detail.command or detail.has_script:
        script = "(script) " if detail.has_script else ""
        yield "command", (script + shlex.join(detail.command)).strip()
    for title, value in (
        ("directory", detail.working_directory),
        ("output", detail.output),
        ("error", detail.error),
    ):
        if value is not None:
            yield title, value
    if detail.last_checkpoint is not None:
        yield "checkpoint", f"step {detail.last_checkpoint_step}: {detail.last_checkpoint}"


def _training_lines(training: Training) -> Iterator[tuple[str, str]]:
    """What is believed of a training, and what one more GPU would give."""
    passes = f" in {training.passes} passes" if training.passes > 1 else ""
    bound = "fixed" if training.batch_is_fixed else f"at most {training.maximum_batch}"
    yield (
        "batch",
        f"{training.batch_size} samples a step, {training.gpus} x {training.local_batch}{passes} "
        f"(initial {training.initial_batch}, {bound})",
    )
    yield "progress", f"{training.progress:.1f} steps of {training.initial_batch}"
    if training.noise_scale is not None:
        yield "noise scale", f"{training.noise_scale:.4g} samples"
    model = training.model_ms
    if model:
        yield (
            "model",
            f"pass {model['alpha_c']:.3g} ms + {model['beta_c']:.3g} ms a sample; synchronising "
            f"{model['alpha_r']:.3g} ms + {model['beta_r']:.3g} ms a GPU, over nodes "
            f"{model['alpha_n']:.3g} ms + {model['beta_n']:.3g} ms; overlap {model['gamma']:.3g} "
            f"({training.gpu_type or 'any type'}, {training.observations} observations)",
        )
    present = next((size for size in training.sizes if size.gpus == training.gpus), None)
    for size in training.sizes:
        change = ""
        if present is not None and size is not present and present.goodput > 0:
            change = f", {size.goodput / present.goodput - 1:+.0%}"
        yield (
            f"{size.gpus} GPU" + ("s" if size.gpus > 1 else ""),
            f"{size.goodput:.4g} useful samples/s{change} (batch {size.batch_size}, "
            f"{size.throughput:.4g} samples/s)",
        )
    if training.restart_s is not None:
        save = "" if training.save_s is None else f", {training.save_s:.3g} s to save"
        yield "restart", f"{training.restart_s:.3g} s to start and load{save}"
    if training.ignored_reports:
        yield "ignored", f"{training.ignored_reports} reports that made no sense"


def _run_line(run: Run) -> str:
    from dlsched.cli.moments import local_text  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415
    from dlsched.client.submission.hosts import fold  # noqa: PLC0415

    where = f"{run.gpus} GPUs on {fold(run.nodes)}" if run.nodes else "-"
    parts = [f"{run.run}: {local_text(run.started_at)}", where]
    if run.run_s is not None:
        parts.append(duration_text(run.run_s))
    if run.ended_at is not None:
        parts.append(f"{run.end or 'ended'} {run.exit_code or 0}:{run.exit_signal or 0}")
    if run.last_step is not None:
        parts.append(f"step {run.last_step}")
    return ", ".join(parts)


def _event_line(event: Event) -> str:
    from dlsched.cli.moments import local_text  # noqa: PLC0415

    parts = [local_text(event.at), event.kind]
    if event.run is not None:
        parts.append(f"run {event.run}")
    if event.node is not None:
        parts.append(f"on {event.node}")
    if event.actor is not None:
        parts.append(f"by {event.actor}")
    line = "  ".join(parts[:2]) + "".join(f" {part}" for part in parts[2:])
    return f"{line}: {event.text}" if event.text else line


def _prediction(job: Job) -> Iterator[str]:
    from dlsched.cli.moments import local_text  # noqa: PLC0415

    if job.position is not None:
        yield f"position {job.position} in the policy's order"
    if job.predicted_start_at is not None:
        basis = f" ({job.predicted_basis})" if job.predicted_basis else ""
        yield f"predicted start {local_text(job.predicted_start_at)}{basis}"
    if job.predicted_end_at is not None:
        yield f"predicted end {local_text(job.predicted_end_at)}"

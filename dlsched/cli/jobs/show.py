"""`dlsched show`: all about a job; a pending one ends with why, and what would help."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import IdsArgument, ids_of, job_filter
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import JsonOptions
from dlsched.core.errors import BadInput, plural
from dlsched.jobs.fields import BY_NAME

if TYPE_CHECKING:
    from dlsched.cli.output.terminal import Terminal
    from dlsched.client.job_records import Job
    from dlsched.client.records import Detail, Event, Run, Training

SCHEMA = "dlsched.jobs/1"
IDLE_S = 60.0  # idle GPUs are not worth a word before
PAGE = 100  # jobs in one answer of the daemon


def show_command(
    jobs: IdsArgument,
    why_order: Annotated[
        bool, option("--why-order", "The policy's own numbers for the job.")
    ] = False,
    page: Annotated[int, option("--page N", "Which hundred of the jobs.", min=1)] = 1,
    *,
    output: JsonOptions,
    daemon: DaemonOptions,
) -> None:
    """All about jobs: what was requested, runs, events, and why a pending job waits."""
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    ids_of(jobs)
    out = terminal(output.colour)
    chosen = job_filter(jobs)
    with daemon.client() as cluster:
        found, total = cluster.show_page(chosen, why_order=why_order, skip=(page - 1) * PAGE)
    first = (page - 1) * PAGE + 1
    if first > max(total, 1):
        raise BadInput(
            f"--page {page}: there {'is' if total == 1 else 'are'} {plural(total, 'job')}"
        )
    if page > 1 or total > len(found):
        more = f"; --page {page + 1} has more" if first + PAGE <= total else ""
        last = first + len(found) - 1
        print(f"dlsched: jobs {first:,} to {last:,} of {total:,}{more}", file=sys.stderr)
    if output.is_json:
        _print_json(found, lines=output.as_lines)
        return
    for place, detail in enumerate(found):
        if place:
            print()
        for line in _lines(detail, out, why_order=why_order):
            print(line)


def _print_json(found: Iterable[Detail], *, lines: bool) -> None:
    from dlsched.cli.output.json_output import job_object, object_of, print_json, print_json_lines  # noqa: PLC0415

    def entry(detail: Detail) -> dict[str, object]:
        rest = object_of(detail)
        del rest["job"]
        return {**job_object(detail.job), **rest}

    if lines:
        print_json_lines(map(entry, found))
    else:
        print_json(SCHEMA, jobs=map(entry, found))


def _lines(detail: Detail, out: Terminal, *, why_order: bool) -> Iterator[str]:
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    job = detail.job
    title = f"job {job.shown_id}" + (f"  {job.name}" if job.name else "")
    yield out.styled(shown(title), "strong")
    cause = [("failed", detail.cause)] if detail.cause else []
    swept = ", ".join(f"{name}={value}" for name, value in detail.parameters.items())
    cause += [("parameters", swept)] if swept else []
    cause += [("awaited by", ",".join(map(str, detail.awaited_by)))] if detail.awaited_by else []
    pairs = [*_facts(job), *cause, *_sharing(detail), *_host_share(detail), *_files(detail)]
    yield from _aligned(pairs, out)
    if why_order and detail.order_numbers:
        yield out.styled("In the policy's order:", "strong")
        yield from _aligned(_in_order(detail.order_numbers), out)
    if detail.training is not None:
        yield out.styled("Training:", "strong")
        yield from _aligned(list(_training_lines(detail.training)), out)
    if detail.runs:
        yield out.styled("Runs:", "strong")
        for run in detail.runs:
            yield from out.wrapped(f"  {shown(_run_line(run))}", "    ")
    if detail.events:
        yield out.styled("Events:", "strong")
        for event in detail.events:
            first, *more = _event_line(event).split("\n")
            yield from out.wrapped(f"  {shown(first)}", "    ")
            for line in more:
                yield from out.wrapped(f"    {shown(line)}", "    ")
    if job.is_pending:
        yield out.styled("Why pending:", "strong")
        for line in [*_why_pending(detail, why_order), *_prediction(job)]:
            yield from out.wrapped(f"  {shown(line)}", "    ")


def _aligned(pairs: Sequence[tuple[str, str]], out: Terminal) -> Iterator[str]:
    """Names and values in two columns."""
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    width = max(len(key) for key, _ in pairs)
    for key, value in pairs:
        yield from out.wrapped(f"  {shown(key):<{width}}  {shown(value)}", " " * (width + 4))


def _in_order(numbers: dict[str, str]) -> list[tuple[str, str]]:
    """The policy's numbers: first which policy and place, last their sum."""
    places = {"policy": 0, "position": 1, "total": 3}
    ordered = sorted(numbers, key=lambda key: (places.get(key, 2), key))
    return [(key.replace("_", " "), numbers[key]) for key in ordered]


def _why_pending(detail: Detail, why_order: bool) -> list[str]:
    """Why a job waits; its place in the order is not said twice."""
    lines = detail.why_pending or [detail.job.reason or "not known"]
    return [line for line in lines if not (why_order and line.startswith("place "))]


def _facts(job: Job) -> Iterator[tuple[str, str]]:
    from dlsched.cli.jobs.job_columns import COLUMNS, Row, exit_text  # noqa: PLC0415
    from dlsched.cli.output.times import local_text  # noqa: PLC0415
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
    types = str(
        job.asked.get("constraint") or job.gpus_by_type or "|".join(job.gpu_types) or "any type"
    )
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
            f"{job.starts} (preempted {job.preemptions}, migrated {job.migrations}, resized "
            f"{job.resizes}, failed {job.failures}; {duration_text(job.lost_s)} lost){each}",
        )
    for title, value in (
        ("priority", None if job.priority is None else f"{job.priority:g}"),
        ("depends on", ",".join(job.dependencies) or None),
        ("steps", None if job.progress is None else f"{job.progress:g}"),
        *_training_now(job),
        ("model", job.model),
        ("comment", job.comment),
        *(
            (BY_NAME[name].title, _number_text(name, value))
            for name, value in job.asked.items()
            if BY_NAME[name].kept == "body"
            and name != "gpu_share"
            and isinstance(value, int | float)
            and value
            and not isinstance(value, bool)
        ),
    ):
        if value is not None:
            yield title, value


def _number_text(name: str, value: float) -> str:
    from dlsched.client.submission.memory import memory_text  # noqa: PLC0415  # few need it

    if name == "umask":
        return f"{int(value):04o}"
    if name.endswith("_s"):
        from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

        return duration_text(value)
    return memory_text(int(value)) if name.endswith("_bytes") else f"{value:.12g}"


def _training_now(job: Job) -> Iterator[tuple[str, str | None]]:
    """The newest values that a job has reported, and what its GPUs do."""
    from dlsched.cli.jobs.job_columns import brief, gib, percent  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    values = [
        "loss nan" if "loss" in job.not_finite else f"loss {brief(job.loss)}",
        f"{brief(job.steps_s)} steps/s",
        f"{brief(job.samples_s)} samples/s",
    ]
    known = [text for text in values if "-" not in text.split()]
    if job.report_age_s is not None:
        known.append(f"reported {duration_text(job.report_age_s)} ago")
    yield "training", ", ".join(known) or None
    own = [f"{name} {brief(value)}" for name, value in job.metrics.items()]
    own += [f"{name} nan" for name in job.not_finite if name not in ("loss", *job.metrics)]
    yield "metrics", ", ".join(own) or None
    use = [] if job.gpu_utilization is None else [f"{percent(job.gpu_utilization)} busy"]
    if job.gpu_memory_bytes is not None:
        use.append(f"{gib(job.gpu_memory_bytes)} in use on the fullest")
    if job.gpu_idle_s is not None and job.gpu_idle_s >= IDLE_S:
        use.append(f"idle for {duration_text(job.gpu_idle_s)}")
    if job.gpu_used is not None:
        use.append(f"{percent(job.gpu_used)} busy over its life")
    yield "gpu use", ", ".join(use) or None


def _sharing(detail: Detail) -> Iterator[tuple[str, str]]:
    share = detail.job.asked.get("gpu_share")
    if isinstance(share, float):
        beside = f", beside {', '.join(map(str, detail.beside))}" if detail.beside else ""
        yield "share", f"{share:g} of each GPU{beside}"


def _host_share(detail: Detail) -> Iterator[tuple[str, str]]:
    if detail.host_share:
        yield "given", detail.host_share


def _files(detail: Detail) -> Iterator[tuple[str, str]]:
    import shlex  # noqa: PLC0415

    if detail.command or detail.has_script:
        script = "(script) " if detail.has_script else ""
        yield "command", detail.wrap or (script + shlex.join(detail.command)).strip()
    for title, value in (
        ("directory", detail.working_directory),
        ("output", detail.output),
        ("error", detail.error),
    ):
        if value is not None:
            yield title, value
    if detail.last_checkpoint is not None:
        yield "checkpoint", f"step {detail.last_checkpoint_step}: {detail.last_checkpoint}"
    if detail.unsaved is not None:
        yield "not saved", detail.unsaved.text


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
            plural(size.gpus, "GPU"),
            f"{size.goodput:.4g} useful samples/s{change} (batch {size.batch_size}, "
            f"{size.throughput:.4g} samples/s)",
        )
    if training.restart_s is not None:
        save = "" if training.save_s is None else f", {training.save_s:.3g} s to save"
        yield "restart", f"{training.restart_s:.3g} s to start and load{save}"
    if training.ignored_reports:
        yield "ignored", f"{plural(training.ignored_reports, 'report')} that made no sense"


def _run_line(run: Run) -> str:
    from dlsched.cli.output.times import local_text  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415
    from dlsched.host_lists import fold  # noqa: PLC0415

    where = f"{plural(run.gpus, 'GPU')} on {fold(run.nodes)}" if run.nodes else "-"
    parts = [f"{run.run}: {local_text(run.started_at)}", where]
    if run.run_s is not None:
        parts.append(duration_text(run.run_s))
    if run.ended_at is not None:
        end, code, number = run.end or "ended", run.exit_code or 0, run.exit_signal or 0
        is_said = (f"signal {number}" if number else f"exit {code}") in end
        parts.append(f"{end} {code}:{number}" if (code or number) and not is_said else end)
    if run.last_step is not None:
        parts.append(f"step {run.last_step}")
    return ", ".join(parts)


def _event_line(event: Event) -> str:
    from dlsched.cli.output.times import local_text  # noqa: PLC0415

    parts = [local_text(event.at), event.kind]
    if event.run is not None:
        parts.append(f"run {event.run}")
    if event.node is not None and event.actor != f"node {event.node}":
        parts.append(f"on {event.node}")
    if event.actor is not None:
        parts.append(f"by {event.actor}")
    line = "  ".join(parts[:2]) + "".join(f" {part}" for part in parts[2:])
    return f"{line}: {event.text}" if event.text else line


def _prediction(job: Job) -> Iterator[str]:
    import time  # noqa: PLC0415

    from dlsched.cli.jobs.predicted import interval_text  # noqa: PLC0415
    from dlsched.cli.output.times import local_text  # noqa: PLC0415

    def told(at: float, p10: float | None, p90: float | None) -> str:
        between = "" if p10 is None else f", from {interval_text(p10, p90, time.time())}"
        return f"{local_text(at)}{between}"

    if job.predicted_start_at is not None:
        basis = f" ({job.predicted_basis})" if job.predicted_basis else ""
        least, most = job.predicted_start_p10_at, job.predicted_start_p90_at
        yield f"predicted start {told(job.predicted_start_at, least, most)}{basis}"
    if job.predicted_end_at is not None:
        least, most = job.predicted_end_p10_at, job.predicted_end_p90_at
        yield f"predicted end {told(job.predicted_end_at, least, most)}"

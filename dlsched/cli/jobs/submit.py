"""`dlsched submit`: a script, a command, or many of them.

The options come from the table of job fields; directives and DLSCHED_SUBMIT_… variables have the
same options.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_options import job_options, layer_of
from dlsched.cli.jobs.services import as_leader
from dlsched.cli.option_groups import argument, option
from dlsched.cli.output.closed_output import told_jobs
from dlsched.cli.output.output_options import AsJson
from dlsched.core.errors import BadInput
from dlsched.jobs.fields import OPTIONS
from dlsched.jobs.short_tasks import COMMAND

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Client
    from dlsched.client.submission.bulk import Row
    from dlsched.client.submission.request import Submission
    from dlsched.rpc.v1.control_pb2 import SubmitReply


def submit_command(
    words: Annotated[
        list[str] | None, argument("[SCRIPT [ARG]…]", "Or a command after `--`.")
    ] = None,
    wrap: Annotated[str | None, option("--wrap COMMAND", "A line for the shell.")] = None,
    source: Annotated[
        str | None, option("--from FILE", "Many jobs: .csv, .jsonl or - for stdin, all or none.")
    ] = None,
    dag: Annotated[
        str | None,
        option("--dag FILE", "Jobs that wait for each other, TOML or JSON, all or none."),
    ] = None,
    test_only: Annotated[
        bool, option("--test-only", "Print whether and when; submit nothing.")
    ] = False,
    require_sla: Annotated[
        bool, option("--require-sla", "Only if it keeps its deadline, and others keep theirs.")
    ] = False,
    request_id: Annotated[
        str, option("--request-id ID", "Asked again with the same ID, it submits nothing twice.")
    ] = "",
    as_json: AsJson = False,
    logs: Annotated[bool, option("--logs", "Show the output as it comes, and wait.")] = False,
    interactive: Annotated[bool, option("--interactive", "A shell on this terminal.")] = False,
    service: Annotated[
        str | None,
        option(
            "--service TERMS",
            "Replicas of an HTTP server: within=SECONDS,share=PART,most=REPLICAS[,…].",
        ),
    ] = None,
    ignore_unknown: Annotated[
        bool, option("--ignore-unknown-directives", "Leave them out, each with a line on stderr.")
    ] = False,
    *,
    daemon: DaemonOptions,
    **given: Annotated[Any, job_options(OPTIONS)],
) -> None:
    """Submit SCRIPT with its arguments, a command after `--`, or many jobs of a file.

    Options come from the command line, then from DLSCHED_SUBMIT_… variables, then from the
    script's #DLSCHED and #SBATCH lines.
    """
    is_command = words is not None and words[:1] == ["--"]
    words = (words or [])[is_command:]
    if interactive:
        if wrap is not None or source or dag or test_only or logs or as_json:
            raise BadInput("--interactive: alone or with a command after --, and to be run now")
        _run_interactive(words, layer_of(given, OPTIONS), daemon, is_command=is_command)
    layer = layer_of(given, OPTIONS)
    others = (wrap, source, dag, layer.get("tasks"))
    if bool(words) + sum(each is not None for each in others) != 1:
        raise BadInput(
            "give a script, a command after --, --wrap, --from, --dag or --tasks, "
            "and only one of them"
        )
    words, layer = as_leader(service, words, layer, daemon, is_command=is_command)
    found = list(
        _from_file(source, layer, ignore_unknown)
        if source is not None
        else _of_graph(dag, layer, ignore_unknown)
        if dag is not None
        else (
            one_job(
                words,
                layer,
                wrap=wrap,
                is_command=is_command,
                ignore_unknown=ignore_unknown,
            ),
        )
    )
    for note in dict.fromkeys(note for each in found for note in each.notes):
        print(f"dlsched: {note}", file=sys.stderr)
    wait = logs or any(each.wait for each in found)
    if as_json and (logs or any(each.parsable for each in found)):
        raise BadInput("--json: not with --logs or --parsable")
    if logs and (len(found) > 1 or found[0].request.array):
        raise BadInput("--logs: follows one job only")
    from dlsched.cli.jobs.submitted import (  # noqa: PLC0415
        print_declined,
        print_jobs,
        print_late_deadlines,
        print_object,
        print_trial,
    )

    with daemon.client() as cluster:
        reply = cluster.submit_all(
            found, test_only=test_only, require_sla=require_sla, request_id=request_id
        )
        if as_json:
            with told_jobs(each.job for each in reply.jobs):
                print_object(reply, found)
        elif reply.declined:
            print_declined(reply, many=len(found) > 1)
        elif test_only:
            print_trial(found, reply)
        else:
            names = None if dag is None else [each.request.name for each in found]
            print_jobs(reply, names=names, parsable=any(each.parsable for each in found))
            print_late_deadlines(reply)
        if reply.declined:
            raise SystemExit(1)
        if wait and not test_only:
            raise SystemExit(wait_for_end(cluster, reply, logs=logs))


def _run_interactive(
    words: list[str], layer: dict[str, str], daemon: DaemonOptions, *, is_command: bool
) -> NoReturn:
    """Run a command, or a shell, on this terminal; exit with its exit code."""
    from dlsched.cli.jobs.interactive import OURS, run_interactive  # noqa: PLC0415

    if words and not is_command:
        raise BadInput("--interactive: a command comes after --, and no script")
    wanted = interactive_job(words, layer)
    for note in wanted.notes:
        print(f"dlsched: {note}", file=sys.stderr)
    with daemon.client() as cluster:
        raise SystemExit(run_interactive(cluster, wanted, OURS))


def interactive_job(words: Sequence[str], layer: dict[str, str]) -> Submission:
    """Return the submission of a command, or of the user's shell, that gets a terminal.

    Args:
        words: the command; empty: the shell.
        layer: the options by key.

    Raises:
        BadInput: an option is malformed.
    """
    from dlsched.cli.jobs.interactive import NAME, shell  # noqa: PLC0415

    if not words:
        layer = {"name": NAME, **layer}
    return one_job(words or shell(), layer, is_command=True)


def one_job(
    words: Sequence[str],
    layer: dict[str, str],
    *,
    wrap: str | None = None,
    is_command: bool = False,
    ignore_unknown: bool = False,
    truncates: bool = False,
) -> Submission:
    """Return what is to be submitted.

    Args:
        words: a script with its arguments (`-`: standard input), or a command.
        layer: the options of the command line by key.
        wrap: a line for the shell, in place of `words`.
        is_command: `words` are a command, not a script.
        ignore_unknown: leave directives out that are not known.
        truncates: its output files begin anew where no `--open-mode` is given.

    Raises:
        BadInput: an option is malformed, or the script cannot be read.
    """
    import os  # noqa: PLC0415

    from dlsched.client.daemon_client import here  # noqa: PLC0415  # gRPC comes with it
    from dlsched.client.submission.options import from_variables, merged  # noqa: PLC0415
    from dlsched.client.submission.request import Command  # noqa: PLC0415
    from dlsched.client.submission.texts import wrapped  # noqa: PLC0415

    caller = here()
    layer = merged(layer, from_variables(caller.variables))
    if "tasks" in layer and not words:
        name = os.path.basename(layer["tasks"])
        return composed(layer, Command(argv=(COMMAND,), name=name), caller)
    if wrap is not None:
        line = wrapped(wrap)
        command = Command(script=line, name="wrap", is_line=True, truncates=truncates)
        return composed(layer, command, caller)
    if is_command:
        name = os.path.basename(words[0]) or "command"
        return composed(layer, Command(argv=tuple(words), name=name), caller)
    path = words[0]
    script = sys.stdin.buffer.read() if path == "-" else read_file(path)
    told = "stdin" if path == "-" else path
    command = Command(
        argv=tuple(words[1:]),
        script=script,
        name=os.path.basename(told),
        path=told if path != "-" else "",
        truncates=truncates,
    )
    return composed(layer, command, caller, told=told, ignore_unknown=ignore_unknown)


def composed(
    layer: dict[str, str],
    command: Any,
    caller: Any,
    *,
    told: str = "",
    ignore_unknown: bool = False,
) -> Submission:
    """Return a submission; options in the layer precede the script's directives.

    Args:
        layer: the options by key.
        command: the script with its arguments, or a command.
        caller: where and when it is submitted.
        told: what messages call the script; empty: there is none.
        ignore_unknown: leave directives out that are not known.
    """
    from dlsched.client.submission.request import compose  # noqa: PLC0415

    if not told:
        return compose(layer, command, caller)
    from dlsched.client.submission.directives import read_directives  # noqa: PLC0415
    from dlsched.client.submission.options import merged  # noqa: PLC0415

    said = read_directives(told, command.script, ignore_unknown=ignore_unknown)
    found = compose(merged(layer, said.layer), command, caller)
    if not said.notes:
        return found
    from dataclasses import replace  # noqa: PLC0415

    return replace(found, notes=(*said.notes, *found.notes))


def _from_file(source: str, layer: dict[str, str], ignore_unknown: bool) -> Iterator[Submission]:
    """Return a submission for each row."""
    from dlsched.client.submission.bulk import read_rows  # noqa: PLC0415

    return _of_rows(read_rows(*_content(source)), layer, ignore_unknown)


def _of_graph(source: str, layer: dict[str, str], ignore_unknown: bool) -> Iterator[Submission]:
    """Return a submission for each job of a graph; each comes after those that it waits for."""
    from dlsched.client.submission.dag_files import read_dag  # noqa: PLC0415

    jobs = read_dag(*_content(source))
    rows = (job.row for job in jobs)
    for job, found in zip(jobs, _of_rows(rows, layer, ignore_unknown), strict=True):
        for kind, place in job.after:
            found.request.dependencies.add(kind=kind, in_call=place)
        yield found


def _content(source: str) -> tuple[str, bytes]:
    """Return what messages call a file, and its bytes; `-` is standard input."""
    if source == "-":
        return "stdin", sys.stdin.buffer.read()
    return source, read_file(source)


def _of_rows(
    rows: Iterable[Row], layer: dict[str, str], ignore_unknown: bool
) -> Iterator[Submission]:
    """Return a submission for each row; a row's options precede all others."""
    import os  # noqa: PLC0415

    from dlsched.client.daemon_client import here  # noqa: PLC0415
    from dlsched.client.submission.options import from_variables, merged  # noqa: PLC0415
    from dlsched.client.submission.request import Command  # noqa: PLC0415
    from dlsched.client.submission.texts import wrapped  # noqa: PLC0415

    caller = here()
    layer = merged(layer, from_variables(caller.variables))
    scripts: dict[str, bytes] = {}
    for row in rows:
        try:
            near = merged(row.layer, layer)
            if row.command:
                command = Command(script=wrapped(row.command), name="wrap", is_line=True)
                yield composed(near, command, caller)
            elif row.script:
                if row.script not in scripts:
                    scripts[row.script] = read_file(row.script)
                command = Command(
                    argv=row.argv,
                    script=scripts[row.script],
                    name=os.path.basename(row.script),
                    path=row.script,
                )
                yield composed(
                    near, command, caller, told=row.script, ignore_unknown=ignore_unknown
                )
            else:
                name = os.path.basename(row.argv[0]) or "command"
                yield composed(near, Command(argv=row.argv, name=name), caller)
        except BadInput as error:
            text = str(error)
            raise BadInput(text if text.startswith(row.place) else f"{row.place}: {text}") from None


def read_file(path: str) -> bytes:
    """Return the bytes of a file that the user names.

    Raises:
        BadInput: it can't be read.
    """
    try:
        with open(path, "rb") as file:  # a `Path` would cost a third of Python's start
            return file.read()
    except OSError as error:
        raise BadInput(f"{path or repr(path)}: can't be read ({error.strerror})") from None
    except ValueError:
        raise BadInput(f"{path!a}: not a path") from None


def wait_for_end(cluster: Client, reply: SubmitReply, *, logs: bool = False) -> int:
    """Wait for all jobs, with the output of the only one; return the exit code."""
    from dlsched.cli.jobs.logs import follow_to_the_end  # noqa: PLC0415
    from dlsched.cli.jobs.wait import wait_for_all  # noqa: PLC0415
    from dlsched.client.daemon_client import filter_of  # noqa: PLC0415
    from dlsched.client.job_ids import JobName  # noqa: PLC0415

    chosen = filter_of([JobName(job=job.job) for job in reply.jobs])
    if logs:
        follow_to_the_end(cluster, reply.jobs[0].job)
    return wait_for_all(cluster, chosen)

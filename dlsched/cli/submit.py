"""`dlsched submit`: a script, a command, or many of them.

The options come from the table of `dlsched.client.submission`: what the command line knows,
directives and DLSCHED_SUBMIT_… variables know as well.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from dlsched.cli.connect import DaemonOption, InsecureOption, client
from dlsched.client.submission.option_table import OPTIONS, Option
from dlsched.client.submission.options import put
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.client.cluster import Client
    from dlsched.client.submission.request import Submission
    from dlsched.rpc.v1.control_pb2 import SubmitReply

__all__ = ["submit_app"]

_AFTER = "dlsched.after-dashes"


class _Submit(TyperCommand):
    """What stands after `--` is a command; what stands after a script belongs to the script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest: list[str] = super().parse_args(ctx, list(args))
        words = ctx.params.get("words") or []
        # `--` is gone from the words by now: it made a command if no script came before it
        if "--" in args and words and args[args.index("--") + 1 :] == list(words):
            ctx.meta[_AFTER] = True
        return rest


submit_app = typer.Typer(
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _submit(
    context: typer.Context,
    words: list[str] | None,
    wrap: str | None,
    source: str | None,
    test_only: bool,
    logs: bool,
    interactive: bool,
    ignore_unknown: bool,
    daemon: str | None,
    insecure: bool,
    **given: Any,
) -> None:
    """Submit SCRIPT with its arguments, a command after `--`, or many jobs of a file.

    Options come from the command line, then from DLSCHED_SUBMIT_… variables, then from the
    script's #DLSCHED and #SBATCH lines.
    """
    if interactive:
        raise BadInput(
            "--interactive: not supported; submit a script and follow it with `dlsched logs -f`"
        )
    sources = [bool(words), wrap is not None, source is not None]
    if sum(sources) != 1:
        raise BadInput("give a script, a command after --, --wrap or --from, and only one of them")
    layer = _layer(given)
    found = list(
        _from_file(source, layer, ignore_unknown)
        if source is not None
        else _one(
            words or [],
            layer,
            wrap=wrap,
            is_command=bool(context.meta.get(_AFTER)),
            ignore_unknown=ignore_unknown,
        )
    )
    for note in dict.fromkeys(note for each in found for note in each.notes):
        typer.echo(f"dlsched: {note}", err=True)
    wait = logs or any(each.wait for each in found)
    if logs and (len(found) > 1 or found[0].request.array):
        raise BadInput("--logs: follows one job only")
    with client(daemon, insecure) as cluster:
        reply = cluster.submit_all(found, test_only=test_only)
        _tell(reply, test_only=test_only, parsable=any(each.parsable for each in found))
        if wait and not test_only:
            raise typer.Exit(_see_through(cluster, reply, logs=logs))


def _layer(given: dict[str, Any]) -> dict[str, str]:
    """The command line as a layer."""
    layer: dict[str, str] = {}
    for option in OPTIONS:
        value = given.get(option.name)
        if value is None or value is False or value == []:
            continue
        for text in value if isinstance(value, list) else [value]:
            put(layer, option, option.words[-1], "yes" if text is True else text)
    return layer


def _one(
    words: Sequence[str],
    layer: dict[str, str],
    *,
    wrap: str | None,
    is_command: bool,
    ignore_unknown: bool,
) -> Iterator[Submission]:
    import os  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from dlsched.client.cluster import here  # noqa: PLC0415  # gRPC comes with it
    from dlsched.client.submission.options import from_variables, merged  # noqa: PLC0415
    from dlsched.client.submission.request import Command  # noqa: PLC0415

    caller = here()
    layer = merged(layer, from_variables(caller.variables))
    if wrap is not None:
        yield _composed(layer, Command(script=_wrapped(wrap), name="wrap"), caller)
    elif is_command:
        name = os.path.basename(words[0]) or "command"
        yield _composed(layer, Command(argv=tuple(words), name=name), caller)
    else:
        path = words[0]
        script = sys.stdin.buffer.read() if path == "-" else _read(Path(path))
        told = "stdin" if path == "-" else path
        command = Command(argv=tuple(words[1:]), script=script, name=os.path.basename(told))
        yield _composed(layer, command, caller, told=told, ignore_unknown=ignore_unknown)


def _composed(
    layer: dict[str, str],
    command: Any,
    caller: Any,
    *,
    told: str = "",
    ignore_unknown: bool = False,
) -> Submission:
    """One submission: what is said already comes before the script's directives."""
    from dataclasses import replace  # noqa: PLC0415

    from dlsched.client.submission.request import compose  # noqa: PLC0415

    if not told:
        return compose(layer, command, caller)
    from dlsched.client.submission.directives import read_directives  # noqa: PLC0415
    from dlsched.client.submission.options import merged  # noqa: PLC0415

    said = read_directives(told, command.script, ignore_unknown=ignore_unknown)
    found = compose(merged(layer, said.layer), command, caller)
    return replace(found, notes=(*said.notes, *found.notes)) if said.notes else found


def _from_file(source: str, layer: dict[str, str], ignore_unknown: bool) -> Iterator[Submission]:
    """A submission for each row; the row's options are the nearest."""
    import os  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from dlsched.client.cluster import here  # noqa: PLC0415
    from dlsched.client.submission.bulk import read_rows  # noqa: PLC0415
    from dlsched.client.submission.options import from_variables, merged  # noqa: PLC0415
    from dlsched.client.submission.request import Command  # noqa: PLC0415

    told = "stdin" if source == "-" else source
    data = sys.stdin.buffer.read() if source == "-" else _read(Path(source))
    caller = here()
    layer = merged(layer, from_variables(caller.variables))
    scripts: dict[str, bytes] = {}
    for row in read_rows(told, data):
        try:
            near = merged(row.layer, layer)
            if row.command:
                command = Command(script=_wrapped(row.command), name="wrap")
                yield _composed(near, command, caller)
            elif row.script:
                if row.script not in scripts:
                    scripts[row.script] = _read(Path(row.script))
                command = Command(
                    argv=row.argv,
                    script=scripts[row.script],
                    name=os.path.basename(row.script),
                )
                yield _composed(
                    near, command, caller, told=row.script, ignore_unknown=ignore_unknown
                )
            else:
                name = os.path.basename(row.argv[0]) or "command"
                yield _composed(near, Command(argv=row.argv, name=name), caller)
        except BadInput as error:
            text = str(error)
            raise BadInput(text if text.startswith(row.place) else f"{row.place}: {text}") from None


def _wrapped(command: str) -> bytes:
    from dlsched.client.submission.texts import check_words  # noqa: PLC0415

    check_words("--wrap", [command])
    if not command.strip():
        raise BadInput("--wrap: is empty")
    return f"#!/bin/sh\n# made by --wrap\n{command}\n".encode()


def _read(path: Any) -> bytes:
    try:
        return bytes(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror})") from None
    except ValueError:
        raise BadInput(f"{str(path)!a}: not a path") from None


def _tell(reply: SubmitReply, *, test_only: bool, parsable: bool) -> None:
    from dlsched.cli.terminal import shown  # noqa: PLC0415

    for warning in reply.warnings:
        typer.echo(f"dlsched: {shown(warning)}", err=True)
    if test_only:
        if not reply.warnings:
            typer.echo("could be submitted; nothing was", err=True)
        _foretell(reply)
        return
    bare = parsable or len(reply.jobs) > 1
    lines = [str(job.job) if bare else f"Submitted job {job.job}" for job in reply.jobs]
    typer.echo("\n".join(lines))
    sys.stdout.flush()


def _foretell(reply: SubmitReply) -> None:
    """When the jobs that were not submitted would start."""
    import time  # noqa: PLC0415

    from dlsched.cli.moments import clock_text  # noqa: PLC0415
    from dlsched.cli.terminal import shown  # noqa: PLC0415

    now = time.time()
    for place, each in enumerate(reply.supposed, 1):
        which = f"job {place}: " if len(reply.supposed) > 1 else ""
        if not each.HasField("start_at"):
            typer.echo(f"{which}start {shown(each.basis or 'not predicted')}")
            continue
        when = "at once" if each.start_at <= now + 1.0 else f"~{clock_text(each.start_at, now)}"
        typer.echo(f"{which}would start {when} ({shown(each.basis)})")


def _see_through(cluster: Client, reply: SubmitReply, *, logs: bool) -> int:
    from dlsched.cli.logs import follow_to_the_end  # noqa: PLC0415
    from dlsched.cli.wait import wait_for_all  # noqa: PLC0415
    from dlsched.client.cluster import filter_of  # noqa: PLC0415
    from dlsched.client.ids import JobName  # noqa: PLC0415

    chosen = filter_of([JobName(job=job.job) for job in reply.jobs])
    if logs:
        follow_to_the_end(cluster, reply.jobs[0].job)
    return wait_for_all(cluster, chosen)


# -- the signature, from the table -----------------------------------------------------------------


def _signature() -> inspect.Signature:
    """The parameters that typer reads: those of this verb alone, then the table's."""
    own = {
        "context": typer.Context,
        "words": Annotated[
            list[str] | None,
            typer.Argument(metavar="[SCRIPT [ARG]…]", help="Or a command after `--`."),
        ],
        "wrap": Annotated[
            str | None, typer.Option("--wrap", metavar="COMMAND", help="A line for the shell.")
        ],
        "source": Annotated[
            str | None,
            typer.Option(
                "--from",
                metavar="FILE",
                help="Many jobs: .csv, .jsonl or - for stdin, all or none.",
            ),
        ],
        "test_only": Annotated[
            bool, typer.Option("--test-only", help="Say whether and when; submit nothing.")
        ],
        "logs": Annotated[
            bool, typer.Option("--logs", help="Show the output as it comes, and wait.")
        ],
        "interactive": Annotated[bool, typer.Option("--interactive", help="Not supported yet.")],
        "ignore_unknown": Annotated[
            bool,
            typer.Option(
                "--ignore-unknown-directives", help="Leave them out, each with a line on stderr."
            ),
        ],
        "daemon": DaemonOption,
        "insecure": InsecureOption,
    }
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {"test_only": False, "logs": False, "interactive": False}
    defaults |= {"ignore_unknown": False, "insecure": False}
    parameters = [
        inspect.Parameter(
            name,
            kind,
            annotation=annotation,
            default=inspect.Parameter.empty if name == "context" else defaults.get(name),
        )
        for name, annotation in own.items()
    ]
    return inspect.Signature(parameters + [_parameter(option) for option in OPTIONS])


def _parameter(option: Option) -> inspect.Parameter:
    told = typer.Option(*option.words, metavar=option.metavar or None, help=option.help)
    kinds: dict[str, Any] = {"flag": bool, "many": list[str] | None, "value": str | None}
    return inspect.Parameter(
        option.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        annotation=Annotated[kinds[option.kind], told],
        default=False if option.kind == "flag" else None,
    )


_described: Any = _submit
_described.__signature__ = _signature()
_described.__annotations__ = {
    name: parameter.annotation for name, parameter in _described.__signature__.parameters.items()
}
submit_app.command("submit", cls=_Submit, context_settings={"allow_interspersed_args": False})(
    _described
)

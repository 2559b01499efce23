"""`dlsched whatif`: when a job, or every job, would start and end in some alternatives.

A word that is a job id names a live job; another one is a script, which is read as `submit` reads
it and is not submitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.daemon_options import DaemonOptions, words_of
from dlsched.cli.jobs.job_options import job_options, layer_of
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import AsJson, ColourOption
from dlsched.core.errors import BadInput, shorten
from dlsched.jobs.fields import OPTIONS

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import JobRequest, WhatIfRequest

_DESCRIBES = (
    *("time", "expected", "model", "batch_size", "total_iterations", "partition", "vc"),
    *("priority_class", "priority", "gpus_per_node", "nodes", "min_gpus", "max_gpus", "share"),
    *("cpus", "mem", "nodelist", "exclude", "exclusive", "begin", "deadline", "weight", "sla"),
    *("adaptive", "fixed_batch", "set"),
)
DESCRIBING = tuple(
    each for each in OPTIONS if each.key in _DESCRIBES and not {"--gres", "--nice"} & {*each.words}
)


def whatif_command(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB|SCRIPT]", help="A live job, or a script. [default: all jobs]"),
    ] = None,
    gpus: Annotated[
        list[str] | None, option("--gpus -G N,…", "Other numbers of GPUs: 4,8.")
    ] = None,
    types: Annotated[
        list[str] | None, option("--type TYPE,…", "Other GPU types, one each: a100,v100.")
    ] = None,
    policies: Annotated[
        list[str] | None, option("--policy NAME,…", "Under other policies, for all jobs.")
    ] = None,
    options: Annotated[
        list[str] | None, option("--option -o KEY=VALUE", "Of those policies, as in a replay.")
    ] = None,
    html: Annotated[
        str | None, option("--html FILE", "Draw the predicted schedules; one page, offline.")
    ] = None,
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    *,
    daemon: DaemonOptions,
    **given: Annotated[Any, job_options(DESCRIBING)],
) -> None:
    """Predict when a job starts and ends: as it is, and in each combination of alternatives.

    Without JOB, --time, --model and other options of submit describe a job that is not submitted;
    without these and --gpus and --type, all present jobs are predicted. Nothing changes.
    """
    layer = layer_of(given, DESCRIBING)
    counts, kinds = _counts(gpus), words_of("--type", types)
    names = words_of("--policy", policies)
    for each in options or []:
        if "=" not in each or each.startswith("="):
            raise BadInput(f"-o: {each!r} is not KEY=VALUE")
    if options and not names:
        raise BadInput("-o: is an option of a policy: name one with --policy")
    request = _request(job, layer, counts, kinds)
    request.policies.extend(names)
    request.options.extend(options or [])
    request.schedule = html is not None
    with daemon.client() as cluster:
        reply = cluster.what_if(request)
    from dlsched.cli.jobs.whatif.tables import print_answer, print_answer_json  # noqa: PLC0415

    if html is not None:
        from dlsched.cli.jobs.whatif.page import write_page  # noqa: PLC0415

        write_page(reply, html)
    if as_json:
        print_answer_json(reply)
    else:
        print_answer(reply, colour)
    if html is not None:
        typer.echo(f"{html}: the predicted schedule", err=True)


def _counts(texts: list[str] | None) -> list[int]:
    from dlsched.client.submission.texts import whole_number  # noqa: PLC0415

    words = words_of("--gpus", texts)
    if any(":" in word for word in words):
        raise BadInput("--gpus: numbers only, such as 4,8; GPU types are given with --type")
    return [whole_number("--gpus", word, least=1, most=1_000_000) for word in words]


def _request(
    word: str | None, layer: dict[str, str], counts: list[int], kinds: list[str]
) -> WhatIfRequest:
    """The question, but for policies and output."""
    from dlsched.rpc.messages import WhatIfRequest  # noqa: PLC0415

    request = WhatIfRequest(gpus=counts, gpu_types=kinds)
    if word is not None and word.strip()[:1].isdigit():
        from dlsched.cli.jobs.job_filter import ids_of, job_filter  # noqa: PLC0415

        if layer:
            key = min(layer)
            named = next(each.words[-1] for each in DESCRIBING if each.key == key)
            raise BadInput(f"{named}: describes a job that is not submitted; {word} has its own")
        if len(found := ids_of([word])) > 1 or len(found[0].tasks) > 1:
            raise BadInput(f"{shorten(word)}: names several jobs; what-if takes one")
        request.filter.CopyFrom(job_filter([word]))
    elif word is not None or layer or counts or kinds:
        request.described.CopyFrom(_described(word, layer, counts, kinds))
    return request


def _described(
    script: str | None, layer: dict[str, str], counts: list[int], kinds: list[str]
) -> JobRequest:
    """A job that is not submitted; of numbers and types it has its own, else the first ones."""
    from pathlib import Path  # noqa: PLC0415

    from dlsched.cli.jobs.submit import composed, read_file  # noqa: PLC0415
    from dlsched.client.daemon_client import here  # noqa: PLC0415
    from dlsched.client.submission.options import from_variables, merged  # noqa: PLC0415
    from dlsched.client.submission.request import Command  # noqa: PLC0415

    caller = here()
    if script is None:
        command = Command(argv=("true",), name="what-if")
    elif Path(script).exists():
        command = Command(script=read_file(script), name=Path(script).name, path=script)
    else:
        raise BadInput(f"{shorten(script)!r}: neither a job id (12, 12_3) nor a script here")
    near = merged(layer, from_variables(caller.variables))
    request = composed(near, command, caller, told=script or "").request
    if counts and not any(map(request.HasField, ("gpus", "gpus_per_node"))):
        near["gpus"] = str(counts[0])
        request = composed(near, command, caller, told=script or "").request
    if kinds and not request.gpu_types:
        request.gpu_types[:] = kinds[:1]
    return request

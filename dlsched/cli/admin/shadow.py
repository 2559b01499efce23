"""`dlsched admin shadow`: a second policy that decides on the live state without acting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.admin.part_options import PartOptions
from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.output.output_options import AsJson, ColourOption
from dlsched.cli.typer_commands import CommandGroup
from dlsched.core.errors import plural

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import ShadowDifference, ShadowReply, WhatIfOutcome

SCHEMA = "dlsched.shadow/1"
FIGURES = ("mean_jct_s", "p95_jct_s", "all_done_s")

shadow_app = CommandGroup("A second policy that decides without acting.")


@shadow_app.command("set")
def set_command(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="Of `dlsched policy list`.")],
    chosen: PartOptions,
    *,
    daemon: DaemonOptions,
) -> None:
    """Have POLICY decide without acting; other parts are the present ones. Operators only."""
    with daemon.client() as cluster:
        reply = cluster.set_shadow(chosen.parts(policy), chosen.option or [])
    told = [f"{stage} {name}" for stage, name in sorted(reply.parts.items())]
    typer.echo("in the shadow: " + ", ".join([*told, *reply.options]))


@shadow_app.command("off")
def off_command(*, daemon: DaemonOptions) -> None:
    """Have no second policy decide. Operators only."""
    with daemon.client() as cluster:
        cluster.set_shadow(None)
    typer.echo("no policy is in the shadow")


@shadow_app.command("show")
def show_command(
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    *,
    daemon: DaemonOptions,
) -> None:
    """What the second policy would do now, and how jobs would fare under each."""
    from dlsched.cli.output.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.output.listing import Column, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import shown, terminal  # noqa: PLC0415

    with daemon.client() as cluster:
        found = cluster.shadow()
    if as_json:
        print_json(SCHEMA, **_parts_of(found))
        return
    if not found.on:
        typer.echo("no policy is in the shadow")
        return
    for key, value in _lines(found):
        typer.echo(f"{key:<8}  {shown(value)}")
    if not found.HasField("at"):
        return
    out = terminal(colour)
    columns: list[Column[ShadowDifference]] = [
        Column("id", "ID", "", lambda each: str(each.job), right=True),
        Column("name", "NAME", "", lambda each: each.name, least=8),
        Column("user", "USER", "", lambda each: each.user, least=6),
        Column("gpus", "GPUS", "", lambda each: str(each.gpus), right=True),
        Column("would", "WOULD", "", lambda each: each.would),
        Column("nodes", "ON", "", lambda each: ",".join(each.nodes) or "-", least=6),
    ]
    sys.stdout.write("\n")
    print_listing(columns, list(found.differences), out)
    if found.more_differences:
        sys.stdout.write(f"{plural(found.more_differences, 'job')} more\n")
    sys.stdout.write("\n")
    print_listing(_figures(), [found.under_present, found.under_shadow], out)


def _figures() -> list[Any]:
    from dlsched.cli.output.listing import Column  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    def span(name: str, title: str) -> Column[WhatIfOutcome]:
        def text(told: WhatIfOutcome) -> str:
            return duration_text(getattr(told, name)) if told.HasField(name) else "-"

        return Column(name, title, "", text, right=True)

    titles = ("MEAN JCT", "95% JCT", "ALL DONE IN")
    return [
        Column("policy", "PREDICTED UNDER", "", lambda told: told.policy),
        Column("jobs", "JOBS", "", lambda told: str(told.jobs), right=True),
        *(span(name, title) for name, title in zip(FIGURES, titles, strict=True)),
    ]


def _lines(found: ShadowReply) -> Iterator[tuple[str, str]]:
    from dlsched.cli.output.times import local_text  # noqa: PLC0415

    parts = ", ".join(
        f"{stage} {name}" for stage, name in sorted(found.parts.items()) if stage != "scheduling"
    )
    told = f"{found.policy} ({parts})" if parts else found.policy
    yield "shadow", ", ".join([told, *found.options])
    yield "set", f"by {found.set_by}, {local_text(found.since)}"
    yield "present", found.present
    looks = f"{found.looks} since then, {found.differing} with a difference"
    yield "looks", f"{looks}; each {found.every_s:.0f} s, the last took {found.cost_s:.2f} s"
    if found.failures:
        yield "failures", f"{found.failures} since then"
    if found.failure:
        yield "failed", found.failure
    if found.HasField("at"):
        yield "seen", local_text(found.at)
    else:
        yield "seen", "nothing yet"


def _parts_of(found: ShadowReply) -> dict[str, Any]:
    from dlsched.cli.output.times import utc_text  # noqa: PLC0415

    if not found.on:
        return {"policy": None, "present": found.present}
    return {
        "policy": found.policy,
        "parts": dict(sorted(found.parts.items())),
        "options": list(found.options),
        "present": found.present,
        "set_by": found.set_by,
        "since": utc_text(found.since),
        "looks": found.looks,
        "differing": found.differing,
        "failures": found.failures,
        "failure": found.failure or None,
        "at": utc_text(found.at) if found.HasField("at") else None,
        "cost_s": round(found.cost_s, 3),
        "every_s": round(found.every_s, 3),
        "differences": [
            {
                "job_id": each.job,
                "name": each.name,
                "user": each.user,
                "gpus": each.gpus,
                "would": each.would,
                "nodes": list(each.nodes),
            }
            for each in found.differences
        ],
        "predicted": [_predicted(each) for each in (found.under_present, found.under_shadow)]
        if found.HasField("at")
        else [],
    }


def _predicted(told: WhatIfOutcome) -> dict[str, Any]:
    from dlsched.cli.jobs.whatif.tables import job_objects  # noqa: PLC0415

    return {
        "policy": told.policy,
        "jobs": told.jobs,
        "never": told.never,
        **{
            name: round(getattr(told, name), 3) if told.HasField(name) else None for name in FIGURES
        },
        "all": job_objects(told),
    }

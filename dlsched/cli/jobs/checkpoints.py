"""`dlsched checkpoints`: what jobs have saved, and at what their next runs begin."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import MaybeIds, job_filter
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import JsonOptions

if TYPE_CHECKING:
    from dlsched.cli.output.listing import Column
    from dlsched.client.records import Checkpoint

SCHEMA = "dlsched.checkpoints/1"


def checkpoints_command(
    jobs: MaybeIds = None,
    *,
    all_users: Annotated[bool, option("--all -a", "Of all users.")] = False,
    output: JsonOptions,
    daemon: DaemonOptions,
) -> None:
    """List the checkpoints of jobs, latest first; without ids those of all your own jobs."""
    from dlsched.cli.output.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.output.listing import listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import shown, terminal  # noqa: PLC0415

    out = terminal(output.colour)
    wanted = job_filter(jobs, all_users=all_users)
    with daemon.client() as cluster:
        found, unsaved = cluster.checkpoints_and_unsaved(wanted)
    if output.as_lines:
        print_json_lines(map(object_of, found))
    elif output.as_json:
        print_json(SCHEMA, checkpoints=map(object_of, found), unsaved=list(map(object_of, unsaved)))
    else:
        for line in listing(_columns(), found, out):
            sys.stdout.write(line + "\n")
        for each in unsaved:
            sys.stdout.write(f"{each.shown_id}: {shown(each.text)}\n")


def _columns() -> list[Column[Checkpoint]]:
    from dlsched.cli.output.listing import Column  # noqa: PLC0415
    from dlsched.cli.output.times import local_text  # noqa: PLC0415
    from dlsched.client.submission.memory import memory_text  # noqa: PLC0415

    def loss(each: Checkpoint) -> str:
        return "-" if each.loss is None else f"{each.loss:.6g}"

    def use(each: Checkpoint) -> str:
        source = [] if each.source is None else [f"of {each.source}"]
        used = [f"used by {','.join(map(str, each.used_by))}"] if each.used_by else []
        return "; ".join([*(["next"] if each.next else []), *source, *used]) or "-"

    return [
        Column("id", "ID", "", lambda each: each.shown_id, right=True),
        Column("run", "RUN", "", lambda each: str(each.run or "-"), right=True),
        Column("step", "STEP", "", lambda each: str(each.step), right=True),
        Column("size", "SIZE", "", lambda each: memory_text(each.bytes), right=True),
        Column("at", "WRITTEN", "", lambda each: local_text(each.at)),
        Column("loss", "LOSS", "", loss, right=True),
        Column("use", "USE", "", use),
        Column("path", "WHERE", "", lambda each: each.path or "-", least=12),
    ]

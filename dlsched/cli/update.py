"""`dlsched update`: change jobs after they were submitted; old and new are printed."""

from __future__ import annotations

from typing import Annotated

import typer

from dlsched.cli.connect import DaemonOption, InsecureOption, client, report
from dlsched.core.errors import BadInput

__all__ = ["update_command"]


def update_command(
    jobs: Annotated[list[str], typer.Argument(metavar="ID…", help="7, 7_3 or 7_[2-5].")],
    time: Annotated[
        str | None, typer.Option("--time", "-t", metavar="LIMIT", help="Time limit: 2h, 1-12.")
    ] = None,
    priority: Annotated[
        float | None, typer.Option("--priority", metavar="N", help="Larger is earlier.")
    ] = None,
    priority_class: Annotated[
        str | None, typer.Option("--qos", "--priority-class", "-q", metavar="NAME", help="Class.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", "--job-name", "-J", metavar="TEXT", help="Name.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", metavar="NAME", help="Partition.")
    ] = None,
    vc: Annotated[
        str | None, typer.Option("--account", "--vc", "-A", metavar="NAME", help="Account.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", "-G", metavar="GPUS", help="8, a100:8, 'a100:8|v100:8'.")
    ] = None,
    min_gpus: Annotated[
        int | None, typer.Option("--min-gpus", metavar="N", min=1, help="At least.")
    ] = None,
    max_gpus: Annotated[
        int | None, typer.Option("--max-gpus", metavar="N", min=1, help="At most.")
    ] = None,
    nodelist: Annotated[
        str | None, typer.Option("--nodelist", "-w", metavar="HOSTS", help="Only on these.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option("--exclude", "-x", metavar="HOSTS", help="Not on these.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--begin", metavar="TIME", help="Not before.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="To be done by.")
    ] = None,
    expected: Annotated[
        str | None, typer.Option("--expected", metavar="TIME", help="Your estimate.")
    ] = None,
    grace: Annotated[
        str | None, typer.Option("--grace", metavar="TIME", help="Seconds from stop to KILL.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", min=0, help="After its own failures.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option("--weight", metavar="X", min=0, help="For weighted policies.")
    ] = None,
    array_limit: Annotated[
        int | None,
        typer.Option("--array-limit", metavar="N", min=0, help="Elements at once; 0: all."),
    ] = None,
    dependency: Annotated[
        str | None,
        typer.Option("--dependency", "-d", metavar="LIST", help="Wait for these: afterok:12."),
    ] = None,
    comment: Annotated[
        str | None, typer.Option("--comment", metavar="TEXT", help="Kept with the job.")
    ] = None,
    notify: Annotated[
        str | None, typer.Option("--notify", metavar="EVENTS", help="begin, end, fail, …")
    ] = None,
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Change jobs; an empty text takes a wish back. What changed is printed, old -> new."""
    from dlsched.cli.job_filter import ids_of, job_filter  # noqa: PLC0415
    from dlsched.client.submission.changes import changes, wire_dependencies  # noqa: PLC0415

    texts = {
        "time": time,
        "priority_class": priority_class,
        "name": name,
        "partition": partition,
        "vc": vc,
        "gpus": gpus,
        "nodelist": nodelist,
        "exclude": exclude,
        "begin": begin,
        "deadline": deadline,
        "expected": expected,
        "grace": grace,
        "comment": comment,
        "notify": notify,
    }
    numbers = {
        "priority": priority,
        "min_gpus": min_gpus,
        "max_gpus": max_gpus,
        "retries": retries,
        "weight": weight,
        "array_limit": array_limit,
    }
    fields = changes({key: text for key, text in texts.items() if text is not None})
    fields |= {key: str(number) for key, number in numbers.items() if number is not None}
    if not fields and dependency is None:
        raise BadInput("nothing to change: give at least one option")
    awaited = None if dependency is None else wire_dependencies("--dependency", dependency)
    ids_of(jobs)
    chosen = job_filter(jobs)
    with client(daemon, insecure) as cluster:
        report(cluster.update(chosen, fields, dependencies=awaited), "updated")

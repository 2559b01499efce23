"""`dlsched update`: change jobs after they were submitted; old and new values are printed.

The options are those of `submit` whose field may be updated.
"""

from __future__ import annotations

from typing import Annotated, Any

from dlsched.cli.daemon_options import DaemonOptions, report
from dlsched.cli.jobs.job_filter import IdsArgument, ids_of, job_filter
from dlsched.cli.jobs.job_options import job_options, layer_of
from dlsched.cli.option_groups import option
from dlsched.core.errors import BadInput
from dlsched.jobs.fields import UPDATE_OPTIONS


def update_command(
    jobs: IdsArgument,
    array_limit: Annotated[
        int | None, option("--array-limit N", "Elements at once; 0: all.", min=0)
    ] = None,
    dependency: Annotated[
        str | None, option("--dependency -d LIST", "Wait for these: afterok:12.")
    ] = None,
    *,
    daemon: DaemonOptions,
    **given: Annotated[Any, job_options(UPDATE_OPTIONS)],
) -> None:
    """Change jobs; an empty text removes a value. What changed is printed, old -> new."""
    from dlsched.client.submission.changes import changes, wire_dependencies  # noqa: PLC0415

    fields = changes(layer_of(given, UPDATE_OPTIONS))
    if array_limit is not None:
        fields["array_limit"] = str(array_limit)
    if not fields and dependency is None:
        raise BadInput("nothing to change: give at least one option")
    awaited = None if dependency is None else wire_dependencies("--dependency", dependency)
    ids_of(jobs)
    chosen = job_filter(jobs)
    with daemon.client() as cluster:
        report(cluster.update(chosen, fields, dependencies=awaited), "updated")

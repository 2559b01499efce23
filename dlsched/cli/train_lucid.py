"""`dlsched train lucid`: the limits of Lucid's packing classes, from a site's own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlsched.cli.option_groups import option

SCHEMA = "dlsched.lucid-limits/1"


def lucid_command(
    workloads: Annotated[
        Path, typer.Argument(metavar="WORKLOADS", help="What they use alone, as for --profiles.")
    ],
    pairs: Annotated[
        Path | None,
        option("--pairs FILE", "Speeds of pairs. [default: the column share_score of WORKLOADS]"),
    ] = None,
    as_json: Annotated[bool, option("--json", "As JSON.")] = False,
) -> None:
    """Learn by which use of a GPU `lucid` tells jobs that bear to share it.

    Prints the options for `--policy lucid`, and for how many workloads they are right.
    """
    import numpy as np  # noqa: PLC0415

    from dlsched.policies.scheduling.lucid.classes import (  # noqa: PLC0415
        classes_of_use,
        learned_limits,
    )
    from dlsched.policies.scheduling.lucid.options import LucidOptions  # noqa: PLC0415
    from simulate.learner.packing_classes import read_classes  # noqa: PLC0415

    known = read_classes(workloads, pairs)
    memory = np.full(len(known.classes), np.nan)
    if known.memory_util is not None:
        memory = known.memory_util
    limits = learned_limits(known.gpu_util, known.memory_util, known.classes)

    def right(options: LucidOptions) -> int:
        found = classes_of_use(known.gpu_util, memory, options)
        return int((found == known.classes).sum())

    told = {
        "workloads": len(known.classes),
        "right": right(LucidOptions(**limits)),  # type: ignore[arg-type]  # all are numbers
        "right_with_defaults": right(LucidOptions()),
    }
    if as_json:
        from dlsched.cli.output.json_output import print_json  # noqa: PLC0415

        print_json(SCHEMA, options=limits, **told)
        return
    typer.echo(" ".join(f"-o lucid.{name}={limit:.6g}" for name, limit in limits.items()))
    typer.echo(
        f"right for {told['right']} of {told['workloads']} workloads; with the defaults for "
        f"{told['right_with_defaults']}"
    )

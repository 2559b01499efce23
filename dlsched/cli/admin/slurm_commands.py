"""`dlsched admin slurm-commands`: Slurm's commands for login shells; jobs have them anyway."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlsched.core.errors import DlschedError


def slurm_commands_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="On the path of users.")],
) -> None:
    """Write srun, sbatch, salloc, squeue, scancel, sinfo, sacct and scontrol into FOLDER."""
    from dlsched.system import slurm_commands  # noqa: PLC0415

    try:
        written = slurm_commands.install(str(folder))
    except OSError as error:
        raise DlschedError(f"{folder}: {error.strerror}") from None
    typer.echo("\n".join(written))

"""`dlsched admin backup` and `restored`: a copy of the daemon's database, and going back to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlsched.cli.option_groups import option

Config = Annotated[Path, option("--config FILE", "The daemon's configuration.")]
CONFIG = Path("/etc/dlsched/dlsched.toml")


def backup_command(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="It must not exist.")],
    config: Config = CONFIG,
) -> None:
    """Copy a SQLite database as it is at one moment, also while the daemon uses it."""
    from dlsched.daemon.settings import load_settings  # noqa: PLC0415
    from dlsched.db.backup import backup  # noqa: PLC0415

    backup(load_settings(config).daemon.database, target)
    typer.echo(f"copied to {target}")


def restored_command(
    config: Config = CONFIG,
    jump: Annotated[
        int, option("--jump N", "More jobs than can have been lost.", min=0, max=10**9)
    ] = 1000,
) -> None:
    """After an older copy was put back, before the daemon starts: no job id is given twice."""
    from dlsched.daemon.settings import load_settings  # noqa: PLC0415
    from dlsched.db.backup import restored  # noqa: PLC0415
    from dlsched.db.owner import become_owner  # noqa: PLC0415

    database = load_settings(config).daemon.database
    become_owner(database)
    typer.echo(f"the next job is {restored(database, jump=jump)}")

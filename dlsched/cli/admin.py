"""`dlsched admin`: the verbs of those who run the cluster, gathered from a table."""

from __future__ import annotations

import typer

from dlsched.cli.lazy import lazy_group
from dlsched.cli.verbs import ADMIN_VERBS

__all__ = ["admin_app"]

admin_app = typer.Typer(
    help="For those who run the cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    cls=lazy_group(ADMIN_VERBS),
)


@admin_app.callback()
def _admin() -> None:
    """For those who run the cluster."""

"""Migrations of the tables, carried out by Alembic, each in one transaction.

`schema.py` says what the tables are now; the files in `versions` say how databases of older
versions get there. Nothing here runs without an explicit order.
"""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Engine

from dlsched.db import schema
from dlsched.db.errors import SchemaMismatch

__all__ = ["configuration", "newest", "upgrade"]


def configuration() -> Config:
    """Alembic's configuration; the scripts are found inside the package."""
    config = Config()
    config.set_main_option("script_location", "dlsched.db:migrations")
    config.set_main_option("path_separator", "os")
    return config


def newest() -> str | None:
    """The newest version that there is a migration to."""
    return ScriptDirectory.from_config(configuration()).get_current_head()


def upgrade(engine: Engine, found: str) -> None:
    """Bring a database from the version found to this program's.

    Raises:
        SchemaMismatch: this program does not know the version found: it is newer, or too old.
    """
    config = configuration()
    try:
        ScriptDirectory.from_config(config).get_revision(found)
    except CommandError:
        raise SchemaMismatch(found, schema.VERSION, schema.FIRST) from None
    config.attributes["engine"] = engine
    command.upgrade(config, schema.VERSION)

"""`python -m dlsched.db`: an operator's work on a database while no daemon uses it.

Only `backup` may run at any time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dlsched.core.errors import DlschedError
from dlsched.db import schema
from dlsched.db.backup import JUMP, backup, restored
from dlsched.db.owner import become_owner
from dlsched.db.versions import migrate, version


def main(words: list[str] | None = None) -> int:
    """Carry out one command; returns the exit status of the process."""
    parser = argparse.ArgumentParser(prog="python -m dlsched.db")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, meaning in (
        ("version", "print the version of the tables"),
        ("migrate", "bring the tables to this program's version"),
        ("backup", "copy a SQLite database while it is used"),
        ("restored", "note that the database was restored from a backup"),
    ):
        verbs.add_parser(verb, help=meaning).add_argument("url")
    verbs.choices["backup"].add_argument("target", type=Path)
    verbs.choices["restored"].add_argument("--jump", type=int, default=JUMP)
    given = parser.parse_args(words)
    try:
        print(_do(given))
    except DlschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _do(given: argparse.Namespace) -> str:
    match given.verb:
        case "version":
            found = version(given.url) or "empty"
            return f"database is at {found}, this program needs {schema.VERSION}"
        case "migrate":
            become_owner(given.url)
            before, now = migrate(given.url)
            return f"{before or 'empty'} -> {now}"
        case "backup":
            backup(given.url, given.target)
            return f"copied to {given.target}"
    become_owner(given.url)
    return f"the next job is {restored(given.url, jump=given.jump)}"


if __name__ == "__main__":
    sys.exit(main())

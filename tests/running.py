"""The command line in this process."""

from __future__ import annotations

import contextlib
import io
import sys

from dlsched.cli.main import run


def dlsched(*words: str) -> str:
    """What the command line prints."""
    out = io.StringIO()
    before, sys.argv = sys.argv, ["dlsched", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            run()
    finally:
        sys.argv = before
    return out.getvalue()

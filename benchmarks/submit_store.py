"""Submit jobs through the store in one call: `python benchmarks/submit_store.py JOBS`.

The database is a file of SQLite in a temporary folder. It is a command of its own, so that the
kernel accounts for what it costs; with 0 jobs it costs what its imports and an empty database do.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

if find_spec("dlsched") is None:  # run as a script, without a checkout in PYTHONPATH
    sys.path.insert(0, str(Path(__file__).parent.parent))

from dlsched.db.records import Event
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import JobId
from tests.db.ledgers import submit

__all__ = ["main"]


def main() -> None:
    """Submit so many jobs, each with its event, in one transaction."""
    numbers = range(1, int(sys.argv[1]) + 1)
    with (
        tempfile.TemporaryDirectory(prefix="dlsched-store-") as folder,
        Store.open(f"sqlite:///{folder}/store.db") as store,
    ):
        term = store.contend("daemon-1")
        assert term is not None
        events = [Attach(Event(at=1.0, kind="submit", job=JobId(k))) for k in numbers]
        store.persist(term.epoch, 1, [*(submit(k) for k in numbers), *events], 1.0)


if __name__ == "__main__":
    main()

"""The ledger, which is the database's content as a value, and its changes.

A leader has two: `reserved` contains every change that it has decided, and `committed` only those
that the database has confirmed.
"""

from __future__ import annotations

from dlsched.protocol.ledger.applying import *  # noqa: F403 - the parts of one interface
from dlsched.protocol.ledger.changes import *  # noqa: F403
from dlsched.protocol.ledger.ends import *  # noqa: F403
from dlsched.protocol.ledger.rows import *  # noqa: F403
from dlsched.protocol.ledger.writes import *  # noqa: F403

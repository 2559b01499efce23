"""A recorded snapshot decided again without a daemon: equal bytes give equal decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.snapshot import LiveSnapshot


def decide_snapshot(
    data: bytes, *, parts: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> Decided:
    """Decide a snapshot that was saved.

    Other parts by stage, with options KEY=VALUE, show what they would have decided; they begin
    without any state. None: those of the snapshot.

    Raises:
        BadInput: not a snapshot, or parts that are not known.
        PolicyFailed: a part failed.
    """
    snapshot = LiveSnapshot.from_bytes(data)
    if parts is not None:
        snapshot = snapshot.under(snapshot.settings.with_policy(parts, tuple(options)))
    return decide(snapshot)

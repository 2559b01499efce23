"""A recorded snapshot decided again, away from any daemon: same bytes in, same bytes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.snapshot import LiveSnapshot

__all__ = ["decide_snapshot"]


def decide_snapshot(
    data: bytes, *, parts: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> Decided:
    """Decide a snapshot that was saved.

    Args:
        data: the file's content.
        parts: other parts by stage, to see what they would have decided; they begin without any
            state. None for those of the snapshot.
        options: their options, KEY=VALUE.

    Raises:
        BadInput: not a snapshot, or parts that are not known.
        PolicyFailed: a part failed.
    """
    snapshot = LiveSnapshot.from_bytes(data)
    if parts is not None:
        snapshot = snapshot.under(snapshot.settings.with_policy(parts, tuple(options)))
    return decide(snapshot)

"""A published clock: the policy itself counts what units have done, and says when they end."""

from __future__ import annotations

from simulate.progress.lazy import LazyProgress


class ToldProgress(LazyProgress):
    """Units go on until the policy completes them."""

    @property
    def is_plain(self) -> bool:
        """No: none of them is ever done by itself."""
        return False

    def expect_end(self, row: int, now: float) -> None:
        """Nothing is expected."""

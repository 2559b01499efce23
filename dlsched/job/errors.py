"""Errors of the job library: one line each, for the person who wrote the training script.

The library stands alone, so it has a tree of its own beside `dlsched.core.errors`.
"""

from __future__ import annotations

__all__ = ["DamagedCheckpoint", "JobError"]


class JobError(Exception):
    """The script or its surroundings are wrong; the text names what, and what would be right."""


class DamagedCheckpoint(JobError):
    """A checkpoint is not as it was written."""

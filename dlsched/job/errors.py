"""Errors of the job library: one line each, for the author of the training script.

The library stands alone, so its errors are not those of `dlsched.core.errors`.
"""

from __future__ import annotations


class JobError(Exception):
    """The script or its environment is wrong; the text says what, and what would be right."""


class DamagedCheckpoint(JobError):
    """A checkpoint is not as it was written."""

"""The job model: one table of every field that a job has, from the command line to a policy."""

from __future__ import annotations

__all__: list[str] = []

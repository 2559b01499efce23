"""Jobs, runs, nodes and decisions in SQLite or Postgres; the only place that writes SQL."""

from __future__ import annotations

__all__: list[str] = []

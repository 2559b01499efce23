"""Nodes: one table of the facts about a machine, from its agent to a policy."""

from __future__ import annotations

__all__: list[str] = []

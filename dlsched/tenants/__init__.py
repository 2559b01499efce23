"""Tenants: one table for each kind, from the command line to the database."""

from __future__ import annotations

__all__: list[str] = []

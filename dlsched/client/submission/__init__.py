"""The language of submissions: pure functions from words, directives and variables to requests."""

from __future__ import annotations

__all__: list[str] = []

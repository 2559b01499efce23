"""The wire: code generated from `proto/dlsched/v1` and its conversion from and to plain values."""

from __future__ import annotations

__all__: list[str] = []

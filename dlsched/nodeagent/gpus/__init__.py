"""GPUs as a node knows them: who they are, how they are, who uses them."""

from __future__ import annotations

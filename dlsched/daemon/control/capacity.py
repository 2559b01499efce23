"""What the cluster could ever give, as far as a job's wishes are checked against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Capacity", "Host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A node as far as fitting goes; what is not known fits."""

    name: str
    gpus: int
    gpu_type: str = ""
    cpus: int | None = None
    memory_bytes: int | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the cluster could ever give: configured nodes and those that have registered."""

    hosts: Mapping[str, Host] = field(default_factory=dict)

    @property
    def types(self) -> dict[str, str]:
        """Known GPU types by their name in small letters."""
        return {h.gpu_type.lower(): h.gpu_type for h in self.hosts.values() if h.gpu_type}

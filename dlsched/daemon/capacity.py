"""What the cluster could ever give to one job, so that a job that cannot fit is refused at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dlsched.core.cluster.description import ANY_TYPE
from dlsched.core.cluster.features import features_of
from dlsched.core.cluster.gpus_by_type import ByType
from dlsched.core.errors import BadInput, not_known
from dlsched.daemon.live.nodes import LiveNodes, natural
from dlsched.daemon.nodes.agents import Agents
from dlsched.daemon.nodes.node_facts import facts_that_count, features_in_force
from dlsched.daemon.settings import Settings
from dlsched.host_lists import fold
from dlsched.nodes.fields import REPORTED
from dlsched.protocol.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A node as far as fitting goes; a fact that is not known always fits."""

    name: str
    gpus: int
    gpu_type: str = ""
    gpu_types: Mapping[str, int] = field(default_factory=dict)  # how many of each of several
    has: Mapping[str, int] = field(default_factory=dict)  # by fact, counted as agents report it
    partitions: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()  # in small letters, the GPU type among them
    spare: bool = False  # only for jobs that have lost a node or a GPU

    @property
    def cpus(self) -> int | None:
        """Its processors; None: not known."""
        return self.has.get("cpus")

    def may_be_of(self, types: Collection[str]) -> bool:
        """Whether its GPUs have one of these types, in small letters, or theirs is not known."""
        return self.gpu_type.lower() in types if self.gpu_type else not self.gpu_types

    def of_type(self, kind: str) -> int:
        """How many GPUs it has of a type, in small letters, as far as is known."""
        return self.gpus if self.gpu_type.lower() == kind else self.gpu_types.get(kind, 0)

    def may_give(self, wanted: ByType) -> bool:
        """Whether it has so many GPUs of each type, or their types are not known."""
        is_known = self.gpu_type or self.gpu_types
        return not is_known or all(self.of_type(kind) >= count for kind, count in wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Configured nodes and nodes that have registered, by name and in the order of the names."""

    hosts: Mapping[str, Host] = field(default_factory=dict)

    @property
    def types(self) -> dict[str, str]:
        """The known GPU types, by their names in small letters."""
        return {h.gpu_type.lower(): h.gpu_type for h in self.hosts.values() if h.gpu_type}

    def usable(
        self, partition: str, only: Collection[str], unwanted: Collection[str]
    ) -> list[Host]:
        """The nodes on which a job may begin.

        Args:
            partition: in which; empty: any.
            only: names of the only nodes that it may use; none: any.
            unwanted: names of nodes that it may not use.
        """
        return [
            host
            for host in self.hosts.values()
            if not host.spare
            and (not partition or not host.partitions or partition in host.partitions)
            and (not only or host.name in only)
            and host.name not in unwanted
        ]

    def mixed(self, types: Collection[str], names: Collection[str] = ()) -> str:
        """Nodes that have GPUs of these types among others, and why they do not count; or nothing.

        Args:
            types: in small letters.
            names: of the only nodes that are meant; none: all.
        """
        found = [
            host.name
            for host in self.hosts.values()
            if not host.gpu_types.keys().isdisjoint(types) and (not names or host.name in names)
        ]
        if not found:
            return ""
        has, gets = ("has", "gets") if len(found) == 1 else ("have", "get")
        return (
            f"{fold(found)} {has} several types and so {gets} only jobs that name none, "
            "or several (--gres=gpu:TYPE:N,gpu:TYPE:N), or one that no other node has"
        )

    def unknown_type(self, what: str, name: str) -> BadInput:
        """The refusal of a GPU type that no node has, or none has without another type."""
        if mixed := self.mixed({name.lower()}):
            return BadInput(f"{what} {name!r}: no node has GPUs of this type alone; {mixed}")
        return not_known(what, name, sorted(self.types.values()))

    @property
    def features(self) -> frozenset[str]:
        """What constraints may name."""
        return frozenset().union(*(host.features for host in self.hosts.values()))


def _counted(facts: Mapping[str, object]) -> dict[str, int]:
    """What a node has, counted as agents report it: bytes, processors."""
    return {
        name: int(value * row.per)
        for name, row in REPORTED.items()
        if isinstance(value := facts.get(name), int | float)
    }


def capacity_of(settings: Settings, ledger: Ledger, nodes: LiveNodes, agents: Agents) -> Capacity:
    """The capacity of a cluster.

    Args:
        settings: with the configured nodes.
        ledger: with the nodes that have registered, whose GPUs are those that they report.
        nodes: their GPU types.
        agents: what they reported.
    """
    partitions = settings.partition_nodes()

    def partitions_of(name: str) -> tuple[str, ...]:
        return tuple(p for p, members in partitions.items() if members is None or name in members)

    hosts: dict[str, Host] = {}
    sections = settings.configured_nodes()
    for name, section in sections.items():
        hosts[name] = Host(
            name=name,
            gpus=section.gpus,
            gpu_type=section.gpu_type,
            has=_counted(facts_that_count(section, None)),
            partitions=partitions_of(name),
            features=features_of(section.features, section.gpu_type),
            spare=section.spare,
        )
    features = features_in_force(settings, agents)
    for name, registered in ledger.nodes.items():
        live = nodes.get(name)
        gpu_type = "" if live is None or live.gpu_type == ANY_TYPE else live.gpu_type
        described = agents.described.get(name)
        facts = facts_that_count(sections.get(name), described)
        types = () if live is None or gpu_type else live.types_of(registered.gpus)
        hosts[name] = Host(
            name=name,
            gpus=len(registered.gpus),
            gpu_type=gpu_type,
            gpu_types=Counter(types),
            has=_counted(facts),
            partitions=partitions_of(name),
            features=features_of(features.get(name, ()), gpu_type),
            spare=name in sections and sections[name].spare,
        )
    return Capacity(hosts={name: hosts[name] for name in sorted(hosts, key=natural)})

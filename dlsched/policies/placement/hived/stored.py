"""The cells as plain values, for the state of a round, and back.

Cells are numbered by their place in the configuration. The order of lists is kept, since it decides
which of several equal cells is taken next. Where the configuration has changed, only the gangs are
taken over: each keeps its GPUs, and its virtual cells where it still fits (work is never ended).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dlsched.policies.placement.hived.cells import OPPORTUNISTIC, Physical, Virtual
from dlsched.policies.placement.hived.cluster_cells import ClusterCells
from dlsched.policies.placement.hived.gangs import Gang, Request

_SAID = ("vc", "priority", "pods", "gpus", "whole", "apart", "gpu_type", "pin", "lazy")


def fingerprint(cluster: ClusterCells) -> str:
    """The same text for the same cells with the same owners."""
    return repr((cluster.plan.tops, [*cluster.plan.chains.values()], [*cluster.owned.items()]))


class _Numbers:
    """Numbers of cells, both ways."""

    def __init__(self, cluster: ClusterCells) -> None:
        tops = (top for tops in cluster.tops.values() for top in tops)
        self.physical: list[Physical] = [cell for top in tops for cell in top.everything()]
        roots = (root for roots in cluster.roots.values() for root in roots)
        self.virtual: list[Virtual] = [cell for root in roots for cell in root.everything()]
        self.of: dict[Physical | Virtual, int] = {}
        self.of.update({cell: number for number, cell in enumerate(self.physical)})
        self.of.update({cell: number for number, cell in enumerate(self.virtual)})

    def numbers(self, cells: Iterable[Physical | Virtual]) -> list[int]:
        return [self.of[cell] for cell in cells]


def stored(cluster: ClusterCells) -> dict[str, Any]:
    """Everything that decides later answers."""
    numbers = _Numbers(cluster)
    return {
        "cells": fingerprint(cluster),
        "free": {
            name: [numbers.numbers(cells) for cells in each.free]
            for name, each in cluster.ledgers.items()
        },
        "bad_free": {
            name: [numbers.numbers(cells) for cells in each.bad_free]
            for name, each in cluster.ledgers.items()
        },
        "doomed": {
            name: {
                vc: [numbers.numbers(cells) for cells in levels]
                for vc, levels in each.doomed.items()
            }
            for name, each in cluster.ledgers.items()
        },
        "views": [numbers.numbers(view.machines) for view in cluster.views],
        "bound": [
            [number, numbers.of[cell.bound]]
            for number, cell in enumerate(numbers.physical)
            if cell.bound is not None
        ],
        "split": [number for number, cell in enumerate(numbers.physical) if cell.split],
        "unhealthy": [number for number, cell in enumerate(numbers.physical) if not cell.healthy],
        "bad": sorted(cluster.bad),
        "gangs": [_gang_stored(gang, numbers) for gang in cluster.gangs.values()],
    }


def _gang_stored(gang: Gang, numbers: _Numbers) -> dict[str, Any]:
    virtual = None
    if gang.virtual is not None:
        virtual = [[-1 if v is None else numbers.of[v] for v in pod] for pod in gang.virtual]
    return {
        "name": gang.name,
        "said": {key: getattr(gang.request, key) for key in _SAID},
        "state": gang.state,
        "downgraded_by": gang.downgraded_by,
        "gpus": [numbers.numbers(pod) for pod in gang.pods],
        "virtual": virtual,
        "where": [[[gpu.node, gpu.index] for gpu in pod] for pod in gang.pods],
        "roots": root_types(gang),
    }


def root_types(gang: Gang) -> list[list[str]] | None:
    """The types of the granted cells that a gang's GPUs are part of; None for an opportunistic."""
    if gang.virtual is None:
        return None
    types = [
        ["" if v is None else v.chain.types[v.root.level - 1] for v in pod] for pod in gang.virtual
    ]
    return types if all(all(pod) for pod in types) else None


def request_stored(name: str, said: Mapping[str, Any]) -> Request:
    """A request of `stored`."""
    pods = tuple((int(size), int(count)) for size, count in said["pods"])
    return replace(Request(name=name, vc="", priority=0), **{**said, "pods": pods})


def restore(cluster: ClusterCells, state: Mapping[str, Any]) -> bool:
    """Bring new cells to a stored state; False where its cells are others."""
    if state["cells"] != fingerprint(cluster):
        return False
    numbers = _Numbers(cluster)
    physical, virtual = numbers.physical, numbers.virtual
    for cell in physical:
        cell.bound = None
    for root in virtual:
        root.bound = None
    for one, other in state["bound"]:
        physical[one].bound, virtual[other].bound = virtual[other], physical[one]
    for number in state["split"]:
        physical[number].split = True
    for number in state["unhealthy"]:
        physical[number].healthy = False
    cluster.bad = set(state["bad"])
    for view, order in zip(cluster.views, state["views"], strict=True):
        cells: Any = physical if isinstance(view.machines[0], Physical) else virtual
        view.machines = [cells[number] for number in order]
    for name, ledger in cluster.ledgers.items():
        ledger.free = [[physical[n] for n in level] for level in state["free"][name]]
        ledger.bad_free = [[physical[n] for n in level] for level in state["bad_free"][name]]
        ledger.doomed = {
            vc: [[physical[n] for n in level] for level in levels]
            for vc, levels in state["doomed"][name].items()
        }
        ledger.recount(root for roots in cluster.roots.values() for root in roots)
    for each in state["gangs"]:
        _restore_gang(cluster, each, numbers)
    for gang in cluster.gangs.values():
        _count(gang)
    return True


def _restore_gang(cluster: ClusterCells, each: Mapping[str, Any], numbers: _Numbers) -> None:
    gang = Gang(
        request=request_stored(each["name"], each["said"]),
        pods=[[numbers.physical[n] for n in pod] for pod in each["gpus"]],
        state=each["state"],
        downgraded_by=each["downgraded_by"],
    )
    if each["virtual"] is not None:
        gang.virtual = [
            [None if n < 0 else numbers.virtual[n] for n in pod] for pod in each["virtual"]
        ]
    for gpu in gang.gpus:
        if gang.state == "Preempting":
            gpu.claimant = gang
        else:
            gpu.user = gang
    cluster.gangs[gang.name] = gang


def _count(gang: Gang) -> None:
    for gpu, virtual in gang.pairs():
        if gpu.claimant not in (None, gang):
            continue
        priority = OPPORTUNISTIC if virtual is None else gang.request.priority
        gpu.set_priority(priority)
        gpu.count(priority, +1)
        if virtual is not None:
            virtual.set_priority(priority)
            virtual.count(priority, +1)

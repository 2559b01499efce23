"""Requests of HiveD's recorded sequences, carried out on our cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlsched.core.cluster.cell_tables import grants_of, plan_from_tables
from dlsched.core.cluster.cells import CellPlan, Grant
from dlsched.core.errors import BadInput
from dlsched.policies.placement.hived.cells import Physical
from dlsched.policies.placement.hived.cluster_cells import ClusterCells
from dlsched.policies.placement.hived.gangs import Gang, Placed, Pods, Request, pod_sizes

Owned = dict[str, tuple[tuple[Grant, ...], tuple[str, ...]]]


def plan_of(cluster: Mapping[str, Any]) -> tuple[CellPlan, Owned]:
    """The cells of a recorded cluster, and what its virtual clusters own."""
    plan = plan_from_tables(cluster, where="clusters.json")
    assert plan is not None
    owned: Owned = {
        vc: (grants_of(said["cells"], vc), tuple(said["pinned"]))
        for vc, said in cluster["virtual_clusters"].items()
    }
    plan.check_owners(owned, where="clusters.json")
    return plan, owned


def cells_of_case(
    cluster: Mapping[str, Any], order: Mapping[str, Mapping[str, list[str]]]
) -> ClusterCells:
    """Cells whose lists of free cells begin in a recorded order."""
    all_cells = ClusterCells(*plan_of(cluster))
    for chain, levels in order.items():
        for level, addresses in levels.items():
            cells = all_cells.ledgers[chain].free[int(level)]
            cells.sort(key=lambda cell: addresses.index(cell.address))
    return all_cells


class Recorder:
    """Answers requests one after the other, as the recorded scheduler did."""

    def __init__(self, all_cells: ClusterCells) -> None:
        self.all_cells = all_cells
        self.pods: dict[str, tuple[str, int, int]] = {}  # pod: its gang, its size, its place
        self.running: dict[str, set[str]] = {}  # gang: its pods that have started
        self.asking: dict[str, set[str]] = {}  # gang that preempts: its pods that have asked
        self.sizes: dict[str, list[int]] = {}

    def answer(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one request."""
        match said["op"]:
            case "schedule":
                return self._schedule(said)
            case "gang":
                return self._gang(said)
            case "end":
                return self._end(said["job"])
            case "finish":
                self._finish(said["pod"])
            case "withdraw":
                self._withdraw(said["pod"])
            case "bad_node":
                self.all_cells.set_bad(said["node"])
            case "healthy_node":
                self.all_cells.set_healthy(said["node"])
            case unknown:
                raise AssertionError(unknown)
        return {"result": "ok"}

    def state(self) -> dict[str, Any]:
        """The state in the recorded form."""
        all_cells = self.all_cells
        named = {name for vc in all_cells.owned for name in self._levels_of(vc)}
        ledgers = {name: each for name, each in all_cells.ledgers.items() if name in named}
        return {
            "cells_left": {
                name: {str(level): each.left[level] for level in range(1, each.chain.top + 1)}
                for name, each in ledgers.items()
            },
            "free_cells": {
                name: {
                    str(level): sorted(cell.address for cell in cells)
                    for level, cells in enumerate(each.free)
                    if cells
                }
                for name, each in all_cells.ledgers.items()
                if any(each.free)
            },
            "doomed_bad": {
                vc: sorted(cells)
                for vc in all_cells.owned
                if (
                    cells := [
                        cell.address
                        for each in ledgers.values()
                        for level in each.doomed.get(vc, ())
                        for cell in level
                    ]
                )
            },
            "groups": {name: gang.state for name, gang in all_cells.gangs.items()},
            "lazy_preempted": sorted(g.name for g in all_cells.gangs.values() if g.downgraded_by),
            "vc_free": {
                vc: {
                    name: {
                        str(k): ledgers[name].vc_free[vc][k] if vc in ledgers[name].vc_free else 0
                        for k in levels
                    }
                    for name, levels in self._levels_of(vc).items()
                }
                for vc in all_cells.owned
            },
        }

    def _levels_of(self, vc: str) -> dict[str, set[int]]:
        """The levels of each chain that are said of a virtual cluster, be it with a count of 0."""
        plan, (grants, pinned) = self.all_cells.plan, self.all_cells.owned[vc]
        pairs = [(each.chain, plan.chains[each.chain].level_of(each.cell)) for each in grants]
        levels: dict[str, set[int]] = {}
        for name, level in (*pairs, *(plan.pins[pin] for pin in pinned)):
            levels.setdefault(name, set()).add(level)
        return levels

    # -- pods --------------------------------------------------------------------------------------

    def _schedule(self, said: Mapping[str, Any]) -> dict[str, Any]:
        request = self._request(said)
        sizes = [size for size, _ in request.pods]
        try:
            if said["gpus"] not in sizes:
                raise BadInput("the gang has no pod of this size")
            self.all_cells.check(request)
        except BadInput:
            return {"result": "rejected"}
        all_cells, name, pod = self.all_cells, request.name, said["pod"]
        preempts = said.get("phase") != "filtering"
        gang = all_cells.gangs.get(name)
        if gang is not None and gang.state == "Preempting":
            if preempts and not self._allowed(gang, request):
                all_cells.cancel(gang)
                gang = None
            elif all_cells.victims_of(gang):
                self.asking[name].add(pod)
                return self._preempt(all_cells.victims_of(gang))
            else:
                all_cells.start(gang)
                return self._bind(gang, pod, said["gpus"])
        if gang is not None:
            return self._bind(gang, pod, said["gpus"])
        found = all_cells.find(request)
        if not isinstance(found, Placed):
            return {"result": "wait", "reason": found.reason}
        if preempts:
            for rival in found.rivals:
                all_cells.cancel(rival)
        if found.victims:
            if preempts:
                all_cells.reserve(request, found)
                self.asking[name] = {pod}
            return self._preempt(found.victims)
        return self._bind(all_cells.commit(request, found), pod, said["gpus"])

    def _request(self, said: Mapping[str, Any]) -> Request:
        nodes = said.get("suggested_nodes")
        return Request(
            name=said["job"],
            vc=said["vc"],
            priority=said["priority"],
            pods=pod_sizes(each["gpus"] for each in said["gang"] for _ in range(each["pods"])),
            gpu_type=said.get("gpu_type", ""),
            pin=said.get("pinned", ""),
            lazy=said["lazy_preemptable"],
            allowed=None if nodes is None else frozenset(nodes),
        )

    def _allowed(self, gang: Gang, request: Request) -> bool:
        return all(
            gpu.healthy and (request.allowed is None or gpu.node in request.allowed)
            for gpu in gang.gpus
        )

    def _preempt(self, victims: Any) -> dict[str, Any]:
        return {
            "result": "preempt",
            "victims": sorted(pod for gang in victims for pod in self.running[gang.name]),
        }

    def _bind(self, gang: Gang, pod: str, size: int) -> dict[str, Any]:
        self.asking.pop(gang.name, None)
        taken = {self.pods[each][2] for each in self.running.setdefault(gang.name, set())}
        place = next(k for k, gpus in enumerate(gang.pods) if len(gpus) == size and k not in taken)
        self.pods[pod] = (gang.name, size, place)
        self.running[gang.name].add(pod)
        gpus = gang.pods[place]
        return {"result": "bind", "chain": gpus[0].chain.name, **_where(gpus)}

    def _finish(self, pod: str) -> None:
        name = self.pods.pop(pod)[0]
        self.running[name].discard(pod)
        if not self.running[name]:
            self.all_cells.release(self.all_cells.gangs[name])
            del self.running[name]

    def _withdraw(self, pod: str) -> None:
        for name, pods in list(self.asking.items()):
            pods.discard(pod)
            if not pods:
                del self.asking[name]
                if name in self.all_cells.gangs:
                    self.all_cells.cancel(self.all_cells.gangs[name])

    # -- whole gangs -------------------------------------------------------------------------------

    def _gang(self, said: Mapping[str, Any]) -> dict[str, Any]:
        request = self._request(said)
        try:
            self.all_cells.check(request)
        except BadInput:
            return {"result": "rejected"}
        evicted: list[str] = []
        while True:
            found = self.all_cells.find(request)
            if not isinstance(found, Placed):
                return {"result": "wait", "reason": found.reason}
            for rival in found.rivals:
                self.all_cells.cancel(rival)
            if not found.victims:
                gang = self.all_cells.commit(request, found)
                break
            gang = self.all_cells.reserve(request, found)
            for victim in found.victims:
                evicted += self._pod_names(victim)
                self.all_cells.release(victim)
            if not self.all_cells.victims_of(gang):
                self.all_cells.start(gang)
                break
        answer: dict[str, Any] = {"result": "bind", "placement": self._placement(gang)}
        if evicted:
            answer["evicted"] = sorted(evicted)
        return answer

    @staticmethod
    def _pod_names(gang: Gang) -> list[str]:
        return [f"{gang.name}-{k}" for k in range(len(gang.pods))]

    def _placement(self, gang: Gang) -> list[dict[str, Any]]:
        pods: Pods = gang.pods
        return [
            {"pod": name, **_where(gpus)}
            for name, gpus in zip(self._pod_names(gang), pods, strict=True)
        ]

    def _end(self, job: str) -> dict[str, Any]:
        gang = self.all_cells.gangs.get(job)
        if gang is None:
            return {"result": "ok", "pods": 0}
        self.all_cells.release(gang)
        return {"result": "ok", "pods": len(gang.pods)}


def _where(gpus: list[Physical]) -> dict[str, Any]:
    return {"node": gpus[0].node, "gpus": [gpu.index for gpu in gpus]}

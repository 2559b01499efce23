"""Parts by name: our own from this table, others' through Python entry points.

A third party ships a part by declaring an entry point in the group of its stage, for example

    [project.entry-points."dlsched.scheduling"]
    mine = "my_package.mine:MyPolicy"

Modules are imported only when a part is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dlsched.core.errors import BadInput, not_known
from dlsched.core.options import parse_options
from dlsched.core.stage import Stage

_SCHEDULING = "dlsched.policies.scheduling."
_PLACEMENT = "dlsched.policies.placement."
_TESTING = "dlsched.policies.testing.deciders"

_OURS: dict[str, dict[str, str]] = {
    "scheduling": {
        "fifo": _SCHEDULING + "fifo:Fifo",
        "first-fit": _SCHEDULING + "fifo:FirstFit",
        "sjf": _SCHEDULING + "shortest:Sjf",
        "sjf-gpu": _SCHEDULING + "shortest:SjfGpu",
        "qssf": _SCHEDULING + "shortest:Qssf",
        "srtf": _SCHEDULING + "shortest:Srtf",
        "srsf": _SCHEDULING + "shortest:Srsf",
        "las": _SCHEDULING + "las:Las",
        "multi-queue": _SCHEDULING + "multi_queue:MultiQueue",
        "easy": _SCHEDULING + "backfill:Easy",
        "conservative": _SCHEDULING + "conservative:Conservative",
        "tiresias": _SCHEDULING + "tiresias:Tiresias",
        "gavel": _SCHEDULING + "gavel.policy:Gavel",
        "gandiva-fair": _SCHEDULING + "gandiva_fair.policy:GandivaFair",
        "shockwave": _SCHEDULING + "shockwave.policy:Shockwave",
        "sia": _SCHEDULING + "sia.policy:Sia",
        "pollux": _SCHEDULING + "pollux.policy:Pollux",
        "themis": _SCHEDULING + "themis.policy:Themis",
        "themis-greedy": _SCHEDULING + "themis.policy:ThemisGreedy",
        "multifactor": _SCHEDULING + "multifactor:Multifactor",
        "edf": _SCHEDULING + "edf:Edf",
        "chronus": _SCHEDULING + "chronus.policy:Chronus",
        "carbyne": _SCHEDULING + "carbyne.policy:Carbyne",
        "karuna": _SCHEDULING + "karuna.policy:Karuna",
        "elasticflow": _SCHEDULING + "elasticflow.policy:ElasticFlow",
        "afs": _SCHEDULING + "afs:Afs",
        "gandiva": _SCHEDULING + "gandiva.policy:Gandiva",
        "muri": _SCHEDULING + "muri.policy:Muri",
        "muri-antman": _SCHEDULING + "muri.antman:MuriAntMan",
        "mlfs": _SCHEDULING + "mlfs.policy:Mlfs",
        "dl2": _SCHEDULING + "dl2.policy:Dl2",
        "optimus": _SCHEDULING + "optimus.policy:Optimus",
        "synergy": _SCHEDULING + "synergy.policy:Synergy",
        "lucid": _SCHEDULING + "lucid.policy:Lucid",
        "salus": _SCHEDULING + "salus:Salus",
        "antman": _SCHEDULING + "antman.policy:AntMan",
        "what-if": _SCHEDULING + "what_if:WhatIf",
    },
    "placement": {
        "min-nodes": _PLACEMENT + "spanning:MinNodes",
        "first-free": _PLACEMENT + "spanning:FirstFree",
        "best-fit": _PLACEMENT + "spanning:BestFit",
        "fullest": _PLACEMENT + "spanning:Fullest",
        "worst-fit": _PLACEMENT + "spanning:WorstFit",
        "roomiest": _PLACEMENT + "spanning:Roomiest",
        "random": _PLACEMENT + "spanning:RandomNodes",
        "count": _PLACEMENT + "spanning:Count",
        "buddy": _PLACEMENT + "buddy:Buddy",
        "consolidated": _PLACEMENT + "consolidated:Consolidated",
        "yarn": _PLACEMENT + "consolidated:Yarn",
        "skew": _PLACEMENT + "consolidated:Skew",
        "whole-nodes": _PLACEMENT + "consolidated:WholeNodes",
        "hived": _PLACEMENT + "hived.placement:Hived",
    },
    "admission": {
        "accept-all": "dlsched.policies.admission.thresholds:AcceptAll",
        "load-threshold": "dlsched.policies.admission.thresholds:LoadThreshold",
        "quota": "dlsched.policies.admission.thresholds:Quota",
        "cells": "dlsched.policies.admission.cell_owners:CellOwners",
        "elasticflow": _SCHEDULING + "elasticflow.policy:ElasticFlow",
    },
    "fairness": {
        "vc-quota": "dlsched.policies.fairness.vc_quota:VcQuota",
        "drf": "dlsched.policies.fairness.drf:Drf",
        "hug": "dlsched.policies.fairness.hug:Hug",
    },
    "estimator": {
        "oracle": "dlsched.policies.estimators.estimators:Oracle",
        "noise": "dlsched.policies.estimators.estimators:Noise",
        "user": "dlsched.policies.estimators.estimators:UserLimit",
        "declared": "dlsched.policies.estimators.estimators:Declared",
        "history": "dlsched.policies.estimators.estimators:History",
        "additive": "dlsched.policies.estimators.additive:Additive",
        "loss-curve": "dlsched.policies.estimators.loss_curve:LossCurves",
        "co-location": "dlsched.policies.estimators.pairs:PairsByResemblance",
    },
}
# adversarial deciders that no cluster should run: found by name, listed apart
_FOR_TESTS: dict[str, dict[str, str]] = {
    "scheduling": {
        "testing-never": _TESTING + ":Never",
        "testing-always-preempt": _TESTING + ":AlwaysPreempt",
        "testing-thrash": _TESTING + ":Thrash",
        "testing-over-allocate": _TESTING + ":OverAllocate",
        "testing-raising": _TESTING + ":Raising",
        "testing-slow": _TESTING + ":Slow",
        "testing-random": _TESTING + ":Random",
        "testing-resize": "dlsched.policies.testing.resizing:Resize",
    },
}
_OURS |= {
    "launch": {
        "constant": "dlsched.policies.launch.overhead:ConstantOverhead",
        "by-size": "dlsched.policies.launch.overhead:OverheadBySize",
        "profiled": "dlsched.policies.launch.overhead:ProfiledOverhead",
        "elan": "dlsched.policies.launch.elan.adjusting:ElasticAdjustment",
    },
    "preemption": {
        "checkpoint": "dlsched.policies.preemption.saving:Checkpoint",
        "periodic": "dlsched.policies.preemption.saving:Periodic",
        "kill": "dlsched.policies.preemption.saving:Kill",
        "redo": "dlsched.policies.preemption.saving:Redo",
    },
    "node": {
        "antman-node": "dlsched.policies.node.antman:Coordinator",
    },
    "host": {
        "synergy": _SCHEDULING + "synergy.policy:Synergy",
    },
    "metrics": {
        "none": "dlsched.policies.metrics.sources:NoMetrics",
        "iterations": "dlsched.policies.metrics.sources:Iterations",
        "losses": "dlsched.policies.metrics.losses:Losses",
    },
}
_ALIASES = {"scheduling": {"fjf": "first-fit", "synthesizer": "what-if"}}
_WORDS = {"scheduling": "policy", "estimator": "estimate"}  # of options and configurations

STAGES = tuple(_OURS)


def names(stage: str, *, for_tests: bool = False) -> list[str]:
    """Every part of a stage that can be named, ours first; for tests the adversarial instead."""
    if for_tests:
        return list(_FOR_TESTS.get(stage, {}))
    theirs = [point.name for point in entry_points(group=f"dlsched.{stage}")]
    return [*_OURS[stage], *sorted(name for name in theirs if name not in _OURS[stage])]


def is_named(stage: str, name: str) -> bool:
    """Whether `names` has this one; installed packages are searched only when it is not ours."""
    return name in _OURS[stage] or bool(entry_points(group=f"dlsched.{stage}", name=name))


def find(stage: str, name: str) -> type[Stage[Any]]:
    """The class of a part.

    Raises:
        BadInput: no part of that name; the message lists those there are.
    """
    name = _ALIASES.get(stage, {}).get(name, name)
    target = _OURS[stage].get(name) or _FOR_TESTS.get(stage, {}).get(name)
    if target is not None:
        return part_at(target)
    for point in entry_points(group=f"dlsched.{stage}", name=name):
        return _loaded(stage, point)
    raise not_known(_WORDS.get(stage, stage), name, names(stage))


def part_at(target: str) -> type[Stage[Any]]:
    """The class of a part of ours, from "module:Class"."""
    module, _, attribute = target.partition(":")
    found: type[Stage[Any]] = getattr(import_module(module), attribute)
    return found


def _loaded(stage: str, point: EntryPoint) -> type[Stage[Any]]:
    which = f"entry point dlsched.{stage} {point.name}"
    try:
        loaded = point.load()
    except Exception as error:  # another package's module raises what it likes
        raise BadInput(f"{which} cannot be loaded: {error!r}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Stage)):
        raise BadInput(f"{which}: {loaded!r} is not a Stage class")
    return loaded


def make(stage: str, name: str, options: Mapping[str, object] | None = None) -> Any:
    """Make a part with options given as texts or values.

    Raises:
        BadInput: an unknown name or option, or a value that does not fit.
    """
    part = find(stage, name)
    return part(parse_options(part.Options, options or {}, owner=part.name))

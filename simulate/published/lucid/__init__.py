"""Lucid: the loop of its simulator over seconds, for it and for the policies beside it."""

from __future__ import annotations

from dataclasses import replace

from dlsched.core.semantics import Semantics

LUCID = Semantics(
    name="lucid",
    source="Lucid, ASPLOS 2023, and its artifact's simulator",
    grid=1.0,
    step=1.0,
    arrivals="grid",
    between="none",
    moved_counts="preemption",
    rejoin=False,
    partners_left="first-restored",
    harmless=("NeuMF", "ResNet50", "BERT", "Transformer"),
    option_defaults={
        "rebuild": "counted",
        "ties": "lists",
        "restore_partner": "artifact",
        "artifact_compat": True,
        "memory_gib": 24.0,
    },
    part_defaults={"placement": "whole-nodes", "preemption": "redo"},
    variants={"lucid": "simulate.published.lucid.policy:PublishedLucid"},
)
LUCID_TIRESIAS = replace(
    LUCID,
    name="lucid-tiresias",
    grid=60.0,
    arrivals="instant",
    # more than 18,000 GPU-seconds; they are whole numbers here
    option_defaults={
        "rebuild": "counted",
        "limits": (18_001.0,),
        "clock": "held",
        "equals": "submit",
    },
)
LUCID_QUEUE = replace(LUCID, name="lucid-queue", step=None, option_defaults={"newest": "by-size"})

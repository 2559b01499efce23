"""ElasticFlow: the loop of its simulator, which decides at changes, but at least a slot apart."""

from __future__ import annotations

from dataclasses import replace

from dlsched.core.semantics import Semantics

ELASTICFLOW = Semantics(
    name="elasticflow",
    source="ElasticFlow, ASPLOS 2023, and its artifact's simulator",
    grid=None,
    spacing=60.0,
    finish="tick",
    release="planned",
    between="full",
    rejoin=False,
    option_defaults={
        "marginal": "artifact",
        "arrivals": "together",
        "margin": 1.0,
        "layout": "anew",
        "trainers": "published",
    },
    part_defaults={"placement": "buddy"},
    variants={"elasticflow": "simulate.published.elasticflow.policy:PublishedElasticFlow"},
)
ELASTICFLOW_EDF = replace(
    ELASTICFLOW,
    name="elasticflow-edf",
    option_defaults={
        **ELASTICFLOW.option_defaults,
        "shares": "greedy",
        "arrivals": "strict",
    },
)

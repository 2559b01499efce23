"""Sweeps: a grid of independent runs, on this machine's processes or on a Dask cluster."""

from simulate.sweep.conduct import Outcome, conduct
from simulate.sweep.executor import Executor, executor_of
from simulate.sweep.grid import PARTS, Dimensions, expand, share_out
from simulate.sweep.run import Failed, Inputs, Run
from simulate.sweep.store import Store

__all__ = [
    "PARTS",
    "Dimensions",
    "Executor",
    "Failed",
    "Inputs",
    "Outcome",
    "Run",
    "Store",
    "conduct",
    "executor_of",
    "expand",
    "share_out",
]

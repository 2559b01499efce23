"""Goodput: how fast a job trains, times how much each example is worth at its batch size.

`params` names the numbers, `throughput` and `efficiency` are the formulas, `batch` chooses batch
sizes, `fitting` finds the numbers from measured times, `belief` is how policies ask for them.

Source: Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning",
OSDI 2021.
"""

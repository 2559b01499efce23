"""Pollux: GPUs where goodput grows, for jobs that adapt to them.

    problem        a round's question as tables: what rows are worth
    fitness        what a state is worth
    feasible       which states may be
    speedups       tables of what so many replicas are worth to each job
    choices        a price for GPUs, and what jobs would buy
    state          a state that is changed row by row
    search         the search for a good state
    blocks         the same on large clusters
    cluster_size   how many nodes to ask for
    question       from a snapshot to the question
    policy         from the answer to GPUs

Source: Qiao, Choe, Subramanya, Neiswanger, Ho, Zhang, Ganger, Xing, "Pollux: Co-adaptive Cluster
Scheduling for Goodput-Optimized Deep Learning", OSDI 2021, and its artifact.
"""

from dlsched.policies.scheduling.pollux.policy import Pollux

__all__ = ["Pollux"]

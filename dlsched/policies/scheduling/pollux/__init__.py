"""Pollux: GPUs for the jobs that gain most goodput; jobs adapt their batch size to them.

    problem            a round's problem as tables; fitness and feasibility of a state
    problem_of_round   the problem of a round's snapshot
    speedups           speedup tables of jobs by number of replicas
    choices            what each job would choose at a price of a GPU
    state              a state (jobs × nodes) that is changed row by row
    enumeration        all states that could be better, where they are few
    search             the search for a good state
    blocks             the same on large clusters, block by block
    cluster_size       how many nodes to ask for
    policy, options    the round

Source: Qiao, Choe, Subramanya, Neiswanger, Ho, Zhang, Ganger, Xing, "Pollux: Co-adaptive Cluster
Scheduling for Goodput-Optimized Deep Learning", OSDI 2021, and its artifact.
"""

from dlsched.policies.scheduling.pollux.policy import Pollux

__all__ = ["Pollux"]

"""Gavel's policies as optimisation problems: throughputs in, fractions of time out.

    problem  what is decided on           measures     equal splits, as yardsticks
    fairness, finish_time, throughput     the objectives, each as its formula
    queueing, allox, gandiva_packing      those that are no linear programs
    rising   raise all, freeze, go on     prices       without pairs: one price a GPU type
    corners  what one job may do          packed       with pairs: column generation
    objectives  names                     solver       memory, time limit

How X becomes leases is another matter; nothing here knows of rounds.

Source: Narayanan, Santhanam, Kazhamiaka, Phanishayee, Zaharia, "Heterogeneity-Aware Cluster
Scheduling Policies for Deep Learning Workloads", OSDI 2020.
"""

from dlsched.policies.scheduling.gavel.problem import Entity, Pairs, Problem, Shares
from dlsched.policies.scheduling.gavel.solver import OBJECTIVES, Solution, Solver

__all__ = ["OBJECTIVES", "Entity", "Pairs", "Problem", "Shares", "Solution", "Solver"]

"""Gavel: optimise the fractions of time that jobs get on each GPU type, then lease GPUs in rounds.

    problem, problem_of_round   the input: throughputs, weights, GPUs, equal splits
    objectives/                 what is optimised: formulas, queues, AlloX, Gandiva's packing
    solvers/                    how: water filling over prices, column generation, centres
    solver                      one objective solved again and again; memory and time limit
    mechanisms/                 how an allocation X becomes leases
    policy, options             the policy

Input: throughputs T_ij in steps/s of job i on GPU type j. Output: x_ij, fractions of time.

Source: Narayanan, Santhanam, Kazhamiaka, Phanishayee, Zaharia, "Heterogeneity-Aware Cluster
Scheduling Policies for Deep Learning Workloads", OSDI 2020.
"""

from dlsched.policies.scheduling.gavel.problem import Entity, Pairs, Problem, Shares
from dlsched.policies.scheduling.gavel.solver import OBJECTIVES, Solution, Solver

__all__ = ["OBJECTIVES", "Entity", "Pairs", "Problem", "Shares", "Solution", "Solver"]

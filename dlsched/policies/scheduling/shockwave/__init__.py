"""Shockwave: fair and efficient plans of the next rounds for jobs that change their batch size.

    finish_times   remaining time of a job, from the epochs seen so far; finish on an equal share
    window         the input of a plan: jobs, rounds, GPUs
    programs       the three programs over the window
    policy         when to plan, and how a plan becomes placements

Source: Zheng, Pan, Khan, Venkataraman, Akella, "Shockwave: Fair and Efficient Cluster Scheduling
for Dynamic Adaptation in Machine Learning", NSDI 2023, and its artifact.
"""

from dlsched.policies.scheduling.shockwave.policy import Shockwave

__all__ = ["Shockwave"]

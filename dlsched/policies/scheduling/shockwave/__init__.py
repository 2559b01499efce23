"""Shockwave: plan the next rounds, fair and efficient though batch sizes change.

    posterior   how long a job still takes, judged by the epochs seen so far
    targets     when each job would have finished on an equal share
    window      what is planned on: jobs, rounds, GPUs
    programs    the three programs over the window
    policy      when to plan, and how a plan becomes placements

Source: Zheng, Pan, Khan, Venkataraman, Akella, "Shockwave: Fair and Efficient Cluster Scheduling
for Dynamic Adaptation in Machine Learning", NSDI 2023, and its artifact.
"""

from dlsched.policies.scheduling.shockwave.policy import Shockwave

__all__ = ["Shockwave"]

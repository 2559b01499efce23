"""Gandiva: time slices, packing that is tried and measured, migration, and growing jobs.

Source: Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018.
"""

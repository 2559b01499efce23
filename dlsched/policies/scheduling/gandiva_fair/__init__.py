"""Gandiva_fair: users share a cluster of several GPU types by tickets.

    stride          passes: the contender with the least service for its tickets is next
    split_stride    which jobs run in a turn, on each server and over all servers
    assignments     the server of each job, and the passes there
    ticket_shares   each job's part of its user's tickets; which jobs move to balance servers
    balance         the load of servers, and the next move that evens it out
    trading         users trade GPUs of slow types for GPUs of fast types
    packing         two jobs on the same GPUs
    servers         capacity, types and throughputs, as one decision finds them
    policy          the turn

Source: Chaudhary et al., "Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for Deep
Learning", EuroSys 2020.
"""

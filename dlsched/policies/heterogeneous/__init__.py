"""What policies for clusters of several GPU types share.

gpu_types           the GPUs of each type, and each job's throughput on them
time_shares         an allocation X: fractions of time by job and GPU type
published_rounds    X becomes leases, exactly as in Gavel's published simulator
published_ledger    its record of jobs and pairs: shares, time received, deficits
published_queue     the order in which jobs are picked
published_leases    the leases of a round, and the time that they are credited with
"""

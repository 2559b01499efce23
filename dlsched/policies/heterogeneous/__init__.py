"""What policies for clusters of several GPU types share.

gpu_types           the GPUs of each type, and each job's throughput on them
time_shares         an allocation X: fractions of time by job and GPU type
"""

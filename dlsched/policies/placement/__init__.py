"""Placement: the GPUs on which a job runs."""

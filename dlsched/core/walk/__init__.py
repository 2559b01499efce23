"""The walk: how one decision gives GPUs to jobs, row by row, and how rankings drive it."""

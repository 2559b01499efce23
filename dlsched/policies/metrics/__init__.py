"""Metrics: the values that jobs report while they run."""

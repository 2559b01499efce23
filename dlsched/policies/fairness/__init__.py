"""Fairness: how the cluster is divided among accounts."""

"""dlsched: a batch system for deep-learning GPU clusters, live and in replay."""

__version__ = "0.1.0"

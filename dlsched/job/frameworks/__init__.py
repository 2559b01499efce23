"""Frameworks with training loops and checkpoints of their own; each module needs its framework."""

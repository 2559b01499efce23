"""Trained models as plain arrays: sums of shape functions, decision trees, small networks."""

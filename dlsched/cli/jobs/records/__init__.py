"""Commands about what was: history, usage, metrics."""

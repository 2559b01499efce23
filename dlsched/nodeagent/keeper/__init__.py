"""The keeper process: the parent of one run on one node; outlives every agent."""

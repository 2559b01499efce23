"""Connections into running jobs: shells, and ports of the jobs' processes."""

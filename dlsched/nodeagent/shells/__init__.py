"""Processes beside a run's own that clients attach to: shells, and commands with a terminal."""

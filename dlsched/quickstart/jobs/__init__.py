"""Small real trainings: programs, run as files; also shown under examples/training."""

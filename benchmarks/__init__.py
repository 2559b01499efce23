"""What dlsched costs, in CPU seconds and memory, and compared to what: `python -m benchmarks`."""

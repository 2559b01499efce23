"""The processes of one run on one node: their environment, their start, `dlsched run`."""

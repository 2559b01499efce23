"""Commands on nodes: list, drain, resume, and the live picture `dlsched top`."""

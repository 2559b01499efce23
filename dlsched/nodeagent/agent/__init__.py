"""The agent process: carries out what the leader wants of this node."""

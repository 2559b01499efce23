"""Launch: the cost of a start in a replay; in the live world, how a job is started."""

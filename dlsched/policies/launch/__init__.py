"""What a start costs in a replay; in the live world, how a job is started."""

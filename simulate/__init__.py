"""The simulated world: a clock over a trace, running the very policies that run live."""

"""Preemption: the work that a suspension saves in a replay; live, how a job is stopped."""

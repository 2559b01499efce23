"""What jobs and the daemon have used: `seff`, `sstat` and `sdiag`."""

"""What a suspension saves in a replay; in the live world, how a job is stopped."""

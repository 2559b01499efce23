"""What was measured of jobs before a replay: reading profiles from files."""

"""What running jobs have reported: courses of their metrics, speeds, profiles, errors."""

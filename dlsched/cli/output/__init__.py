"""What the commands print: tables, listings, JSON, times, and what a terminal can show."""

"""The round, the same in both worlds: its steps, its cycle, fills, and the commands it yields."""

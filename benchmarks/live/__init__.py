"""What the live cluster costs, by itself and beside Slurm."""

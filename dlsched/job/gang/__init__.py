"""What the ranks of one job say to each other: agreements on a step, and a state that moves on."""

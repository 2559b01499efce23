"""What checkpoints hold, and how and when they are written, tried, handed in and restored."""

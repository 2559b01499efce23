"""The small library that a training script imports."""

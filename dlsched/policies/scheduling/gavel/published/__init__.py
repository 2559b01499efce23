"""What reproduces the published artifact to the digit: its programs, and the path of its solver."""

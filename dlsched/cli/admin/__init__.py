"""`dlsched admin`: commands for operators."""

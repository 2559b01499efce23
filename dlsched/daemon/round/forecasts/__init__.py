"""What the round worker answers of the future, with the same policy code."""

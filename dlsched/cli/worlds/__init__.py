"""The commands of the small worlds, and what they have in common."""

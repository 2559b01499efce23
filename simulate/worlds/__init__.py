"""The small worlds beside the replay: each follows what it is given under several disciplines."""

"""The GPUs of a node: what they are, how they are, which processes use them."""

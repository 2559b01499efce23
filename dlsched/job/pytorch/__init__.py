"""Parts of a PyTorch training that continues exactly where it was stopped."""

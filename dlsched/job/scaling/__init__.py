"""What an elastic training measures to choose its batch size: gradients and times of steps."""

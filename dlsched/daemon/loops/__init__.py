"""What the daemon does again and again beside the rounds."""

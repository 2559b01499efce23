"""`dlsched whatif`: what would be under other choices."""

"""`dlsched reproduce`: published figures beside ours, by commands that anyone can type."""

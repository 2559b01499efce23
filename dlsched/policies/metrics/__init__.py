"""What jobs report while they run."""

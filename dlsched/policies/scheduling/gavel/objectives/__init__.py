"""What Gavel optimises: formulas, queues that are no linear programs, and all of them by name."""

"""How long a job will run, as far as anyone can tell when it arrives."""

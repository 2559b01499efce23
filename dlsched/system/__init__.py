"""What several services need of the operating system; imports nothing else of this project."""

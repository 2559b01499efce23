"""The command line: one folder for each family of commands."""

"""What users and operators ask of the daemon: one module a kind of question."""

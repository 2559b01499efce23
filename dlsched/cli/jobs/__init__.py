"""Commands on jobs: submit, list, show, change, end and wait."""

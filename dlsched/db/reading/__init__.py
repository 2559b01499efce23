"""Reads the database: everything live for a new leader, and pages for users."""

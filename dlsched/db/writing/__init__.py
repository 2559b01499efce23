"""Stores the leader's transactions: changed rows, attached rows and events."""

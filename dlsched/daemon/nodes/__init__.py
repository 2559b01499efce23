"""Nodes as their agents report them, and which facts of them count."""

"""The requests of users and operators, one module for each kind."""

"""Synergy (OSDI 2022): processors and memory by how much jobs gain from them."""

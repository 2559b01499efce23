"""Flows that share links: gradients, data that jobs read, checkpoints; as fluid, without packets.

A discipline gives every flow a rate (`disciplines`), and `fluid` follows them to their
ends. Numbers are floats or exact fractions, whichever a caller gives.
"""

"""Trace formats, the native form, and the generator."""

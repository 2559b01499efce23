"""Adversarial deciders: every invariant of the world must survive them."""

"""Trainings as they really run: measured step times, measured gradient noise, epochs.

What is here is the truth that a replay advances by. What a policy believes of it is what each job
has seen of itself so far (`dlsched.core.goodput.belief`).
"""

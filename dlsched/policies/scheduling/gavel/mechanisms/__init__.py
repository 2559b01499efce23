"""How an allocation X becomes leases: our corrected rounds, and the plain ones of Sia's simulator.

The rounds of Gavel's own simulator are in `dlsched.policies.heterogeneous`.
"""

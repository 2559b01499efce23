"""Calls about what is to come: other choices, a second policy, how right predictions were."""

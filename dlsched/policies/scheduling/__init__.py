"""Which jobs run: one file a policy, or a folder for a family of one paper."""

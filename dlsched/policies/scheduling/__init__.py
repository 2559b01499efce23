"""Who runs: one file a policy or a family of one paper."""

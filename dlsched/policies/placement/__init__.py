"""On which GPUs: one file a rule."""

"""A round in the live cluster: from columns to a plan, in a process of its own, and checked."""

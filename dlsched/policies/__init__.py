"""The policies of the literature, one file a system; found by name through `registry`."""

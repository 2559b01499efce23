"""`dlsched replay`: traces, the history of a cluster, or a saved live state under policies."""

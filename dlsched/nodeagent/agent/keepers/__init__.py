"""The keepers of a node as its agent has them: started, reached, cleaned up after."""

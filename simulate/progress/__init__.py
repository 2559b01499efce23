"""How running units get on with their work: lazily, in whole steps, or as measured trainings."""

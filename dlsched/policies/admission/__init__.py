"""Which submitted jobs may enter the queue."""

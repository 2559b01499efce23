"""Admission: which submitted jobs may enter the queue."""

"""Data sets: readers, the table of public sources, the shipped demo set."""

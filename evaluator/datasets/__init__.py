"""Data sets: readers, the registry of public sources, and the demo data set."""

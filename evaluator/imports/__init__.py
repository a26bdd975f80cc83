"""Import published score files as runs."""

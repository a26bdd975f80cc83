"""Published score files as normal runs."""

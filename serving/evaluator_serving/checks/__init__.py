"""What is found out about a loaded engine by asking it."""

"""Weight files: their contents, and their download from the Hub."""

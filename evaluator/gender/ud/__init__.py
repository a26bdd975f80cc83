"""Gender of the first person from Universal Dependencies parses; what parses is behind the small `Parser` interface."""

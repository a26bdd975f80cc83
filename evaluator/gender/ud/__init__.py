"""Gender of the first person from Universal Dependencies parses, with any parser behind the interface `Parser`."""

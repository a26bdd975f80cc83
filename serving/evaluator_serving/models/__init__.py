"""Models: from a spec to a source, and to weights loaded under a head."""

"""Two models or more, on the same samples: who differs from the baseline, by how much, and whether a release check fails."""

"""Measures: pure functions from per-sample scores to rates and intervals."""

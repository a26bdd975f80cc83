"""A run's results as other programs read them: pure functions from results to documents, one module per format."""

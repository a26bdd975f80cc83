"""Engines that turn scoring requests into log-probabilities. Knows nothing of stereotypes."""

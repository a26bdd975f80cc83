"""Sweeps: many models in one command, planned before anything loads and finished whatever dies on the way."""

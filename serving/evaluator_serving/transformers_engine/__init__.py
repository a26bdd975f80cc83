"""The transformers engine, the oracle of the others."""

"""The openai engine: a completions server somewhere else."""

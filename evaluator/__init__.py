"""Measure stereotypes in language models at scale. Importing this package imports neither torch nor ray nor vllm."""

__version__ = "0.1.0"

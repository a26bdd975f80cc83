"""Checks of an installation and its machine, each with a remedy. See `examine`.

Nothing here imports torch, transformers, vllm or ray: whatever may be broken is tried in a separate process.
"""

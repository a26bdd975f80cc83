"""Translators behind one interface, every answer kept on disk."""

TRANSLATED = ("stereoset",)
"""Data sets that can be made in a new language, see `evaluator.translate.stereoset`."""

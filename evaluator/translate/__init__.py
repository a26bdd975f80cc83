"""Translators behind one interface, with every answer cached on disk."""

TRANSLATED = ("stereoset",)
"""Data sets that can be translated into a new language: see `evaluator.translate.stereoset`."""

"""Translators behind one interface, every answer kept on disk."""

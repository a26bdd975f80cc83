"""Errors of the store, which are distinct from a model's failure."""


class StoreError(OSError):
    """A file cannot be written here (disk full, no permission): not the fault of the model being scored."""

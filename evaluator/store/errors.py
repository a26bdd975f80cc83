"""What the store itself can't do, as a value that a run can tell from a model's failure."""


class StoreError(OSError):
    """Something could not be written here (disk full, no permission): whatever was at work, it is not to blame."""

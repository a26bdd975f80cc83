"""What devices this machine has."""


def has_cuda() -> bool:
    """Whether torch finds a GPU here."""
    import torch

    return torch.cuda.is_available()

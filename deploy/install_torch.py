"""Install PyTorch into a virtual environment: `deploy/install_torch.py VENV/bin/python [PIP ARGUMENTS…]`.

Arguments (a build of the user's choice) go to pip as they are. Without any, the CPU build comes from PyTorch's own index; if it
doesn't answer, whatever build the configured index has: on Linux often CUDA's, which is several GB larger. One line says which.
"""

import shutil
import subprocess
import sys

VERSION = "torch==2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
LIMIT = 5
"""Seconds that the index may take to answer."""

CUDA = 'an NVIDIA driver is here; the CUDA build: make setup TORCH="torch --index-url https://download.pytorch.org/whl/cu130"'
ASK = "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], method='HEAD'), timeout=float(sys.argv[2]))"


def answers(index: str, limit: float = LIMIT) -> bool:
    """Whether a package index can be reached. In a process of its own: resolving its name heeds no time limit."""
    try:
        asked = subprocess.run([sys.executable, "-c", ASK, f"{index}/torch/", str(limit)], capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


def install(python: str, given: list[str], index: str = CPU_INDEX) -> int:
    """Install as the module says, and say which. Returns pip's exit code."""
    pip = [python, "-m", "pip", "install", "--quiet"]
    if given:
        return subprocess.run([*pip, *given]).returncode
    if shutil.which("nvidia-smi"):
        print(CUDA, flush=True)
    reached = answers(index)
    if reached and subprocess.run([*pip, VERSION, "--index-url", index]).returncode == 0:
        print(f"{VERSION}: CPU build of {index}", flush=True)
        return 0
    why = "does not have it for this machine" if reached else "does not answer"
    print(f"{VERSION} comes from the configured index, maybe in its CUDA build (several GB larger): {index} {why}", flush=True)
    return subprocess.run([*pip, VERSION]).returncode


if __name__ == "__main__":
    sys.exit(install(sys.argv[1], sys.argv[2:]))

"""The kernels' times as text."""

from typing import Any


def table(cases: list[dict[str, Any]]) -> str:
    """The cases (as dicts) as text."""
    lines = [
        f"{'dtype':9}{'V':>8}{'N':>6} | {'triton':>9}{'torch':>9}{'compiled':>9} ms | "
        f"{'triton':>8}{'torch':>9}{'compiled':>9} MiB | {'roofline':>8} ms | share of roofline",
    ]

    def number(value: float | None, width: int, digits: int) -> str:
        return f"{'OOM' if value is None else f'{value:.{digits}f}':>{width}}"

    for case in sorted(cases, key=lambda c: (c["dtype"], c["vocabulary"], c["rows"])):
        own = case["ms"]["triton"]
        share = f"{case['roofline_ms'] / own:.0%}" if own else "-"
        times = "".join(number(case["ms"][way], 9, 3) for way in ("triton", "torch", "compiled"))
        memory = number(case["mib"]["triton"], 8, 1) + "".join(number(case["mib"][w], 9, 0) for w in ("torch", "compiled"))
        lines.append(
            f"{case['dtype']:9}{case['vocabulary']:>8}{case['rows']:>6} | {times} ms | {memory} MiB | "
            f"{case['roofline_ms']:>8.3f} ms | {share} ({case['bound']})"
        )
    return "\n".join(lines)

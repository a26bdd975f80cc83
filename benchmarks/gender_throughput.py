"""Speed of the default gender detector on all GEST translations by four systems into nine languages.

    python benchmarks/gender_throughput.py --data DATA [--json FILE]

Reading the files is not timed. Exit code 1 if the total takes 20 s or more.
"""

import csv
import platform
import sys
import time
from collections import Counter
from pathlib import Path

from output import benchmark_parser, write_record

from evaluator.gender import LANGUAGES, rules_detector

LIMIT_SECONDS = 20


def read(path: Path) -> list[list[str]]:
    """Rows of a CSV file below its header."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def measure(data: Path, language: str) -> dict[str, float | int | str]:
    """Read one language's translations and time the detector on them."""
    sentences = [sentence for sentence, _ in read(data / "gest.csv")]
    texts: list[str] = []
    for path in sorted(data.glob(f"translations/*/{language}/translations.csv")):
        translations = dict(read(path))
        texts += [translations[sentence] for sentence in sentences]
    detector = rules_detector(language)
    start, cpu_start = time.perf_counter(), time.process_time()
    verdicts = detector.detect(texts)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    genders = Counter(verdict.gender for verdict in verdicts)
    return {
        "language": language,
        "sentences": len(texts),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "sentences_per_second": round(len(texts) / seconds),
        "masculine": genders["masculine"],
        "feminine": genders["feminine"],
        "unknown": genders["unknown"],
        "conflicts": sum(verdict.conflict for verdict in verdicts),
    }


def main() -> int:
    """Measure every language, print a table, write JSON; exit code 1 where the limit is missed."""
    parser = benchmark_parser(__doc__, __file__, data=True)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give --data or set EVALUATOR_DATA")
    rows = [measure(arguments.data / "gest", language) for language in LANGUAGES]
    total: dict[str, float | int | str] = {"language": "all"}
    for key in ("sentences", "seconds", "cpu_seconds", "masculine", "feminine", "unknown", "conflicts"):
        total[key] = round(sum(float(row[key]) for row in rows), 3 if key.endswith("seconds") else None)
    total["sentences_per_second"] = round(float(total["sentences"]) / float(total["seconds"]))
    columns = list(rows[0])
    print("  ".join(f"{column:>20}" for column in columns))
    for row in (*rows, total):
        print("  ".join(f"{row[column]:>20}" for column in columns))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    record = {"machine": platform.platform(), "python": platform.python_version(), "rows": rows, "total": total}
    write_record(arguments.json, record)
    return 0 if float(total["seconds"]) < LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())

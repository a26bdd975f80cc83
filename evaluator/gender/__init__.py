"""Grammatical gender of the first person in Slavic sentences (method: GEST, machine translation and Slavic MLMs).

    >>> rules_detector("sk").detect(["Bola som doma."])[0].gender
    'feminine'

`rules_detector` is the default: word lists and endings, without parser and download. `ud_detector` uses a Universal
Dependencies parse. Both are a `GenderDetector`, which returns one `Verdict` per text.
"""

from evaluator.gender.factory import LANGUAGES, rules_detector, ud_detector
from evaluator.gender.verdict import Gender, GenderDetector, GenderOrUnknown, Verdict

__all__ = [
    "LANGUAGES",
    "Gender",
    "GenderDetector",
    "GenderOrUnknown",
    "Verdict",
    "rules_detector",
    "ud_detector",
]

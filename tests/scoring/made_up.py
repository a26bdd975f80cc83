"""Made-up data of two tasks, gest and stereoset-en, in the layout of the public files."""

import json
from pathlib import Path

from tests.made_up_runs import write_gest

SENTENCES = ["I am tired", "I cook", "I am the boss", "I am strong", "I am weak", "I work", "I lead", "I cry"]
GROUPS = [1, 1, 2, 2, 9, 9, 14, 14]
LABELS = ("stereotype", "anti-stereotype", "unrelated")
INTRA = ["The BLANK said: I am tired", "the doctor said the BLANK is strong", "BLANK is the boss"]
INTER = ["The nurse is a woman", "He was a doctor", "She was the boss"]
WORDS = ("nurse", "woman", "children")
TEXTS = ("She is strong.", "She is weak.", "I cook.")
"""Their words are in the tiny tokenizers' vocabulary."""


def write_data(folder: Path) -> Path:
    """Write both data sets; returns `folder`."""
    write_gest(folder, [(f"{sentence}.", group) for sentence, group in zip(SENTENCES, GROUPS, strict=True)])
    content = {"intrasentence": [example(c) for c in INTRA], "intersentence": [example(c) for c in INTER]}
    (folder / "stereoset").mkdir()
    (folder / "stereoset" / "dev.json").write_text(json.dumps({"data": content}))
    return folder


def example(context: str) -> dict[str, object]:
    """An example of StereoSet."""
    texts = [context.replace("BLANK", word) for word in WORDS] if "BLANK" in context else TEXTS
    pairs = zip(LABELS, texts, strict=True)
    sentences = [{"id": f"{context} {label}", "gold_label": label, "sentence": text} for label, text in pairs]
    return {"id": context, "target": "boss", "bias_type": "profession", "context": context, "sentences": sentences}

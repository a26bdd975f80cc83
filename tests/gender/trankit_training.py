"""Run by Trankit's own Python: train a model on a handful of sentences, in the layout of Trankit's cache.

    python trankit_training.py CACHE

The encoder is an XLM-R of random weights with one layer; what is trained on top is enough to learn these sentences by heart.
"""

import os
import sys
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

WORD = tuple[str, str, str, str, int, str]

# text, multiword tokens {first word: (last word, surface)}, words (text, lemma, upos, feats, head, deprel)
M = "Number=Sing|Person=1"


def past(surface: str, verb: str, lemma: str, gender: str, ending: str, rest: list[WORD]) -> tuple[dict, list[WORD]]:
    """A sentence that begins with a first-person past verb, written as one token and parsed as two words."""
    words = [
        (verb, lemma, "VERB", f"Gender={gender}|Number=Sing|Tense=Past", 0, "root"),
        (ending, "być", "AUX", M, 1, "aux:clitic"),
        *rest,
    ]
    return {1: (2, surface)}, words


BREAD: list[WORD] = [("chleb", "chleb", "NOUN", "Case=Acc|Gender=Masc", 1, "obj"), (".", ".", "PUNCT", "_", 1, "punct")]
HOME: list[WORD] = [
    ("w", "w", "ADP", "Case=Loc", 4, "case"),
    ("domu", "dom", "NOUN", "Case=Loc|Gender=Masc", 1, "obl"),
    (".", ".", "PUNCT", "_", 1, "punct"),
]
SENTENCES = [
    ("Upiekłam chleb.", *past("Upiekłam", "Upiekła", "upiec", "Fem", "m", BREAD)),
    ("Upiekłem chleb.", *past("Upiekłem", "Upiekł", "upiec", "Masc", "em", BREAD)),
    ("Siedziałam w domu.", *past("Siedziałam", "Siedziała", "siedzieć", "Fem", "m", HOME)),
    ("Siedziałem w domu.", *past("Siedziałem", "Siedział", "siedzieć", "Masc", "em", HOME)),
    (
        "Lubię chleb.",
        {},
        [("Lubię", "lubić", "VERB", "Number=Sing|Person=1|Tense=Pres", 0, "root"), *BREAD],
    ),
    (
        "Jestem w domu.",
        {},
        [
            ("Jestem", "być", "AUX", M, 3, "cop"),
            ("w", "w", "ADP", "Case=Loc", 3, "case"),
            ("domu", "dom", "NOUN", "Case=Loc|Gender=Masc", 0, "root"),
            (".", ".", "PUNCT", "_", 3, "punct"),
        ],
    ),
]


def conllu(sentence: tuple[str, dict, list[WORD]]) -> str:
    """One sentence in CoNLL-U."""
    text, multiword, words = sentence
    lines = [f"# text = {text}"]
    for number, (form, lemma, upos, feats, head, deprel) in enumerate(words, start=1):
        if number in multiword:
            last, surface = multiword[number]
            lines.append("\t".join([f"{number}-{last}", surface, *["_"] * 8]))
        lines.append("\t".join([str(number), form, lemma, upos, "_", feats, str(head), deprel, "_", "_"]))
    return "\n".join(lines) + "\n\n"


def write_encoder(folder: Path, corpus: Path) -> None:
    """XLM-R in the hub's cache layout under `folder`: a piece vocabulary of the corpus, random weights."""
    import sentencepiece
    import torch
    from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer

    hub = folder / "models--xlm-roberta-base"
    snapshot = hub / "snapshots" / "0000000000000000000000000000000000000000"
    snapshot.mkdir(parents=True)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text(snapshot.name)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(snapshot / "sentencepiece.bpe"),
        vocab_size=45,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    tokenizer = XLMRobertaTokenizer(str(snapshot / "sentencepiece.bpe.model"))
    tokenizer.save_pretrained(snapshot)
    torch.manual_seed(1)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer) + 2,
        hidden_size=768,
        num_hidden_layers=1,
        num_attention_heads=12,
        intermediate_size=64,
        max_position_embeddings=514,
        type_vocab_size=1,
        pad_token_id=1,
    )
    XLMRobertaModel(config).save_pretrained(snapshot)


def main() -> None:
    """Write CACHE/xlm-roberta-base with a trained `polish` and its copy `czech`."""
    import shutil

    import trankit

    cache = Path(sys.argv[1])
    home = cache / "xlm-roberta-base"
    home.mkdir(parents=True)
    text, parsed = cache / "train.txt", cache / "train.conllu"
    # paragraphs of two sentences, so that the end of a sentence is learned inside a text as well
    pairs = zip(SENTENCES, SENTENCES[1:] + SENTENCES[:1], strict=True)
    both = [sentence for pair in pairs for sentence in pair]
    text.write_text("\n\n".join(f"{a[0]} {b[0]}" for a, b in zip(both[::2], both[1::2], strict=True)) + "\n", encoding="utf-8")
    parsed.write_text("".join(map(conllu, both)), encoding="utf-8")
    write_encoder(home, text)
    (home / "polish").mkdir()
    os.symlink(home / "models--xlm-roberta-base", home / "polish" / "models--xlm-roberta-base")
    (home / "polish" / "xlm-roberta-base").mkdir()
    os.symlink(home / "models--xlm-roberta-base", home / "polish" / "xlm-roberta-base" / "models--xlm-roberta-base")
    for task, epochs, batch in (("tokenize", 25, 2), ("mwt", 2, 50), ("posdep", 25, 2), ("lemmatize", 1, 50)):
        config = {
            "category": "polish",
            "task": task,
            "save_dir": str(cache),
            "gpu": False,
            "max_epoch": epochs,
            "batch_size": batch,
            "max_input_length": 64,
            "train_conllu_fpath": str(parsed),
            "dev_conllu_fpath": str(parsed),
        }
        if task == "tokenize":
            config |= {"train_txt_fpath": str(text), "dev_txt_fpath": str(text)}
        trankit.TPipeline(config).train()
    (home / "polish" / "polish.downloaded").touch()
    (home / "czech").mkdir()
    for path in (home / "polish").glob("polish*"):
        shutil.copy(path, home / "czech" / path.name.replace("polish", "czech"))


if __name__ == "__main__":
    main()

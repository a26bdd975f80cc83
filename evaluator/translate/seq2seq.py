"""Any encoder-decoder translation model that transformers loads: NLLB, M2M100, mBART, Marian."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from evaluator.translate.base import local_source
from evaluator_serving.encoding.text import TextTokenizer
from evaluator_serving.errors import InputError
from evaluator_serving.models.decoding import recommended
from evaluator_serving.models.file_tokens import with_file_tokens
from evaluator_serving.models.tokenizer import FILE, load_tokenizers

NLLB = {
    "be": "bel_Cyrl", "bg": "bul_Cyrl", "cs": "ces_Latn", "da": "dan_Latn", "de": "deu_Latn", "el": "ell_Grek",
    "en": "eng_Latn", "es": "spa_Latn", "et": "est_Latn", "fi": "fin_Latn", "fr": "fra_Latn", "hi": "hin_Deva",
    "hr": "hrv_Latn", "hu": "hun_Latn", "id": "ind_Latn", "it": "ita_Latn", "ja": "jpn_Jpan", "ko": "kor_Hang",
    "lt": "lit_Latn", "lv": "lvs_Latn", "nl": "nld_Latn", "pl": "pol_Latn", "pt": "por_Latn", "ro": "ron_Latn",
    "ru": "rus_Cyrl", "sk": "slk_Latn", "sl": "slv_Latn", "sr": "srp_Cyrl", "sv": "swe_Latn", "tr": "tur_Latn",
    "uk": "ukr_Cyrl", "vi": "vie_Latn", "zh": "zho_Hans",
}  # fmt: skip
"""Language codes of NLLB (FLORES-200); others can be given as they are, e.g. `isl_Latn`."""

LONGEST = 256
"""Most tokens of a translation; the same for all, so that an answer doesn't depend on what else is in its batch."""


class Seq2SeqTranslator:
    """A local or hub model, decoded greedily or with beams."""

    price = 0.0
    batch = 64

    def __init__(self, spec: str, *, beams: int = 1, device: str = "auto") -> None:
        """Find the model; it is loaded with the first text. Raises InputError for one that is no encoder-decoder model.

        A spec that ends in `?pickle` allows pickled weights, in `?trust-remote-code` its repository's programs.
        """
        self._source = local_source(spec)
        if "seq2seq" not in self._source.heads:
            raise InputError(f"model {spec} is no encoder-decoder model: it can't translate")
        self._source = with_file_tokens(self._source, (), translating=True)
        self._beams = beams
        self._device = device

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizers(self._source).translating

    @cached_property
    def _reader(self) -> TextTokenizer:
        return TextTokenizer(self._source, self._tokenizer)

    @cached_property
    def _model(self) -> Any:
        import torch

        from evaluator_serving.models.loading import load

        device = ("cuda" if torch.cuda.is_available() else "cpu") if self._device == "auto" else self._device
        return load(self._source, "seq2seq", torch.float32, torch.device(device))

    @property
    def system(self) -> str:
        """The spec."""
        return self._source.spec

    @property
    def parameters(self) -> Mapping[str, str]:
        """Revision, number of beams, and what else the model's identity says: its own code, whose tokens it reads."""
        code = {"code": self._source.code.revision} if self._source.code else {}
        tokens = {"tokenizer": FILE} if self._source.tokenizer and self._source.tokenizer.differ else {}
        return {"revision": self._source.revision, "beams": str(self._beams), **code, **tokens}

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """What the model's generation_config.json sets: part of a translation model (its revision pins it), and applied."""
        return recommended(self._source)

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language`. Raises InputError for a language that the model has no code for."""
        import torch

        prefix, options = self._target(language)
        inputs = self._inputs(texts, prefix).to(self._model.device)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                num_beams=self._beams,
                do_sample=False,
                max_new_tokens=LONGEST,
                **options,
            )
        return [text.strip() for text in self._tokenizer.batch_decode(output, skip_special_tokens=True)]

    def _inputs(self, texts: Sequence[str], prefix: str) -> Any:
        """The model's inputs: a control token is one in the prefix, and characters in a text.

        Raises InputError for a text that the tokenizer can only read as holding a control token.
        """
        return self._tokenizer.pad({"input_ids": [self._ids(text, prefix) for text in texts]}, return_tensors="pt")

    def _ids(self, text: str, prefix: str) -> list[int]:
        try:
            ids = self._reader.tokens(text).ids
        except InputError as error:
            raise InputError(f"{text!r} can't be translated by model {self.system}: {error}") from error
        if prefix and self._reader.control_ids(text) == self._reader.ids(text):
            return list(self._tokenizer(prefix + text)["input_ids"])
        return [*(self._reader.control_ids(prefix) if prefix else ()), *ids]

    def _target(self, language: str) -> tuple[str, dict[str, Any]]:
        """What says to the model which language is wanted: a prefix of the text, or the first token it has to write."""
        tokens: Mapping[str, int] = self._tokenizer.get_vocab()
        english = next((code for code in (NLLB["en"], "__en__", "en_XX") if code in tokens), None)
        if english is not None:
            self._tokenizer.src_lang = english if english != "__en__" else "en"
            known = self._source.tokenizer
            if known and known.differ is None and tokens[english] not in self._reader.tokens("a").ids:
                raise InputError(
                    f"model {self.system}: its {FILE} marks no text as English, and {known.instead_of}, which would, "
                    "doesn't load here: use a model whose tokenizer transformers loads"
                )
        for code in (NLLB.get(language, language), f"__{language}__", f"{language}_XX", f"{language}_{language.upper()}"):
            if code in tokens:
                return "", {"forced_bos_token_id": tokens[code]}
        if f">>{language}<<" in tokens:
            return f">>{language}<< ", {}
        if self._source.config.model_type == "marian" and not any(token.startswith(">>") for token in tokens):
            return "", {}  # one target language only
        raise InputError(f"model {self.system} has no code for {language!r}: give the model's own code")

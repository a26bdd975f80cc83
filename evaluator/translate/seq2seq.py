"""Encoder-decoder translation models of transformers: NLLB, M2M100, mBART, Marian."""

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
"""Language code → NLLB's code (FLORES-200). Other NLLB codes can be given directly, e.g. `isl_Latn`."""

MAX_TOKENS = 256
"""Maximum tokens of a translation; constant, so that a translation does not depend on its batch."""


class Seq2SeqTranslator:
    """A local or Hub model, decoded greedily or with beam search."""

    price = 0.0
    batch = 64

    def __init__(self, spec: str, *, beams: int = 1, device: str = "auto") -> None:
        """Resolve the model; it is loaded with the first text. Raises InputError for other than encoder-decoder models.

        `?pickle` at the end of the spec allows pickled weights, `?trust-remote-code` code from the model's repository.
        """
        self._source = local_source(spec)
        if "seq2seq" not in self._source.heads:
            raise InputError(f"model {spec} is not an encoder-decoder model: for a chat model write llm:{spec}")
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
        """Revision, number of beams, and the revision of remote code and the tokenizer file if they are used."""
        code = {"code": self._source.code.revision} if self._source.code else {}
        tokens = {"tokenizer": FILE} if self._source.tokenizer and self._source.tokenizer.differ else {}
        return {"revision": self._source.revision, "beams": str(self._beams), **code, **tokens}

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the model's generation_config.json, which are applied."""
        return recommended(self._source)

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language`. Raises InputError if the model has no code for the language."""
        import torch

        prefix, options = self._target(language)
        inputs = self._inputs(texts, prefix).to(self._model.device)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                num_beams=self._beams,
                do_sample=False,
                max_new_tokens=MAX_TOKENS,
                **options,
            )
        return [text.strip() for text in self._tokenizer.batch_decode(output, skip_special_tokens=True)]

    def _inputs(self, texts: Sequence[str], prefix: str) -> Any:
        """The model's inputs. Control tokens are recognised in the prefix but not in texts.

        Raises InputError for a text that the tokenizer cannot encode without control tokens.
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
        """How the model is told the target language: a prefix of the text, or options of `generate`."""
        tokens: Mapping[str, int] = self._tokenizer.get_vocab()
        english = next((code for code in (NLLB["en"], "__en__", "en_XX") if code in tokens), None)
        if english is not None:
            self._tokenizer.src_lang = english if english != "__en__" else "en"
            known = self._source.tokenizer
            if known and known.differ is None and tokens[english] not in self._reader.tokens("a").ids:
                raise InputError(
                    f"model {self.system}: its {FILE} adds no token for English, and its tokenizer class {known.instead_of} "
                    "can't be loaded: use a model whose tokenizer transformers loads"
                )
        for code in (NLLB.get(language, language), f"__{language}__", f"{language}_XX", f"{language}_{language.upper()}"):
            if code in tokens:
                return "", {"forced_bos_token_id": tokens[code]}
        if f">>{language}<<" in tokens:
            return f">>{language}<< ", {}
        if self._source.config.model_type == "marian" and not any(token.startswith(">>") for token in tokens):
            return "", {}  # a model with a single target language
        raise InputError(f"model {self.system} has no code for language {language!r}: give the model's own code")

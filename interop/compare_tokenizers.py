"""Trains small tokenizers of the kinds that language models use, and compares agentsim's ids of random texts with those of Hugging Face.

Characters are those of Unicode 3.2, about which the tables of Go, Rust and Oniguruma agree.

    compare_tokenizers.py [--texts N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

VOCABULARY = 2000
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

# Characters of all kinds; what no older Unicode has is left out.
CHARACTERS = [c for c in map(chr, range(1, 0x30000)) if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Cs", "Co")]
SCRIPTS = [range(*r) for r in ((0x61, 0x7B), (0xC0, 0x180), (0x391, 0x3C9), (0x410, 0x450), (0x5D0, 0x5EA), (0x627, 0x64A), (0x905, 0x939), (0x3041, 0x3096), (0x4E00, 0x5000), (0xAC00, 0xAE00))]
ODD = ["'s", "'S", "'ſ", "'ll", "DON'T", "e\u0301", "İ", "ß", "ǅ", "²", "½", "Ⅷ", "٣", "ﬁ", "\u00a0", "\u2003", "\u200d", "\r\n", "\n\n", "\t", "   ", "\x00", "▁", "<s>", "</s>", " <mask> ", "word", "Big", "🙂", "--", "...", "{\"a\": [1, 2.5]}", "x_1 = f(y);\n    "]


def text(rng: random.Random) -> str:
    """A text of words in a few scripts, numbers, code, odd pieces and any characters."""
    scripts = rng.sample(SCRIPTS, 2)
    pieces = []
    for _ in range(rng.randint(0, 40)):
        kind = rng.random()
        if kind < 0.55:
            script = rng.choice(scripts)
            word = "".join(chr(script[int(len(script) * rng.random() ** 2)]) for _ in range(rng.randint(1, 8)))
            pieces.append(rng.choice([word, word.capitalize(), word.upper()]) + rng.choice([" ", " ", " ", ", ", "\n", ""]))
        elif kind < 0.65:
            pieces.append(str(rng.randint(0, 10 ** rng.randint(1, 9))))
        elif kind < 0.9:
            pieces.append(rng.choice(ODD))
        else:
            pieces.append("".join(rng.choices(CHARACTERS, k=rng.randint(1, 5))))
    return "".join(pieces)


def isolated(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def bytes_of(*before: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(corpus: list[str], model: models.BPE, normalizer, pre_tokenizer, **options) -> Tokenizer:
    tokenizer = Tokenizer(model)
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False, **options))
    return tokenizer


def edited(tokenizer: Tokenizer, edit) -> Tokenizer:
    content = json.loads(tokenizer.to_str())
    edit(content)
    return Tokenizer.from_str(json.dumps(content))


def sentencepiece(corpus: list[str]) -> Tokenizer:
    """As Llama 2's: whole texts are words, and bytes stand for what is no token."""

    def edit(content) -> None:
        model = content["model"]
        for b in range(256):
            model["vocab"][f"<0x{b:02X}>"] = len(model["vocab"])
        model.update(byte_fallback=True, fuse_unk=True)
        content["pre_tokenizer"] = None

    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    return edited(train(corpus, models.BPE(unk_token="<unk>"), normalizer, pre_tokenizer, special_tokens=["<unk>"], limit_alphabet=150), edit)


def kinds(corpus: list[str]) -> dict[str, Tokenizer]:
    alphabet = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    unknown = {"special_tokens": ["<unk>"], "limit_alphabet": 120}
    all_of = {
        "gpt2": train(corpus, models.BPE(), None, pre_tokenizers.ByteLevel(add_prefix_space=False), **alphabet),
        "gpt2-prefix": train(corpus, models.BPE(), None, pre_tokenizers.ByteLevel(add_prefix_space=True), **alphabet),
        "llama3": train(corpus, models.BPE(ignore_merges=True), None, bytes_of(isolated(LLAMA3)), **alphabet),
        "qwen": train(corpus, models.BPE(), normalizers.NFC(), bytes_of(isolated(LLAMA3.replace("{1,3}", ""))), **alphabet),
        "o200k": train(corpus, models.BPE(), normalizers.NFKC(), bytes_of(pre_tokenizers.Split(Regex(O200K), "removed", invert=True)), **alphabet),
        "deepseek": train(corpus, models.BPE(), None, bytes_of(isolated(r"\p{N}{1,3}"), isolated("[一-龥぀-ゟ゠-ヿ]+"), isolated(GPT2)), **alphabet),
        "falcon": train(
            corpus,
            models.BPE(),
            None,
            pre_tokenizers.Sequence(
                [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]
            ),
            **alphabet,
        ),
        "starcoder": train(corpus, models.BPE(), normalizers.NFD(), pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), **alphabet),
        "llama2": sentencepiece(corpus),
        "metaspace": train(corpus, models.BPE(unk_token="<unk>", fuse_unk=True), normalizers.NFKD(), pre_tokenizers.Metaspace(prepend_scheme="first"), **unknown),
        "metaspace-always": train(corpus, models.BPE(unk_token="<unk>"), None, pre_tokenizers.Metaspace(prepend_scheme="always"), **unknown),
        "metaspace-whole": train(corpus, models.BPE(unk_token="<unk>"), None, pre_tokenizers.Metaspace(prepend_scheme="never", split=False), **unknown),
        "clip": train(
            corpus,
            models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
            normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase(), normalizers.Strip()]),
            pre_tokenizers.Whitespace(),
            end_of_word_suffix="</w>",
            **unknown,
        ),
        "prefixed": train(corpus, models.BPE(unk_token="<unk>", continuing_subword_prefix="##"), None, pre_tokenizers.WhitespaceSplit(), continuing_subword_prefix="##", **unknown),
        "unknown-left-out": train(corpus, models.BPE(), None, pre_tokenizers.Split(" ", "merged_with_previous"), limit_alphabet=60),
    }
    for tokenizer in all_of.values():
        tokenizer.add_special_tokens(["<s>", AddedToken("</s>", rstrip=True), AddedToken("<mask>", lstrip=True)])
        tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("Big", normalized=True)])
    return all_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=2000, help="texts for each kind of tokenizer")
    texts = parser.parse_known_args()[0].texts  # run.sh names the programs to compare, too
    rng = random.Random(1)
    corpus = [text(rng) for _ in range(3000)]
    all_of = kinds(corpus)
    print(f"tokenizers: {len(all_of)} kinds, {texts} texts each")
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer in all_of.items():
            tokenizer.save(f"{folder}/{name}.json")
            with open(f"{folder}/{name}.cases", "w", encoding="utf-8") as out:
                for _ in range(texts):
                    t = text(rng)
                    out.write(json.dumps({"text": t, "ids": tokenizer.encode(t, add_special_tokens=False).ids}) + "\n")
        test = ["go", "test", "-count=1", "-run", "^TestReference$", "./trace/hash/tokenizer"]
        return subprocess.run(test, cwd=Path(__file__).parent.parent, env=os.environ | {"TOKENIZERS": folder}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

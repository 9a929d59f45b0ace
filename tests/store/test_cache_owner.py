"""Entries of the cache know whose they are: exchanged folders are noticed and built again."""

import pytest

import r2med
from r2med.store.cache import Cache


def exchange(kind):
    """Exchange the folders of the two entries of a kind."""
    first, second = sorted((Cache.default().root / kind).iterdir())
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def figures(fresh):
    report = r2med.evaluate("bm25", ["sample/Biology", "sample/MedQA-Diag"], r2med.Options(fresh=fresh))
    return [result.metrics["nDCG@10"] for result in report.results]


def test_exchanged_indexes_change_no_figure():
    before = figures(fresh=False)
    exchange("bm25")
    assert figures(fresh=True) == before
    assert all(len(list(folder.glob("entry.key"))) == 1 for folder in (Cache.default().root / "bm25").iterdir())


@pytest.mark.parametrize("verb", ["entry", "sound_entry"])
def test_an_entry_under_another_name_is_built_again(tmp_path, verb):
    cache, built = Cache(tmp_path), []

    def build(content):
        def write(folder):
            built.append(content)
            (folder / "value").write_text(content)

        return write

    for key in ("one", "two"):
        getattr(cache, verb)("kind", key, build(key))
    cache.drop("kind", "two")
    (tmp_path / "kind" / "one").rename(tmp_path / "kind" / "two")
    assert not cache.has("kind", "two")
    folder = getattr(cache, verb)("kind", "two", build("two"))
    assert (folder / "value").read_text() == "two"
    assert built == ["one", "two", "two"]

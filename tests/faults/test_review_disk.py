"""A review on a disk that is really full: the page says that nothing was saved, and nothing that was is lost."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest
from disks import fill, small_disk

from r2med.reviews.access import invite, join_path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import review_kills

testclient = pytest.importorskip("starlette.testclient", reason="the web extra is not installed")
HERE = "http://127.0.0.1:8421"


def test_the_desk_says_that_the_disk_is_full(tmp_path, monkeypatch):
    from r2med.web.access import Access
    from r2med.web.app import create_app
    from r2med.web.library import Library

    with small_disk(tmp_path / "disk", 4_000_000) as disk:
        monkeypatch.setenv("R2MED_HOME", str(disk))
        with review_kills.make_review("pilot", 40, random.Random(0)) as store:
            secret = invite(store, "Ada")
            client = testclient.TestClient(
                create_app(Library(), Access("of-the-test")), base_url=HERE, headers={"origin": HERE}
            )
            client.get(join_path("pilot", secret))
            saved = [judge(client)["saved"] for _ in range(3)]
            filler = fill(disk)
            refused = judge(client, "x" * 4000)
            assert re.match("This was not saved: .*the disk is full", refused["error"])
            assert [row.id for row in store.decisions()] == saved
            filler.unlink()
            assert judge(client)["saved"] == 4
            assert len(store.decisions()) == 4


def judge(client, note: str = "") -> dict:
    """Judge the next item; what the server says."""
    page = client.get("/review/pilot")
    form = dict(review_kills.FIELD.findall(page.text.partition("decide")[2]))
    address = re.search(r'data-here="([^"]+)"', page.text)[1]
    headers = {"accept": "application/json"}
    return client.post(address, data={**form, "say": "2", "note": note}, headers=headers).json()

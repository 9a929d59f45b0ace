"""Loading from the hub, against a local server that speaks its protocol; each load is a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folders import SMALL, Content, put_parquet, write_nano, write_r2med, write_r2med_configs

from hubserver import Fault, HubServer, run_python
from r2med.data.tasks import task

BIOLOGY = task("Biology")
LOAD = """
import json, time
time.sleep = lambda seconds: None  # the hub's client waits before every retry
from r2med.data.loader import load
from r2med.errors import R2medError
try:
    data = load("Biology")
except R2medError as error:
    print(json.dumps({"error": str(error)}))
else:
    print(json.dumps({
        "fingerprint": data.fingerprint, "revision": data.revision, "warnings": data.warnings, "task": data.name,
        "documents": list(data.collection.documents), "answers": dict(data.gold.answers),
    }))
"""


@pytest.fixture
def hub():
    with HubServer() as server:
        yield server


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def load_in_process(hub: HubServer, home: Path, code: str = LOAD, **environment: str) -> dict[str, object]:
    """What a fresh process gets; the requests it made are in `hub.requests`."""
    hub.requests.clear()
    done = run_python(code, hub.environment(home, **environment))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    hub.requests[:] = [request for request in hub.requests if "R2MED" in request]
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.fixture
def biology(hub, tmp_path):
    write_r2med(tmp_path / "source", SMALL)
    files = files_of(tmp_path / "source")
    hub.add(
        BIOLOGY.hub, files | {"README.md": b"#", "hyde/gpt4/query_with_hydoc.jsonl": b"{}"}, commit=BIOLOGY.revision
    )
    return files


def test_files_are_fetched_once_and_then_never_asked_for_again(hub, biology, tmp_path):
    first = load_in_process(hub, tmp_path)
    assert first["revision"] == BIOLOGY.revision
    assert first["documents"] == [list(row) for row in SMALL.joined]
    assert first["answers"] == SMALL.answers
    downloads = {request.rpartition("/")[2] for request in hub.requests if request.startswith("GET /datasets")}
    assert downloads == {"corpus.jsonl", "query.jsonl", "qrels.jsonl"}
    assert load_in_process(hub, tmp_path) == first
    assert hub.requests == []
    assert load_in_process(hub, tmp_path, HF_HUB_OFFLINE="1") == first
    hub.stop()
    assert load_in_process(hub, tmp_path) == first


def test_counts_that_differ_from_the_published_ones_are_said(hub, biology, tmp_path):
    assert load_in_process(hub, tmp_path)["warnings"] == [
        "R2MED/Biology: 2 queries, where 103 are published",
        "R2MED/Biology: 3 documents, where 57,359 are published",
        "R2MED/Biology: 3 judgements, where 374 are published",
    ]


def test_parquet_configs_give_the_same_data(hub, biology, tmp_path):
    first = load_in_process(hub, tmp_path)
    write_r2med_configs(tmp_path / "configs", SMALL)
    hub.add(BIOLOGY.hub, files_of(tmp_path / "configs"), commit=BIOLOGY.revision)
    assert load_in_process(hub, tmp_path / "other") == first


def test_a_dropped_connection_is_resumed_where_it_broke(hub, biology, tmp_path):
    large = Content([("d1", "", "x" * 12_000_000), *SMALL.documents[1:]], SMALL.queries, SMALL.qrels)
    write_r2med(tmp_path / "large", large)
    hub.add(BIOLOGY.hub, files_of(tmp_path / "large"), commit=BIOLOGY.revision)
    hub.faults.append(Fault("corpus.jsonl", drop_after=11_000_000, times=1))
    code = LOAD.replace("list(data.collection.documents)", "len(data.collection.documents.texts[0])")
    assert load_in_process(hub, tmp_path, code)["documents"] == 12_000_000
    assert any(request.endswith("corpus.jsonl from 10485760") for request in hub.requests)


def test_a_connection_that_keeps_dropping_is_one_line_and_the_next_call_succeeds(hub, biology, tmp_path):
    hub.faults.append(Fault("corpus.jsonl", drop_after=20))
    error = load_in_process(hub, tmp_path)["error"]
    assert error.startswith(f"cannot fetch R2MED/Biology from {hub.url} (peer closed connection")
    assert error.endswith("check the connection and run the same again")
    assert "\n" not in error
    hub.faults.clear()
    assert load_in_process(hub, tmp_path)["revision"] == BIOLOGY.revision


def test_a_server_error_now_and_then_is_lived_with(hub, biology, tmp_path):
    hub.faults.append(Fault("/resolve/", status=500, times=1))
    assert load_in_process(hub, tmp_path)["revision"] == BIOLOGY.revision


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("/api/", status=500), "answered 500 for R2MED/Biology; try again later"),
        (Fault("/api/", status=403), "answered 403 for R2MED/Biology; check HF_TOKEN"),
        (Fault("/api/", status=403, code="GatedRepo"), "R2MED/Biology is gated at"),
        (Fault("/resolve/", status=403, code="GatedRepo"), "then run `hf auth login` or set HF_TOKEN"),
        (Fault("/api/", status=401, code="RepoNotFound"), "R2MED/Biology does not exist at"),
        (Fault("/api/datasets", drop_after=10), "cannot fetch R2MED/Biology from"),
    ],
)
def test_refusals_are_one_line_that_says_what_to_do(hub, biology, tmp_path, fault, message):
    hub.faults.append(fault)
    error = load_in_process(hub, tmp_path)["error"]
    assert message in error
    assert "\n" not in error


def test_a_wrong_revision(hub, biology, tmp_path):
    code = LOAD.replace('"Biology")', '"Biology", revision="0123456789" * 4)')
    error = load_in_process(hub, tmp_path, code)["error"]
    assert error.startswith(f"R2MED/Biology has no revision {'0123456789' * 4} at {hub.url}")


def test_offline_without_a_copy(hub, biology, tmp_path):
    error = load_in_process(hub, tmp_path, HF_HUB_OFFLINE="1")["error"]
    assert "is not on this machine and HF_HUB_OFFLINE is set" in error
    assert hub.requests == []


def test_nobody_there(hub, biology, tmp_path):
    hub.stop()
    assert "refused" in load_in_process(hub, tmp_path)["error"]


def test_a_cache_that_cannot_be_written(hub, biology, tmp_path):
    (tmp_path / "hf").write_text("a file where the cache should be")
    error = load_in_process(hub, tmp_path)["error"]
    assert error.startswith(f"cannot keep R2MED/Biology in {tmp_path / 'hf' / 'hub'}: Not a directory")


def test_a_repository_without_judgements(hub, biology, tmp_path):
    hub.add(BIOLOGY.hub, {name: body for name, body in biology.items() if "qrels" not in name}, commit=BIOLOGY.revision)
    assert (
        "R2MED/Biology at 8b9fec2db9eda4b5742d03732213fbaee8169556: no qrels; expected qrels.jsonl"
        in (load_in_process(hub, tmp_path)["error"])
    )


def test_a_download_cut_short_between_files_is_completed(hub, biology, tmp_path):
    load_in_process(hub, tmp_path)
    (corpus,) = tmp_path.glob("hf/hub/datasets--R2MED--Biology/snapshots/*/corpus.jsonl")
    corpus.resolve().unlink()
    assert load_in_process(hub, tmp_path)["documents"] == [list(row) for row in SMALL.joined]
    assert [request for request in hub.requests if request.startswith("GET /datasets")] == [
        f"GET /datasets/R2MED/Biology/resolve/{BIOLOGY.revision}/corpus.jsonl"
    ]


def nano_repository(folder: Path) -> dict[str, bytes]:
    """Parquet of the published schema, two tasks, with candidate lists."""
    for split, first in (("NanoR2MEDBiology", "d1"), ("NanoR2MEDPMCClinical", "d3")):
        write_nano(folder, SMALL, split)
        lists = [("q1", [first, "d2"]), ("q2", ["d2", first])]
        for config in ("bm25", "harrier_oss_v1_270m", "reranking_hybrid"):
            put_parquet(folder, f"{config}/{split}-00000-of-00001.parquet", lists, ("query-id", "corpus-ids"))
    return files_of(folder)


CANDIDATES = """
import json
from r2med.data.loader import load
from r2med.data.candidates import candidates
run = candidates(load("nano/PMC-Clinical").collection, "dense")
print(json.dumps({query: [ranking.documents, ranking.scores.tolist()] for query, ranking in run}))
"""


def test_nano_tasks_come_from_one_repository_and_record_the_commit(hub, tmp_path):
    commit = hub.add("hakari-bench/NanoR2MED", nano_repository(tmp_path / "source"))
    code = LOAD.replace('"Biology")', '"nano/PMC-Clinical")')
    first = load_in_process(hub, tmp_path, code)
    assert (first["revision"], first["task"]) == (commit, "nano/PMC-Clinical")
    assert first["documents"] == [list(row) for row in SMALL.joined]
    assert not any("Biology" in request for request in hub.requests)
    moved = hub.add("hakari-bench/NanoR2MED", nano_repository(tmp_path / "source") | {"new": b""})
    assert moved != commit
    assert load_in_process(hub, tmp_path, code, HF_HUB_OFFLINE="1") == first
    assert load_in_process(hub, tmp_path, code) == first
    assert hub.requests == []


def test_nano_tasks_fetched_later_come_from_the_commit_that_was_seen_first(hub, tmp_path):
    files = nano_repository(tmp_path / "source")
    commit = hub.add("hakari-bench/NanoR2MED", files)
    load_in_process(hub, tmp_path, LOAD.replace('"Biology")', '"nano/PMC-Clinical")'))
    moved = hub.add("hakari-bench/NanoR2MED", files | {"new": b""})
    later = load_in_process(hub, tmp_path, LOAD.replace('"Biology")', '"nano/Biology")'))
    assert later["revision"] == commit != moved
    assert load_in_process(hub, tmp_path, CANDIDATES)
    assert all(f"/resolve/{commit}/" in request for request in hub.requests if "/resolve/" in request)
    chosen = LOAD.replace('"Biology")', f'"nano/Biology", revision="{moved}")')
    assert load_in_process(hub, tmp_path, chosen)["revision"] == moved


def test_nano_candidates_come_from_the_same_commit(hub, tmp_path):
    hub.add("hakari-bench/NanoR2MED", nano_repository(tmp_path / "source"))
    expected = {"q1": [["d3", "d2"], [2.0, 1.0]], "q2": [["d2", "d3"], [2.0, 1.0]]}
    assert load_in_process(hub, tmp_path, CANDIDATES) == expected
    assert load_in_process(hub, tmp_path, CANDIDATES, HF_HUB_OFFLINE="1") == expected
    assert hub.requests == []


def test_models_are_served_too(hub, tmp_path):
    commit = hub.add("some/model", {"config.json": b'{"a": 1}'}, kind="models")
    code = """
from huggingface_hub import hf_hub_download
print(open(hf_hub_download("some/model", "config.json")).read())
"""
    assert load_in_process(hub, tmp_path, code) == {"a": 1}
    assert list(tmp_path.glob(f"hf/hub/models--some--model/snapshots/{commit}/config.json"))


OTHERS = """
import json
from r2med.data.loader import load
from r2med.errors import R2medError
found = {}
for name in ("cure/dermatology/en", "CURE/dermatology/es", "cmirb/CovidRetrieval", "cmirb/MedExamRetrieval"):
    try:
        data = load(name)
        found[name] = [list(data.collection.queries), list(data.collection.documents.ids), dict(data.gold.qrels),
                       data.collection.documents.fingerprint, data.revision, data.task.translates]
    except R2medError as error:
        found[name] = str(error)
print(json.dumps(found))
"""


def json_lines(*rows: dict) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_tasks_of_other_benchmarks_are_read_by_name(hub, tmp_path):
    cure = task("cure/dermatology/en")
    files = {
        "dermatology/corpus.jsonl": json_lines(
            {"_id": "d1", "title": "Skin", "text": "It itches."}, {"_id": "d2", "text": "No."}
        ),
        "dermatology/queries-en.jsonl": json_lines({"_id": "q1", "text": "Why does it itch?"}),
        "dermatology/queries-es.jsonl": json_lines({"_id": "q1", "text": "\u00bfPor qu\u00e9 pica?"}),
        "dermatology/qrels.jsonl": json_lines({"query-id": "q1", "corpus-id": "d1", "score": 2}),
        "pulmonology/corpus.jsonl": json_lines({"_id": "x", "text": "other"}),
    }
    commit = hub.add("clinia/CUREv1", files, commit=cure.revision)
    place = tmp_path / "covid"
    texts = [("p1", "\u53d1\u70ed"), ("p2", "\u54b3\u55fd")]
    put_parquet(place, "corpus/corpus-00000-of-00001.parquet", texts, ("id", "text"))
    put_parquet(place, "queries/queries-00000-of-00001.parquet", [("q1", "\u4e3a\u4ec0\u4e48")], ("id", "text"))
    put_parquet(place, "data/dev-00000-of-00001.parquet", [("q1", "p2", 1)], ("q_id", "p_id", "score"))
    hub.add("CMIRB/CovidRetrieval", files_of(place))
    hub.add("CMIRB/MedExamRetrieval", {"README.md": b"empty"})
    done = run_python(OTHERS, hub.environment(tmp_path))
    assert done.returncode == 0, done.stderr
    english, spanish, covid, empty = json.loads(done.stdout).values()
    assert english[0] == [["q1", "Why does it itch?"]]
    assert spanish[0] == [["q1", "\u00bfPor qu\u00e9 pica?"]]
    assert english[1:5] == spanish[1:5] == [["d1", "d2"], {"q1": {"d1": 2}}, english[3], commit]
    assert (english[5], spanish[5]) == ("", "cure/dermatology/en")
    assert covid[1:3] == [["p1", "p2"], {"q1": {"p2": 1}}]
    assert "no documents; expected corpus.jsonl or corpus/*.parquet" in empty
    assert not any("pulmonology" in request for request in hub.requests if "resolve" in request)

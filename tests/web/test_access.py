"""Who is let in to the pages, by which door, and what everybody else is told."""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
import time
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from webparts import TOKEN, entered, served

from r2med.cli.main import app as program
from r2med.errors import R2medError
from r2med.web import addresses as forms
from r2med.web import server as page_server
from r2med.web.access import Access, Admitted, Entrance, Refused, Visit, Welcomed, without_token
from r2med.web.app import create_app
from r2med.web.library import Library
from r2med.web.server import kept_token, token_path

HERE = "http://127.0.0.1:8421"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def application(filled):
    return create_app(Library(filled[0] / "ledger.sqlite"), Access(TOKEN))


@pytest.fixture
def stranger(application):
    """Somebody who has just found the port."""
    return TestClient(application, base_url=HERE, follow_redirects=False)


def every_route(application) -> list[tuple[str, str]]:
    """Every address of the server, each with its method."""
    filled_in = {"{name}": "pilot", "{secret}": "wrong"}
    found = []
    for route in application.routes:
        path = re.sub(r"\{.*?\}", lambda part: filled_in.get(part[0], "1"), route.path)
        found += [(method, path) for method in sorted(route.methods)]
    return found


def test_without_a_token_nothing_is_shown(application, stranger):
    routes = every_route(application)
    assert len(routes) > 25
    for method, path in [*routes, ("GET", "/nothing"), ("PUT", "/"), ("OPTIONS", "/runs")]:
        answer = stranger.request(method, path, headers={"origin": HERE})
        assert answer.status_code == 403, path
        assert "set-cookie" not in answer.headers
        if method != "HEAD":
            told = "This page needs a token; open the address"
            if path.startswith("/review/"):
                told = "This link does not open a review" if "/join/" in path else "the link that you were sent"
            assert told in answer.text
            assert 'href="/' not in answer.text
            assert "bm25" not in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("shown", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\u00e9", "a" * 5000])
def test_a_wrong_token_opens_nothing(stranger, shown):
    assert stranger.get("/?" + urlencode({"token": shown})).status_code == 403
    for headers in ({"authorization": f"Bearer {shown}"}, {"authorization": f"Basic {TOKEN}"}, {"authorization": TOKEN},
                    {"cookie": f"r2med_8421={shown}"}, {"cookie": f"r2med_8421={TOKEN}"}, {"cookie": f"r2med={TOKEN}"},
                    {"cookie": "; ;=;r2med_8421"}):  # fmt: skip
        sent = {name: value.encode("utf-8") for name, value in headers.items()}
        assert stranger.get("/runs", headers=sent).status_code == 403
    assert "not the server" in stranger.get("/?token=wrong").text


def test_the_printed_address_is_exchanged_for_a_cookie_once(stranger):
    answer = stranger.get(f"/?group=sample&token={TOKEN}&q=a+b%26c")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/?group=sample&q=a+b%26c"
    assert answer.headers["cache-control"] == "no-store"
    cookie = answer.headers["set-cookie"]
    assert re.search("; HttpOnly", cookie)
    assert re.search("; SameSite=Lax", cookie)
    assert TOKEN not in cookie
    assert stranger.get("/?group=sample").status_code == 200
    assert stranger.get("/static/app.js").status_code == 200
    assert stranger.get("/?token=something+else").headers["location"] == "/"
    assert TOKEN not in stranger.get("/?group=sample").text


def test_a_token_in_the_address_changes_nothing_by_itself(stranger):
    form = {"task": "sample/Biology", "system": "bm25"}
    answer = stranger.post(f"/search/index?token={TOKEN}", data=form, headers={"origin": HERE})
    assert answer.status_code == 403


def test_a_script_may_send_the_token_as_a_header(stranger):
    assert stranger.get("/board.csv?group=sample", headers=BEARER).text.startswith("group,")
    assert stranger.get("/board.csv?group=sample").status_code == 403


def test_a_browser_is_still_known_when_the_server_was_started_again(filled, stranger):
    stranger.get(f"/?token={TOKEN}")
    library = Library(filled[0] / "ledger.sqlite")
    for token, status in ((TOKEN, 200), ("another-token", 403)):
        again = TestClient(create_app(library, Access(token)), base_url=HERE, cookies=stranger.cookies)
        assert again.get("/runs").status_code == status


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "/%2F/evil.example", "/a\r\nset-cookie: x=1"])
def test_the_way_on_never_leaves_the_server(path):
    place = Access(TOKEN).decide(Visit("GET", path, f"token={TOKEN}", {"host": "localhost"})).place
    assert re.fullmatch(r"/[^/\\\s][^\\\s]*", place)


@given(st.text(), st.lists(st.tuples(st.text(min_size=1), st.text())), st.text(max_size=30))
def test_any_address_loses_its_token_and_nothing_else(path, pairs, secret):
    query = urlencode([*pairs, ("token", secret)], errors="replace")
    place = without_token(Visit("GET", "/" + path, query))
    kept = [(name, value) for name, value in pairs if name != "token"]
    assert place.startswith("/")
    assert not place.startswith("//")
    assert place.partition("?")[2] == urlencode(kept, errors="replace")


@given(st.text(), st.text(), st.text(min_size=1))
def test_nothing_but_the_token_is_the_token(shown, cookie, token):
    headers = {"host": "localhost", "cookie": f"r2med={cookie}", "authorization": f"bearer {shown}"}
    decision = Access(token).decide(Visit("GET", "/", urlencode({"token": shown}, errors="replace"), headers))
    assert isinstance(decision, Welcomed) or shown.strip() != token
    assert isinstance(decision, Refused) or token in (shown, shown.strip())


# ---------------------------------------------------------------------------------------------- hosts and origins


@pytest.mark.parametrize(
    "host",
    ["localhost/evil", "evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "10.0.0.1:8421",
     "[::1", "a:b:c", "localhost.", "0.0.0.0:8421", "127.1", "hub.example.evil.example", "-hub.example"],
)  # fmt: skip
def test_a_foreign_host_is_refused_even_with_the_token(stranger, host):
    assert stranger.get("/", headers={"host": host, **BEARER}).status_code == 403
    refused = Access(TOKEN, hosts=("hub.example",)).decide(Visit("GET", "/", "", {"host": host, **BEARER}))
    assert isinstance(refused, Refused)
    assert "--allow-host" in refused.why


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8421", "127.0.0.1:1", "[::1]:8421"])
def test_the_loopback_has_several_names(stranger, host):
    assert stranger.get("/runs", headers={"host": host, **BEARER}).status_code == 200


def admitted(access: Access, method: str = "GET", **headers: str) -> bool:
    sent = {name.replace("_", "-"): value for name, value in headers.items()} | BEARER
    return isinstance(access.decide(Visit(method, "/system/causes", "", sent)), Admitted)


def test_a_proxy_has_a_name_of_its_own():
    access = Access(TOKEN, hosts=("Hub.example", "other.example:8000"))
    assert admitted(access, host="hub.example")
    assert admitted(access, host="hub.example:443")
    assert admitted(access, host="other.example:8000")
    assert not admitted(access, host="other.example")
    assert admitted(access, "POST", host="hub.example", origin="https://hub.example")
    assert admitted(access, "POST", host="127.0.0.1:8421", origin="https://hub.example", sec_fetch_site="same-origin")
    assert not admitted(access, "POST", host="127.0.0.1:8421", origin="https://hub.example", sec_fetch_site="same-site")
    assert not admitted(access, "POST", host="hub.example", origin="https://evil.example")
    assert not admitted(access, "POST", host="hub.example")
    assert not admitted(Access(TOKEN), "POST", host="127.0.0.1:8421", origin="https://hub.example")


def test_another_address_is_asked_by_its_number_or_by_an_allowed_name():
    assert admitted(Access(TOKEN, bound="192.168.1.5"), host="192.168.1.5:8421")
    assert not admitted(Access(TOKEN, bound="192.168.1.5"), host="192.168.1.6:8421")
    assert admitted(Access(TOKEN, bound="0.0.0.0"), host="192.168.1.6:8421")
    assert not admitted(Access(TOKEN, bound="0.0.0.0"), host="evil.example")
    assert admitted(Access(TOKEN, bound="::"), host="[fe80::1]:8421")


@pytest.mark.parametrize("headers", [{}, {"origin": "http://evil.example"}, {"origin": "null"},
                                     {"origin": "null", "sec-fetch-site": "cross-site"},
                                     {"origin": "null", "sec-fetch-site": "same-origin"},
                                     {"origin": "http://127.0.0.1:1"}, {"origin": "https://127.0.0.1:8421"},
                                     {"origin": "http://127.0.0.1:8421", "sec-fetch-site": "same-site"},
                                     {"origin": "http://127.0.0.1:8421", "sec-fetch-site": "cross-site"}])  # fmt: skip
def test_a_change_from_elsewhere_is_refused_with_a_way_back(filled, headers):
    client = entered(Library(filled[0] / "ledger.sqlite"))
    form = {"task": "sample/Biology", "system": "bm25", "group": "sample"}
    for address in ("/search/index", "/system/causes"):
        refused = client.post(address, data=form, headers=headers)
        assert refused.status_code == 403
        assert "A change must come from a page of this server" in refused.text
        assert '<a href="/">To the board</a>' in refused.text


# ---------------------------------------------------------------------------------------------- other doors


def test_an_entrance_leads_to_its_own_pages_alone():
    desk = Entrance("/desk", lambda visit: visit.cookies.get("desk") == "mine")
    access = replace(Access(TOKEN), entrances=(desk,))
    guest, nobody = {"host": "localhost", "cookie": "desk=mine"}, {"host": "localhost", "cookie": "desk=other"}
    for path in ("/desk", "/desk/next", "/static/style.css"):
        assert access.decide(Visit("GET", path, "", guest)) == Admitted("entrance")
        assert isinstance(access.decide(Visit("GET", path, "", nobody)), Refused)
    for path in ("/", "/desks", "/runs", "/desk.csv", "/static-data"):
        assert isinstance(access.decide(Visit("GET", path, "", guest)), Refused)
    assert access.decide(Visit("POST", "/desk", "", guest | {"origin": "http://localhost"})) == Admitted("entrance")
    for method, path, origin in (("POST", "/desk", "http://evil.example"), ("POST", "/runs", "http://localhost"),
                                 ("POST", "/static/style.css", "http://localhost")):  # fmt: skip
        assert isinstance(access.decide(Visit(method, path, "", guest | {"origin": origin})), Refused)
    assert access.decide(Visit("GET", "/desk", "", {"host": "localhost", **BEARER})) == Admitted("token")


def test_an_open_server_lets_everybody_in_but_still_knows_its_names():
    access = Access(None)
    assert access.decide(Visit("GET", "/", "", {"host": "localhost"})) == Admitted("open")
    assert access.decide(Visit("GET", "/", "token=x&a=b", {"host": "localhost"})) == Welcomed("/?a=b", "")
    assert isinstance(access.decide(Visit("GET", "/", "", {"host": "evil.example"})), Refused)
    assert isinstance(access.decide(Visit("POST", "/", "", {"host": "localhost"})), Refused)


# ---------------------------------------------------------------------------------------------- the kept token


def test_the_token_is_kept_for_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    token = kept_token()
    assert re.fullmatch("[0-9a-f]{48}", token)
    assert stat.S_IMODE(token_path().stat().st_mode) == 0o600
    assert kept_token() == token
    assert [path.name for path in tmp_path.iterdir()] == [token_path().name]


def test_a_token_that_others_could_read_or_that_is_damaged_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    seen = {kept_token()}
    token_path().chmod(0o644)
    seen.add(kept_token())
    token_path().write_text("short\n")
    seen.add(kept_token())
    token_path().write_bytes(b"\xff\x00")
    seen.add(kept_token())
    token_path().unlink()
    (tmp_path / "elsewhere").write_text("0" * 48)
    token_path().symlink_to(tmp_path / "elsewhere")
    seen.add(kept_token())
    assert len(seen) == 5
    assert (tmp_path / "elsewhere").read_text() == "0" * 48
    assert kept_token() in seen


def test_servers_that_start_at_once_have_one_token(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    found, barrier = [], threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        found.append(kept_token())

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {kept_token()}


@pytest.mark.skipif(os.name == "nt", reason="folders of Windows have no such rights")
def test_a_home_that_cannot_be_written_has_a_token_for_this_time(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    monkeypatch.setattr("os.open", refuse)
    assert re.fullmatch("[0-9a-f]{48}", kept_token())
    assert list(tmp_path.iterdir()) == []


def refuse(*arguments: object) -> int:
    raise PermissionError(13, "Permission denied")


# ---------------------------------------------------------------------------------------------- the command


@pytest.fixture
def start(monkeypatch):
    """Call `r2med serve` up to the moment when it would listen; its rules, and what it said."""
    started = []

    def serve(port, access, tell, proxy):
        tell()
        started.append(access)

    monkeypatch.setattr("r2med.web.app.serve", serve)
    monkeypatch.delenv("R2MED_TOKEN", raising=False)

    def call(*arguments: str, **environment: str):
        done = CliRunner().invoke(program, ["serve", *arguments], env=environment)
        return done, started.pop() if started else None

    return call


def test_the_command_prints_the_address_with_the_token(start):
    done, access = start("--port", "8500")
    assert access == Access(kept_token())
    assert done.output == f"http://127.0.0.1:8500/?token={kept_token()}  (Ctrl-C stops it)\n"
    done, access = start("--token", "spaces & such/1")
    assert access.token == "spaces & such/1"
    assert "/?token=spaces%20%26%20such%2F1  " in done.output
    assert start(R2MED_TOKEN="from the environment")[1].token == "from the environment"
    assert start(R2MED_TOKEN="")[1].token == kept_token()
    assert start("--allow-host", "a.example", "--allow-host", "b.example:80")[1].hosts == ("a.example", "b.example:80")


def test_who_wants_it_open_is_warned(start):
    done, access = start("--no-token", R2MED_TOKEN="not used here")
    assert access.token is None
    assert done.output.splitlines()[0] == "http://127.0.0.1:8421  (Ctrl-C stops it)"
    assert "warning: without a token everybody on this machine" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0", "--no-token"), "would show everything to everybody"),
        (("--host", "192.168.1.5", "--no-token"), "would show everything to everybody"),
        (("--token", "short"), "at least 8 characters"),
        (("--token", ""), "at least 8 characters"),
        (("--allow-host", "https://hub.example/"), "is not a host name"),
        (("--allow-host", "*"), "is not a host name"),
        (("--token", "long enough", "--no-token"), "leave one of them out"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(start, arguments, words):
    done, access = start(*arguments)
    assert access is None
    assert isinstance(done.exception, R2medError)
    assert words in str(done.exception)


def test_another_address_always_has_a_token(start):
    done, access = start("--host", "0.0.0.0")
    assert access.token == kept_token()
    assert f"token={kept_token()}" in done.output
    assert access.goes_by(re.match(r"http://(.+?)/", done.output)[1])


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid", "." * 70])
def test_an_address_of_another_machine_is_told(host):
    done = CliRunner().invoke(program, ["serve", "--host", host, "--port", "8499"])
    assert isinstance(done.exception, R2medError)
    assert f"{host} is not an address of this machine" in str(done.exception)


def until_closed(connection: socket.socket) -> bytes:
    """All that a server sends before it closes a connection."""
    heard = b""
    while piece := connection.recv(65536):
        heard += piece
    return heard


def test_whoever_asks_for_nothing_is_let_go(filled, monkeypatch):
    monkeypatch.setattr(page_server, "_REQUEST_TIMEOUT", 0.3)
    monkeypatch.setattr(forms, "FORM_TIMEOUT", 0.3)
    head = f"Host: {{}}\r\nAuthorization: Bearer {TOKEN}\r\nOrigin: http://{{}}\r\n"
    with served(filled[0] / "ledger.sqlite") as own:
        host = own.removeprefix("http://")
        head = head.format(host, host)
        form = f"POST /progress/cancel HTTP/1.1\r\n{head}Connection: close\r\nContent-Length: 99\r\n\r\njob="
        asked = {"": b"", "GET /runs HTTP/1.1\r\nHost: x": b"", form: b"HTTP/1.1 400"}
        for words, answer in asked.items():
            with socket.create_connection(host.split(":"), timeout=10) as connection:
                connection.sendall(words.encode())
                heard = until_closed(connection)
            assert heard.startswith(answer), words
            assert bool(heard) == bool(answer)
        with socket.create_connection(host.split(":"), timeout=10) as connection:
            connection.sendall(f"GET /static/icon.svg HTTP/1.1\r\n{head}\r\n".encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.sendall(b"GET /sta")
            assert b"HTTP" not in until_closed(connection)
        with socket.create_connection(host.split(":"), timeout=10) as connection:
            connection.sendall(f"GET /progress/events HTTP/1.1\r\n{head}\r\n".encode())
            time.sleep(0.7)
            connection.setblocking(False)
            assert connection.recv(65536), "somebody who listens stays"

"""Goldens behind URLs: fsspec's memory file system, and a real S3 server where s3fs and moto are installed."""

import shutil
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import fsspec
import pytest
import torch

import pytest_tfdebug.goldens.fixture  # noqa: F401 - likewise
from pytest_tfdebug import GoldenError, trace
from pytest_tfdebug.goldens.golden_file import load, save
from pytest_tfdebug.goldens.place import GoldenPlace, RemoteDirectory

NAME = "test_it/test_port.safetensors"


@pytest.fixture(autouse=True)
def _own_memory():
    yield
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(scope="module")
def s3():
    """The URL of a bucket on an S3 server of this machine."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }.items():
            patch.setenv(name, value)
        fsspec.filesystem("s3").mkdir("goldens")
        yield "s3://goldens/port"
    server.stop()


@pytest.fixture(params=["memory", "s3"])
def url(request):
    return "memory://goldens" if request.param == "memory" else request.getfixturevalue("s3")


@pytest.fixture
def directory(url, tmp_path):
    directory = RemoteDirectory(url)
    files = directory._files
    if files.exists(directory._root):
        files.rm(directory._root, recursive=True)
        files.invalidate_cache()
    return directory


def write(tmp_path, text):
    file = tmp_path / "file"
    file.write_text(text)
    return file


def test_golden_is_put_read_and_replaced(directory, url, tmp_path):
    assert not directory.has(NAME)
    directory.put(NAME, write(tmp_path, "one"))
    one = directory.fetch(NAME).read_text()
    directory.put(NAME, write(tmp_path, "two"))
    two = directory.fetch(NAME).read_text()

    assert (one, two) == ("one", "two")
    assert RemoteDirectory(url).has(NAME)
    assert directory.named(NAME) == f"{url}/{NAME}"


def test_golden_is_read_once_in_a_run(directory, tmp_path, monkeypatch):
    directory.put(NAME, write(tmp_path, "one"))
    first = directory.fetch(NAME)
    monkeypatch.setattr(directory._files, "open", None)

    assert directory.fetch(NAME) == first


def test_copies_go_with_the_directory(url, tmp_path):
    directory = RemoteDirectory(url)
    directory.put(NAME, write(tmp_path, "one"))
    copy = directory.fetch(NAME)
    assert copy.exists()

    del directory

    assert not copy.exists()


def test_copies_last_where_fsspec_keeps_them(url, tmp_path, monkeypatch):
    monkeypatch.setitem(fsspec.config.conf, "filecache", {"cache_storage": str(tmp_path / "cache")})
    RemoteDirectory(url).put(NAME, write(tmp_path, "one"))
    cached = RemoteDirectory(f"filecache::{url}")

    assert cached.fetch(NAME).read_text() == "one"
    assert any(file.read_bytes() == b"one" for file in (tmp_path / "cache").iterdir())
    assert cached.named(NAME) == f"filecache::{url}/{NAME}"
    cached.put(NAME, write(tmp_path, "two"))
    assert RemoteDirectory(url).fetch(NAME).read_text() == "two"


def test_version_that_another_machine_wrote_is_read(directory, url, tmp_path):
    directory.put(NAME, write(tmp_path, "one"))
    RemoteDirectory(url).fetch(NAME)
    RemoteDirectory(url).put(NAME, write(tmp_path, "two"))

    assert RemoteDirectory(url).fetch(NAME).read_text() == "two"


#: What a server does to a golden: its status, what it sends of the bytes, whether it says how many, and what is told.
FAULTS = {
    "503": ("503 Service Unavailable", lambda _: b"", True, "cannot be read: "),
    "cut": ("200 OK", lambda body: body[:-9], False, "cannot be read: "),
    "half": ("200 OK", lambda body: body[: len(body) // 2], True, "is empty, truncated or not a saf"),
    "a page": ("200 OK", lambda _: b"<html>", True, "is empty, truncated or not a saf"),
    "a page as long": ("200 OK", lambda body: b"<html>".ljust(len(body)), True, "is empty, truncated or not a saf"),
    "a flipped bit": (
        "200 OK",
        lambda body: body[:-9] + bytes([body[-9] ^ 1]) + body[-8:],
        True,
        "Restore it from version control.",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_of_a_server_is_told_by_the_url_and_not_kept(s3, tmp_path, monkeypatch, fault):
    from moto.server import DomainDispatcherApplication

    status, sent, is_told, message = FAULTS[fault]
    real = DomainDispatcherApplication.__call__

    def faulty(app, environ, start):
        if environ["REQUEST_METHOD"] != "GET" or not environ["PATH_INFO"].endswith(".safetensors"):
            return real(app, environ, start)
        headers = []
        whole = b"".join(real(app, environ, lambda _status, given, *_: headers.extend(given)))
        length = len(sent(whole) if is_told else whole)
        others = [header for header in headers if header[0].lower() != "content-length"]
        start(status, [*others, ("Content-Length", str(length))])
        return [sent(whole)]

    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.filesystem("s3").clear_instance_cache()
    model = torch.nn.Linear(4, 4)
    save(tmp_path / "golden", trace(model, torch.ones(2, 4)), model, "test_it.py::test_port")
    RemoteDirectory(s3).put(NAME, tmp_path / "golden")

    monkeypatch.setattr(DomainDispatcherApplication, "__call__", faulty)
    with pytest.raises(GoldenError) as caught:
        GoldenPlace(RemoteDirectory(s3), NAME).read(load)
    monkeypatch.setattr(DomainDispatcherApplication, "__call__", real)

    assert str(caught.value).startswith(f"{s3}/{NAME} ")
    assert message in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    assert GoldenPlace(RemoteDirectory(s3), NAME).read(load).trace.calls


PAGE = b"<html><head><title>Sign in</title></head><body><a href='login'>Sign in</a></body></html>"


@pytest.fixture
def http():
    """A web server whose folders are pages without a link: what it answers by path, and its URL."""
    pytest.importorskip("aiohttp")
    answers = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            is_folder = not self.path.endswith(".safetensors")
            status, body = (200, PAGE) if is_folder else answers.get(self.path, (404, b""))
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if is_folder else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", sha256(body).hexdigest())
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self):
            self.do_GET()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield answers, f"http://127.0.0.1:{server.server_port}/goldens"
        server.shutdown()


def test_web_server_is_asked_for_the_golden_and_for_its_version(http, tmp_path):
    answers, url = http
    path = f"/goldens/{NAME}"

    def told():
        directory = RemoteDirectory(url)
        directory._files.invalidate_cache()
        try:
            return directory.has(NAME) and directory.fetch(NAME).read_text()
        except GoldenError as error:
            return str(error)

    with pytest.raises(GoldenError, match=r"^http://127\.0\.0\.1:9/goldens/\S+ cannot be read: Cannot connect to host"):
        RemoteDirectory("http://127.0.0.1:9/goldens").has(NAME)
    assert told() is False
    for version in ("one", "two"):
        answers[path] = (200, version.encode())
        assert told() == version
    answers[path] = (503, b"")
    assert told().startswith(f"{url}/{NAME} cannot be read: 503, message='Service Unavailable'")


def test_write_that_fails_leaves_the_old_golden(directory, url, tmp_path, monkeypatch):
    directory.put(NAME, write(tmp_path, "one"))

    def half(source, target, length):
        target.write(b"tw")
        raise ConnectionError("the network is down")

    monkeypatch.setattr(shutil, "copyfileobj", half)
    with pytest.raises(GoldenError) as caught:
        directory.put(NAME, write(tmp_path, "two"))
    monkeypatch.undo()

    assert str(caught.value) == f"{url}/{NAME} cannot be written: the network is down"
    assert RemoteDirectory(url).fetch(NAME).read_text() == "one"


def test_git_lfs_pointer_behind_a_url_is_named_by_its_url(directory, url, tmp_path):
    directory.put(NAME, write(tmp_path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"))

    with pytest.raises(GoldenError) as caught:
        directory.fetch(NAME)
    assert str(caught.value) == (
        f"{url}/{NAME} is a git-lfs pointer: the golden itself was not downloaded.\nTo download it, run: git lfs pull"
    )


def test_staged_golden_begins_as_the_old_one_and_is_put_if_changed(directory, tmp_path, monkeypatch):
    place = GoldenPlace(directory, NAME)
    directory.put(NAME, write(tmp_path, "one"))
    puts = []
    monkeypatch.setattr(RemoteDirectory, "put", lambda self, name, file: puts.append((name, file.read_text())))

    with place.staged() as file:
        assert file.read_text() == "one"
    with place.staged() as file:
        file.write_text("three")

    assert puts == [(NAME, "three")]


def test_what_cannot_be_reached_is_named_by_its_url(tmp_path, s3, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    with pytest.raises(GoldenError, match=r"^s3://nowhere/goldens/\S+ cannot be written: "):
        RemoteDirectory("s3://nowhere/goldens").put(NAME, write(tmp_path, "one"))


@pytest.mark.parametrize(
    ("url", "told"),
    [("nothing://goldens", "nothing://goldens cannot be reached: Protocol not known: nothing")],
)
def test_url_that_no_library_knows_is_refused(url, told, tmp_path):
    with pytest.raises(GoldenError) as caught:
        RemoteDirectory(url)
    assert str(caught.value).startswith(told)


def test_credentials_in_a_url_are_not_shown(tmp_path):
    directory = RemoteDirectory("memory://user:pass@goldens")

    assert "pass" not in directory.named(NAME)


SUITE = """
import torch

def test_port(tf_golden):
    torch.manual_seed(0)
    tf_golden.check(torch.nn.Linear(4, 4), torch.ones(2, 4))
"""


def test_run_records_and_checks_behind_a_url(pytester, s3, tmp_path, monkeypatch):
    pytester.makepyfile(test_it=SUITE)
    pytester.makeini(f"[pytest]\ntf_golden_dir = {s3}/run")

    def run(*arguments):
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    missing = run()
    recorded = run("--tf-golden=update")
    checked = run()
    again = run("--tf-golden=update")

    missing.stdout.fnmatch_lines([f"*has no golden yet: {s3}/run/test_it/test_port.safetensors does not exist."])
    recorded.stdout.fnmatch_lines(["1 new", f"  new      {s3}/run/test_it/test_port.safetensors"])
    checked.assert_outcomes(passed=1)
    again.stdout.fnmatch_lines(["1 unchanged"])
    assert not (pytester.path / "goldens").exists()

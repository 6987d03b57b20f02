"""What the hub answers when it refuses, from a hub of our own on this machine; after the fix the call succeeds."""

import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TESTS = """
    import time
    from huggingface_hub import HfApi
    from transformers import AutoConfig

    time.sleep = lambda _seconds: None  # the hub's client waits before it asks again

    def test_unknown():
        AutoConfig.from_pretrained("org/tinny")

    def test_unknown_fixed():
        assert AutoConfig.from_pretrained("org/tiny").model_type == "llama"

    def test_revision():
        AutoConfig.from_pretrained("org/tiny", revision="v9")

    def test_gated():
        AutoConfig.from_pretrained("org/gated")

    def test_gated_fixed():
        assert AutoConfig.from_pretrained("org/gated", token="hf_accessgranted").model_type == "llama"

    def test_limited():
        AutoConfig.from_pretrained("org/limited")

    def test_down():
        AutoConfig.from_pretrained("org/down")

    def test_down_directly():
        HfApi().model_info("org/down")

    def test_file():
        from transformers.utils import cached_file
        cached_file("org/tiny", "weights.bin")
"""


class Hub(BaseHTTPRequestHandler):
    """A hub with one open and one gated repository, each holding a config."""

    config = b""

    def do_HEAD(self):
        self.answer(b"")

    def do_GET(self):
        self.answer(self.config)

    def answer(self, body):
        status, code = self.verdict()
        self.send_response(status)
        self.send_header("X-Repo-Commit", COMMIT)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
        else:
            self.send_header("ETag", f'"{sha256(self.config).hexdigest()}"')
        self.send_header("Content-Length", "0" if code or status != 200 else str(len(self.config)))
        self.end_headers()
        self.wfile.write(b"" if code else body)

    def verdict(self):
        repository, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        if repository.endswith(("org/limited", "org/down")):
            return (429 if repository.endswith("limited") else 503), ""
        if repository == "org/gated" and "Authorization" not in self.headers:
            return 403, "GatedRepo"
        if repository not in {"org/tiny", "org/gated"}:
            return 401, "RepoNotFound"
        if revision not in {"main", COMMIT}:
            return 404, "RevisionNotFound"
        return (200, "") if file == "config.json" else (404, "EntryNotFound")

    def log_message(self, *_args):
        """Stay silent."""


@pytest.fixture
def hub(llama, monkeypatch):
    """The address of the hub, on this machine."""
    monkeypatch.setattr(Hub, "config", (llama / "config.json").read_bytes())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.nightly
def test_refusals_of_the_hub_are_told_apart(pytester, hub, monkeypatch, tmp_path):
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    pytester.makepyfile(test_hub=TESTS)

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    result.assert_outcomes(passed=2, failed=7)
    result.stdout.fnmatch_lines(
        [
            "*_ test_unknown _*",
            "bucket: download/cache (in call)",
            "what happened: the hub has no repository org/tinny, or hides it from this account.",
            'smallest fix: correct the id in: AutoConfig.from_pretrained("org/tinny")',
            "next step: hf auth whoami    # private repositories need: hf auth login",
            "*_ test_revision _*",
            "what happened: org/tiny has no revision v9.",
            f"  cached revisions of org/tiny: {COMMIT[:12]} (main)",
            f'smallest fix: pass revision="{COMMIT}": the cache holds that one',
            "*_ test_gated _*",
            "what happened: org/gated is gated, and this account has no access to it.",
            "smallest fix: request access at https://huggingface.co/org/gated, then: hf auth login",
            "*_ test_limited _*",
            "what happened: the hub refused config.json of org/limited (revision main): too many requests (429).",
            "smallest fix: hf download org/limited    # once, then HF_HUB_OFFLINE=1 pytest test_hub.py::test_limited",
            "*_ test_down _*",
            "what happened: the hub answered config.json of org/down (revision main) with a server error.",
            "*_ test_down_directly _*",
            "what happened: the hub answered org/down (revision main) with a server error.",
            "*_ test_file _*",
            "what happened: org/tiny has no file weights.bin.",
        ]
    )

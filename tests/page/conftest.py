"""Pages of a real run, and a browser that has no network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "docs" / "images"


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A directory of pages, ``checks.json`` beside them, of a run with failures and passes."""
    made = os.environ.get("TFDEBUG_SITE")  # of an earlier run, while the pages themselves are worked on
    if made:
        return Path(made)
    folder = tmp_path_factory.mktemp("run")
    suite = [sys.executable, "-m", "pytest", "tests/page/suite/checks.py", "-q", "-p", "no:cacheprovider"]
    suite += [f"--tf-golden-dir={folder / 'goldens'}"]
    run = {"cwd": REPOSITORY, "capture_output": True, "text": True}
    subprocess.run(
        [*suite, "--tf-golden=update", "-k", "port or regression or residual or scale or activation or weight"],
        **run,
        check=False,
    )
    done = subprocess.run(
        [*suite, f"--tf-html={folder / 'page'}", f"--tf-json={folder / 'checks.json'}", "--tf-json-forward"],
        **run,
        check=False,
    )
    assert "passed" in done.stdout, done.stdout + done.stderr
    return folder / "page"


@pytest.fixture(scope="session")
def checks(site):
    """The records behind the pages, by the name of their test."""
    document = json.loads((site.parent / "checks.json").read_text())
    return {check["test"].rpartition("::")[2]: check for check in document["checks"]}


@pytest.fixture(scope="session")
def chromium():
    """The browser of the system; nothing is downloaded."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "No Chromium: `make test-page` installs it, or `apt-get install chromium`."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Sight:
    """A tab, and whatever went wrong in it."""

    def __init__(self, browser, **context):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self.context.add_init_script(
            "window.copied = []; Object.defineProperty(navigator, 'clipboard',"
            "{value: {writeText: async (text) => { window.copied.push(text); }}});"
        )
        self.page = self.context.new_page()
        self.wrong = []
        self.page.on(
            "console", lambda message: message.type in {"error", "warning"} and self.wrong.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("requestfailed", lambda request: self.wrong.append(f"failed {request.url}"))
        self.page.on(
            "request", lambda request: request.url.startswith(("file:", "data:")) or self.wrong.append(request.url)
        )

    def open(self, file, fragment=""):
        self.page.goto(Path(file).as_uri() + fragment)
        return self.page


@pytest.fixture
def sight(chromium):
    """Open pages; whatever the console says of an error fails the test."""
    made = []

    def look(**context):
        made.append(Sight(chromium, **context))
        return made[-1]

    yield look
    for each in made:
        each.context.close()
    assert [text for each in made for text in each.wrong] == []


@pytest.fixture
def picture():
    """Keep a picture for the documentation where ``TFDEBUG_PICTURES`` asks for it."""

    def keep(page, name, **options):
        if os.environ.get("TFDEBUG_PICTURES"):
            IMAGES.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=IMAGES / f"{name}.png", **options)

    return keep

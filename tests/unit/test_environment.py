import json
import os
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from pytest_tfdebug.environment import cache_locations, environment, lines, printable, redact
from pytest_tfdebug.goldens.golden_file import changed_environment


def test_environment_is_json():
    described = environment()

    assert json.loads(json.dumps(described)) == described


def test_two_calls_agree():
    assert environment() == environment()


def test_flags_of_torch_are_those_in_force():
    described = environment()

    assert described["default_dtype"] == str(torch.get_default_dtype()).removeprefix("torch.")
    assert described["threads"] == {"intra": torch.get_num_threads(), "inter": torch.get_num_interop_threads()}
    assert described["deterministic"]["algorithms"] == torch.are_deterministic_algorithms_enabled()
    assert described["tf32"]["matmul_precision"] == torch.get_float32_matmul_precision()


def test_attention_implementation_is_the_models():
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation="sdpa"))

    assert environment(model)["attention_implementation"] == "sdpa"
    assert environment()["attention_implementation"] is None


def test_git_and_driver_are_asked_only_on_request(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_kwargs: pytest.fail("a process was started"))

    described = environment()

    assert (described["git_commit"], described["git_dirty"], described["driver"]) == (None, None, None)


def test_git_state_is_that_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "tester")
    (tmp_path / "file").write_text("one")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"]):
        subprocess.run(["git", *command], check=True)  # noqa: S607 - whichever git there is

    clean = environment(with_git=True)
    (tmp_path / "file").write_text("two")
    dirty = environment(with_git=True)

    assert len(clean["git_commit"]) == 40
    assert clean["git_dirty"] is False
    assert dirty["git_dirty"] is True


def test_git_runs_no_program_of_the_repository_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    (tmp_path / "file").touch()
    for command in ("init -q", "add file", f"config core.fsmonitor {program}"):
        subprocess.run(["git", *command.split()], check=True)  # noqa: S607 - whichever git there is
    who = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "core.fsmonitor=false"]
    subprocess.run(["git", *who, "commit", "-qm", "first"], check=True)  # noqa: S607
    os.utime(tmp_path / "file", (1, 1))  # git would note the new time in its index
    index = (tmp_path / ".git" / "index").read_bytes()

    assert environment(with_git=True)["git_dirty"] is True

    assert not (tmp_path / "ran").exists()
    assert (tmp_path / ".git" / "index").read_bytes() == index


def test_outside_of_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    assert environment(with_git=True)["git_commit"] is None


def test_driver_is_read_from_its_tool(monkeypatch):
    answer = "NVIDIA H100 80GB HBM3, 560.35.03\nNVIDIA H100 80GB HBM3, 560.35.03\n"
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_kwargs: SimpleNamespace(stdout=answer))

    described = environment(with_driver=True)

    assert described["gpu"] == ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"]
    assert described["driver"] == "560.35.03"


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from pytest_tfdebug.environment import environment; environment(); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )

    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()

    assert not {"torch", "transformers", "numpy", "huggingface_hub"} & set(loaded)


def test_cache_follows_the_variables(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", None)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_locations()["in force"] == "/xdg/huggingface/hub"
    monkeypatch.setenv("HF_HOME", "/home/hf")
    assert cache_locations()["in force"] == "/home/hf/hub"
    monkeypatch.setenv("HF_HUB_CACHE", "/cache")
    assert cache_locations()["in force"] == "/cache"


def test_lines_leave_out_what_is_not_known():
    shown = list(lines(environment()))

    assert f"torch: {version('torch')}" in shown
    assert not any(line.startswith(("git_commit", "driver")) for line in shown)


def test_control_characters_are_written_out():
    assert printable("a\x1b[31mb\nc\u202e") == r"a\x1b[31mb\nc\u202e"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("token=hf_abcdefghijkl", "token=***"),
        ("see hf_abcdefghijkl", "see hf_***"),
        ("https://user:password@host/path", "https://***@host/path"),
        ("https://user:p@ss@host/path", "https://***@host/path"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: ***"),
        ("{'token': 'abcdef'}", "{'token': '***'}"),
        ("HF_TOKEN=abc", "HF_TOKEN=***"),
        ("https://host/file?signature=abc&x=1", "https://host/file?signature=***&x=***"),
        ("pad_token=[PAD], token=True, max_token: 3", "pad_token=[PAD], token=True, max_token: 3"),
        ("passing `token=<your_token>`", "passing `token=<your_token>`"),
    ],
)
def test_secrets_are_taken_out_and_the_rest_stays(text, expected):
    assert redact(text) == expected


def test_value_of_a_secret_variable_is_taken_out_wherever_it_stands(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "plainvalue")

    assert redact("a/plainvalue/b") == "a/***/b"


def test_variable_about_a_tokenizer_is_no_secret(monkeypatch):
    monkeypatch.setenv("TOKENIZER_PATH", "/data/llama")

    assert redact("/data/llama/config.json") == "/data/llama/config.json"


def test_port_that_has_no_choice_of_attention_has_not_changed_it():
    recorded = {"attention_implementation": "sdpa", "torch": "2.12.0"}

    assert list(changed_environment(recorded, {"attention_implementation": None, "torch": "2.13.0"})) == [
        "torch 2.12.0 -> 2.13.0"
    ]
    assert list(changed_environment(recorded, {"attention_implementation": "eager", "torch": "2.12.0"})) == [
        "attention_implementation sdpa -> eager"
    ]

"""The switches for a second look: ``--tf-offline``, ``--tf-device``, ``--tf-sync-cuda``."""

import os

import huggingface_hub.constants
import pytest
import torch


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    """No setting of the machine that the tests run on."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "CUDA_LAUNCH_BLOCKING"):
        monkeypatch.delenv(name, raising=False)


def test_offline_is_set_before_a_conftest_and_access_fails_at_once(pytester, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    pytester.makeconftest(
        """
        import os

        SEEN = {name: os.environ.get(name) for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}

        import huggingface_hub.constants
        assert huggingface_hub.constants.HF_HUB_OFFLINE

        def pytest_report_header():
            return f"seen: {SEEN}"
        """
    )
    pytester.makepyfile(
        """
        import socket
        from huggingface_hub import HfApi, hf_hub_download
        from transformers import AutoModel

        def reach_out(*_arguments, **_options):
            raise RuntimeError("the network was tried")

        socket.getaddrinfo = reach_out

        def test_model():
            AutoModel.from_pretrained("org/tiny", revision="v2")

        def test_file():
            hf_hub_download("org/tiny", "weights.bin")

        def test_api():
            HfApi().model_info("org/tiny")
        """
    )

    result = pytester.runpytest_subprocess("--tf-offline", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(
        [
            "seen: {'HF_HUB_OFFLINE': '1', 'TRANSFORMERS_OFFLINE': '1'}",
            "what happened: config.json of org/tiny (revision v2) is not in the cache, and offline mode *",
            "what happened: weights.bin of org/tiny (revision main) is not in the cache, and offline mode *",
            "what happened: the hub was asked for org/tiny *",
        ]
    )
    assert "Error: the network was tried" not in result.stdout.str()


def test_offline_reaches_a_hub_that_was_imported_before(pytester):
    pytester.makepyfile(
        """
        import huggingface_hub
        from transformers.utils import hub

        def test_it():
            assert hub.is_offline_mode()
            assert huggingface_hub.constants.HF_HUB_OFFLINE
        """
    )

    pytester.runpytest("--tf-offline", "-p", "no:cacheprovider").assert_outcomes(passed=1)

    assert not huggingface_hub.constants.HF_HUB_OFFLINE


def test_offline_reaches_workers(pytester):
    pytester.makepyfile("import os\n\ndef test_it():\n    assert os.environ['HF_HUB_OFFLINE'] == '1'\n")

    pytester.runpytest_subprocess("--tf-offline", "-n", "1", "-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_settings_are_taken_back_after_the_run(pytester):
    pytester.makepyfile("def test_it():\n    pass\n")
    before = os.environ.keys() - {"PYTEST_CURRENT_TEST"}

    pytester.runpytest("--tf-offline", "--tf-device=cpu", "--tf-sync-cuda", "-p", "no:cacheprovider")

    assert os.environ.keys() - {"PYTEST_CURRENT_TEST"} == before


@pytest.mark.nightly
def test_cpu_hides_the_gpus_and_launches_block_from_the_first(pytester):
    pytester.makeconftest(
        """
        import os

        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        assert os.environ["CUDA_LAUNCH_BLOCKING"] == "1"
        """
    )
    pytester.makepyfile(
        """
        import os
        import torch

        def test_it():
            assert not torch.cuda.is_available()
            assert os.environ["TRANSFORMERS_TEST_DEVICE"] == "cpu"
        """
    )

    result = pytester.runpytest_subprocess("--tf-device=cpu", "--tf-sync-cuda", "-p", "no:cacheprovider")

    result.assert_outcomes(passed=1)


def test_auto_leaves_the_devices_alone(pytester, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pytester.makepyfile("import os\n\ndef test_it():\n    assert 'CUDA_VISIBLE_DEVICES' not in os.environ\n")

    pytester.runpytest("--tf-device=auto", "-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_that_is_not_there_is_refused(pytester):
    result = pytester.runpytest("--tf-device=cuda")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --tf-device=cuda, and no CUDA device is available: torch * is built with*. Use --tf-device=cpu or auto."
        ]
    )


@pytest.mark.parametrize("flag", ["--tf-sync-cuda", "--tf-device=cpu"])
def test_cuda_that_has_started_is_a_clear_error(pytester, monkeypatch, flag):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    result = pytester.runpytest(flag)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: {flag} comes too late: CUDA has already started in this process (*). A plugin or an earlier import *"]
    )

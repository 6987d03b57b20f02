"""Real failures of the bucket ``download/cache``; after the fix that triage names, the failing call succeeds."""

import shutil

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from transformers import AutoFeatureExtractor, AutoModel, AutoTokenizer, LlamaForCausalLM
from transformers.utils import cached_file

#: transformers 4 fails otherwise, or not at all, where these do.
ONLY_5 = pytest.mark.skipif(transformers.__version__ < "5", reason="transformers 4 does this otherwise")

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 4096\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub, and no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path / "hub"), raising=False)
    monkeypatch.setattr("transformers.utils.hub._is_offline_mode", True, raising=False)
    return tmp_path / "hub"


@pytest.fixture
def fill_cache(cache, llama):
    """Put the tiny model into the cache, as a download of one revision does."""

    def fill(repo, commit=COMMIT, ref="main"):
        folder = cache / f"models--{repo.replace('/', '--')}"
        shutil.copytree(llama, folder / "snapshots" / commit)
        if ref:
            (folder / "refs").mkdir(parents=True, exist_ok=True)
            (folder / "refs" / ref).write_text(commit)

    return fill


@pytest.fixture
def copy(llama, tmp_path):
    return shutil.copytree(llama, tmp_path / "copy")


def test_model_that_is_not_cached_names_the_file_and_the_download(triage_of, cache, fill_cache):
    def load():
        return AutoModel.from_pretrained("org/tiny")

    finding = triage_of(load)

    assert finding.rule == "hub-local-files-only"
    assert finding.bucket == "download/cache"
    assert (
        finding.what
        == "config.json of org/tiny (revision main) is not in the cache, and offline mode keeps the call from the hub."
    )
    assert finding.fix == "hf download org/tiny    # once, with a network and HF_HUB_OFFLINE=0"
    assert finding.facts[0] == "cached revisions of org/tiny: none"
    assert f"cache: {cache}; settings: " in finding.facts[1]
    assert "offline mode is on in huggingface_hub.constants" in finding.facts[1]

    fill_cache("org/tiny")  # what the download does
    assert load() is not None


def test_revision_that_is_not_cached_names_the_one_that_is(triage_of, fill_cache):
    fill_cache("org/tiny")

    finding = triage_of(lambda: AutoModel.from_pretrained("org/tiny", revision="v2"))

    assert finding.fix == f'pass revision="{COMMIT}": the cache holds that one'
    assert finding.facts[0] == "cached revisions of org/tiny: 0123456789ab (main)"
    assert AutoModel.from_pretrained("org/tiny", revision=COMMIT) is not None


def test_cached_revision_without_the_file_is_not_offered(triage_of, fill_cache):
    fill_cache("org/tiny")

    finding = triage_of(lambda: hf_hub_download("org/tiny", "weights.bin", revision="v2"))

    assert finding.facts[0] == "cached revisions of org/tiny: 0123456789ab (main, without weights.bin)"
    assert finding.fix.startswith("hf download org/tiny --revision v2 ")


@pytest.mark.usefixtures("cache")
def test_local_files_only_is_named_when_the_call_says_it(triage_of, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)

    finding = triage_of(lambda: AutoModel.from_pretrained("org/tiny", local_files_only=True))

    assert finding.rule == "hub-local-files-only"
    assert finding.what.endswith("and this call forbids the hub with local_files_only=True.")


@pytest.mark.usefixtures("cache")
def test_file_of_a_dataset_is_downloaded_as_one(triage_of):
    finding = triage_of(lambda: hf_hub_download("org/data", "train.csv", repo_type="dataset"))

    assert finding.what.startswith("train.csv of org/data (revision main) is not in the cache")
    assert finding.fix.startswith("hf download org/data --repo-type dataset ")


@pytest.mark.usefixtures("cache")
def test_snapshot_that_is_not_cached(triage_of):
    finding = triage_of(lambda: snapshot_download("org/tiny", revision="v1"))

    assert finding.bucket == "download/cache"
    assert finding.fix.startswith("hf download org/tiny --revision v1 ")


@pytest.mark.usefixtures("cache")
def test_tokenizer_that_is_not_cached(triage_of):
    finding = triage_of(lambda: AutoTokenizer.from_pretrained("org/tiny"))

    assert finding.bucket == "download/cache"
    assert "org/tiny" in finding.what


def test_path_that_does_not_exist_names_the_nearest_one(triage_of, llama):
    finding = triage_of(lambda: AutoModel.from_pretrained(str(llama.parent / "lama")))

    assert finding.rule == "missing-local-path"
    assert finding.what == f"the local path {llama.parent}/lama does not exist, so it was taken for a repository id."
    assert finding.fix == f"use {llama}"
    assert finding.facts == (f"{llama.parent} holds: llama",)
    assert AutoModel.from_pretrained(llama) is not None


def test_path_of_a_wrapped_failure_is_corrected_where_it_was_given(triage_of, tmp_path):
    def load():
        try:
            return AutoModel.from_pretrained(str(tmp_path / "nothing"))
        except OSError as error:
            raise RuntimeError("the port could not be loaded") from error

    finding = triage_of(load)

    assert finding.rule == "missing-local-path"
    assert finding.fix.endswith('in: return AutoModel.from_pretrained(str(tmp_path / "nothing"))')


def test_address_of_a_page_is_answered_with_the_repository_id(triage_of):
    finding = triage_of(lambda: AutoModel.from_pretrained("https://huggingface.co/org/tiny/tree/main"))

    assert finding.rule == "missing-local-path"
    assert finding.what == "https://huggingface.co/org/tiny/tree/main is the address of a page, not a repository id."
    assert 'AutoModel.from_pretrained("org/tiny")' in finding.fix


def test_file_that_a_directory_lacks_lists_what_it_holds(triage_of, llama):
    finding = triage_of(lambda: cached_file(str(llama), "weights.bin"))

    assert finding.rule == "hub-missing-file"
    assert finding.facts == ("the directory holds: config.json, generation_config.json, model.safetensors",)
    assert finding.then == f"ls {llama}"


def test_api_of_the_hub_that_is_offline(triage_of, cache):
    finding = triage_of(lambda: HfApi().model_info("org/tiny"))

    assert finding.rule == "hub-offline"
    assert finding.what == "the hub was asked for org/tiny (revision main), and offline mode forbids it."
    assert finding.fix.startswith(
        "HF_HUB_OFFLINE=0 pytest tests/test_model.py::test_it    # the cache does not answer: "
    )
    assert f"cache: {cache}" in finding.facts[-1]


def test_id_that_cannot_be_one(triage_of):
    finding = triage_of(lambda: AutoModel.from_pretrained("my model!"))

    assert finding.what == "my model! is neither a directory nor a valid repository id."


@pytest.mark.parametrize(
    ("spoil", "verdict", "fix"),
    [
        (
            lambda file: file.write_text(POINTER),
            "a Git LFS pointer (73 bytes)",
            "git -C {0} lfs pull --include {1}",
        ),
        (
            lambda file: file.write_text("<!DOCTYPE html><html><body>log in</body></html>" + " " * 500),
            "a web page (HTML), 547 bytes: the download got an error or login page",
            "hf download REPO {1} --local-dir {0} --force-download",
        ),
        (lambda file: file.write_bytes(b""), "empty, 0 bytes", "hf download REPO {1} --local-dir {0} --force-download"),
        (
            lambda file: file.write_bytes(file.read_bytes()[:-100]),
            "damaged or cut off at {less} bytes (Error while deserializing header: ",
            "hf download REPO {1} --local-dir {0} --force-download",
        ),
        (
            lambda file: file.write_bytes(file.read_bytes()[:200]),
            "damaged or cut off at 200 bytes (Error while deserializing header: ",
            "hf download REPO {1} --local-dir {0} --force-download",
        ),
    ],
    ids=["pointer", "page", "empty", "truncated", "truncated header"],
)
def test_bad_safetensors_file_says_what_it_is(triage_of, copy, spoil, verdict, fix):
    file = copy / "model.safetensors"
    sound = file.read_bytes()
    spoil(file)

    finding = triage_of(lambda: AutoModel.from_pretrained(copy))

    assert finding.rule == "bad-safetensors"
    expected = verdict.format(less=len(sound) - 100)
    assert finding.what.startswith(f"{file} is {expected}")
    assert finding.fix == fix.format(copy, "model.safetensors")
    assert finding.then == f"head -c 200 {file}"
    file.write_bytes(sound)
    assert AutoModel.from_pretrained(copy) is not None


def test_bad_file_of_the_cache_is_downloaded_from_its_repository(triage_of, cache, fill_cache):
    fill_cache("org/tiny")
    (cache / "models--org--tiny" / "snapshots" / COMMIT / "model.safetensors").write_text(POINTER)

    finding = triage_of(lambda: AutoModel.from_pretrained("org/tiny"))

    assert finding.rule == "bad-safetensors"
    assert finding.fix == f"hf download org/tiny model.safetensors --revision {COMMIT} --force-download"


@pytest.mark.parametrize("content", [POINTER, "<!DOCTYPE html><html></html>"], ids=["pointer", "page"])
def test_bad_pickle_is_not_answered_with_unsafe_loading(triage_of, copy, content):
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_text(content)

    finding = triage_of(lambda: AutoModel.from_pretrained(copy))

    assert finding.rule == "bad-pickle"
    assert "pytorch_model.bin is a" in finding.what
    assert "weights_only" not in finding.fix + finding.then


def test_truncated_archive(triage_of, copy):
    (copy / "model.safetensors").unlink()
    torch.save({"weight": torch.zeros(1000)}, copy / "pytorch_model.bin")
    data = (copy / "pytorch_model.bin").read_bytes()
    (copy / "pytorch_model.bin").write_bytes(data[: len(data) // 2])

    finding = triage_of(lambda: AutoModel.from_pretrained(copy))

    assert finding.rule == "bad-archive"
    assert "cut off: a zip archive" in finding.what


def test_missing_shard_is_named(triage_of, llama, tmp_path):
    LlamaForCausalLM.from_pretrained(llama).save_pretrained(tmp_path / "sharded", max_shard_size="5KB")
    shard = min((tmp_path / "sharded").glob("model-*-of-*.safetensors"))
    moved = shard.rename(tmp_path / "elsewhere")

    finding = triage_of(lambda: AutoModel.from_pretrained(tmp_path / "sharded"))

    assert finding.rule == "missing-shard"
    assert finding.what == f"the checkpoint's index names {shard}, and it is not there."
    moved.rename(shard)
    assert AutoModel.from_pretrained(tmp_path / "sharded") is not None


def test_directory_without_weights_lists_what_it_holds(triage_of, copy):
    weights = copy / "model.safetensors"
    sound = weights.read_bytes()
    weights.unlink()

    finding = triage_of(lambda: AutoModel.from_pretrained(copy))

    assert finding.rule == "missing-weights"
    assert finding.what == f"{copy} has no weights file."
    assert finding.facts == ("the directory holds: config.json, generation_config.json",)
    weights.write_bytes(sound)
    assert AutoModel.from_pretrained(copy) is not None


def test_config_that_is_no_json(triage_of, copy):
    sound = (copy / "config.json").read_text()
    (copy / "config.json").write_text("<html>")

    finding = triage_of(lambda: AutoModel.from_pretrained(copy))

    assert finding.rule == "bad-config-json"
    assert finding.then == f"python -m json.tool {copy}/config.json"
    (copy / "config.json").write_text(sound)
    assert AutoModel.from_pretrained(copy) is not None


def test_directory_without_a_feature_extractor(triage_of, llama):
    finding = triage_of(lambda: AutoFeatureExtractor.from_pretrained(llama))

    assert finding.rule == "missing-preprocessor-files"
    assert finding.what == f"{llama} has no file of the feature extractor."


def test_hub_that_cannot_be_reached(triage_of, cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    getattr(huggingface_hub.utils, "reset_sessions", lambda: None)()  # before 1.0 a session stays as offline as it was

    finding = triage_of(lambda: hf_hub_download("org/tiny", "x.bin", endpoint="http://127.0.0.1:9", cache_dir=cache))

    assert finding.rule == "hub-unreachable"
    assert finding.what == "the hub could not be reached, and x.bin of org/tiny (revision main) is not in the cache."
    assert finding.fix.startswith("hf download org/tiny    # once, with a network; then HF_HUB_OFFLINE=1 pytest ")


@ONLY_5
def test_directory_without_tokenizer(triage_of, llama):
    finding = triage_of(lambda: AutoTokenizer.from_pretrained(llama))

    assert finding.rule == "missing-tokenizer-files"
    assert finding.bucket == "download/cache"

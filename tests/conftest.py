"""Settings of all tests, and the failures that triage is tested on."""

import gc
import os
import sys

import pytest
from _pytest.pytester import SysModulesSnapshot
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none

pytest_plugins = ["pytester"]

# The models are tiny: more threads than one cost more than they give, most of all under pytest-xdist. It is also for the
# processes that tests start, and stands before torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests leave the number of examples and the deadline to the profile. No example fails for a slow machine.
settings.register_profile(
    "gate", max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fuzz", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate")


@pytest.hookimpl(trylast=True)
def pytest_configure():
    """Give a test the same examples in every run: newer versions also draw constants of the modules loaded so far."""
    providers = sys.modules.get("hypothesis.internal.conjecture.providers")
    if settings.default.derandomize and hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = providers.Constants


def pytest_collection_finish():
    """Keep what is loaded for good out of every look for garbage: it takes half a second, and some tests look often.

    Hypothesis looks at its first example who holds NumPy's generator, and would not find what is kept out.
    """
    given(none())(lambda _nothing: None)()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_summary_everywhere(monkeypatch):
    """Let pytest's short summary be short on a CI server too, where it repeats whole failures, and of one width."""
    for name in ("CI", "BUILD_NUMBER", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _plugins_of_inner_runs(request, monkeypatch):
    """Keep plugins out of the runs inside tests that change the order of tests, or how they are shown, or take long to load.

    Hypothesis takes as long to load as torch, at the first report of every run in a process of its own.
    """
    if "pytester" in request.fixturenames:
        request.getfixturevalue("pytester")  # it takes away what the variable held
    names = ("randomly", "random_order", "sugar", "rich", "asyncio", "anyio", "hypothesispytest")
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in names))


#: Packages that a run inside of a test's process leaves loaded: parts of torch cannot be imported twice.
_KEPT_LOADED = frozenset({"functorch", "numpy", "torch", "transformers"})


@pytest.fixture(autouse=True, scope="session")
def _torch_stays_loaded():
    taken = SysModulesSnapshot.__init__

    def take(self, preserve=None):
        taken(self, lambda name: name.partition(".")[0] in _KEPT_LOADED or bool(preserve and preserve(name)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SysModulesSnapshot, "__init__", take)
        yield


@pytest.fixture(autouse=True)
def _files_as_written(monkeypatch):
    """Write no bytecode: a file that a test writes twice in a second, at one length, would be read as it was."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def _raised(told, *_more, exc_info=None):
    if "search for a proof" in told:  # so that no test passes without the proof that it is about
        raise exc_info


@pytest.fixture(autouse=True, scope="session")
def _no_proofs():
    """Try no changes of models that fail: it takes seconds for each, and tests/unit/test_proof.py is about it.

    Where they are made, one that fails is an error, and a machine with much else to do goes on as far as another.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "torch" in sys.modules:
            patch.setattr("pytest_tfdebug.parity.proof.prove.SECONDS", 0)
            patch.setattr("pytest_tfdebug.parity.proof.budget.WAITING", 100.0)
            patch.setattr("pytest_tfdebug.errors.logger.debug", _raised)
        yield


@pytest.fixture
def one_thread():
    """Let torch compute on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def triage_of():
    """Return a function that makes a call fail and returns what triage finds, None where it finds nothing."""
    from pytest_tfdebug.triage.plugin import classify
    from pytest_tfdebug.triage.rules import Failure

    def find(call, phase="call"):
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - whatever fails
            return classify(Failure.of(error, "tests/test_model.py::test_it", phase))
        pytest.fail("the call did not fail")

    return find


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """A directory with a tiny Llama for causal language modelling: 32 ids, 2 layers, without a tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    directory = tmp_path_factory.mktemp("checkpoints") / "llama"
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A directory with a tiny BERT for the classification of sequences: 32 ids, 2 layers, 2 labels."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
    directory = tmp_path_factory.mktemp("checkpoints") / "bert"
    BertForSequenceClassification(config).save_pretrained(directory)
    return directory


#: What is said of a search that raised: a report goes without it, and nobody would see that it was lost.
_LOST = ("The search for a proof failed", "the search for every fault failed")


@pytest.fixture(autouse=True)
def _no_search_is_lost(request, monkeypatch):
    """Fail where an explanation raised that no report shows, unless a test asks for that by a marker."""
    lost = []
    for name in ("pytest_tfdebug.errors", "pytest_tfdebug.parity.find.several"):
        logger = getattr(sys.modules.get(name), "logger", None)
        if logger is not None:

            def debug(told, *args, heard=logger.debug, **more):
                if str(told).startswith(_LOST):
                    lost.append(f"{told}: {sys.exc_info()[1]!r}")
                heard(told, *args, **more)

            monkeypatch.setattr(logger, "debug", debug)
    yield
    if request.node.get_closest_marker("searches_may_fail") is None:
        assert not lost, lost

"""Count which faults of a training step are caught, and explained with the right words.

Each fault is an edit of one of the recipes below; the recipe as it stands is the reference's, on the same model. The
faults were written when the code that finds them stood still, and the first run is the figure: of the first 38, all were
explained; of the 12 after them, all were caught, and 8 explained with the words that were expected.

    python utils/step_bugs.py [number of a fault ...]
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
from llama_port import load_port, load_reference
from pytest_tfdebug.steps.api import held
from pytest_tfdebug.steps.run import TrainedModel

HEAD = "import torch\nfrom torch.nn.utils import clip_grad_norm_, clip_grad_value_\n"
ADAMW = """
def train(model, batches, loss_of):
    decay = [each for each in model.parameters() if each.dim() > 1]
    rest = [each for each in model.parameters() if each.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.98), eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    for start in range(0, len(batches), 2):
        optimizer.zero_grad()
        for batch in batches[start : start + 2]:
            loss = loss_of(model, batch) / 2
            loss.backward()
        clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
"""
SGD = """
def train(model, batches, loss_of):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
"""
OWN = """
class Own(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                state, gradient = self.state[weight], weight.grad
                if not state:
                    state.update(t=0, m=torch.zeros_like(weight), v=torch.zeros_like(weight))
                state["t"] += 1
                state["m"].mul_(beta1).add_(gradient, alpha=1 - beta1)
                state["v"].mul_(beta2).add_(gradient * gradient, alpha=1 - beta2)
                first, second = 1 - beta1 ** state["t"], 1 - beta2 ** state["t"]
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                root = (state["v"] / second).sqrt() + group["eps"]
                weight.sub_(group["lr"] * (state["m"] / first) / root)


def train(model, batches, loss_of):
    defaults = {"lr": 2e-3, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.05}
    optimizer = Own(model.parameters(), defaults)
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
"""
TORCHS = """
def train(model, batches, loss_of):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.05)
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
"""
SCALED = """
def train(model, batches, loss_of):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for batch in batches:
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
"""
#: Recipe of the port, recipe of the reference, text, text in its place, and a word that a right explanation has.
FAULTS: tuple[tuple[str, str, str, str, str], ...] = (
    (ADAMW, ADAMW, '"weight_decay": 0.0}', '"weight_decay": 0.05}', "weight_decay 0.05 for"),
    (ADAMW, ADAMW, "lr=2e-3", "lr=1e-3", "has lr"),
    (ADAMW, ADAMW, "betas=(0.9, 0.98)", "betas=(0.9, 0.999)", "betas (0.9, 0.999)"),
    (ADAMW, ADAMW, "eps=1e-8", "eps=1e-6", "eps 1e-06"),
    (ADAMW, ADAMW, "optim.AdamW", "optim.Adam", "decoupled_weight_decay False"),
    (ADAMW, ADAMW, "batch) / 2", "batch)", "2 times the gradient: the loss is not divided"),
    (ADAMW, ADAMW, "batch) / 2", "batch) / 4", "0.5 times the gradient: the loss is divided"),
    (ADAMW, ADAMW, "        optimizer.zero_grad()\n", "", "does not zero"),
    (
        ADAMW,
        ADAMW,
        "            loss = ",
        "            optimizer.zero_grad()\n            loss = ",
        "between two batches",
    ),
    (ADAMW, ADAMW, "        clip_grad_norm_(model.parameters(), 0.5)\n", "", "does not clip"),
    (ADAMW, ADAMW, "parameters(), 0.5)", "parameters(), 1.0)", "clips or scales the gradients otherwise"),
    (
        ADAMW,
        ADAMW,
        "clip_grad_norm_(model.parameters(), 0.5)",
        "clip_grad_value_(model.parameters(), 0.001)",
        "changes the gradients",
    ),
    (
        ADAMW,
        ADAMW,
        "clip_grad_norm_(model.parameters(), 0.5)",
        "[clip_grad_norm_([each], 0.5) for each in model.parameters()]",
        "each parameter",
    ),
    (
        ADAMW,
        ADAMW,
        "        clip_grad_norm_(model.parameters(), 0.5)\n        optimizer.step()",
        "        optimizer.step()\n        clip_grad_norm_(model.parameters(), 0.5)",
        "does not clip",
    ),
    (
        ADAMW,
        ADAMW,
        "        optimizer.step()\n        schedule.step()",
        "        schedule.step()\n        optimizer.step()",
        "lr of step 2",
    ),
    (ADAMW, ADAMW, "            loss.backward()", "            loss.backward()\n            schedule.step()", "has lr"),
    (ADAMW, ADAMW, "        schedule.step()\n", "", "has lr"),
    (ADAMW, ADAMW, ', {"params": rest, "weight_decay": 0.0}]', "]", "does not have"),
    (ADAMW, ADAMW, "if each.dim() > 1]", "if each.dim() > 1][1:]", "does not have"),
    (ADAMW, ADAMW, '{"params": decay,', '{"params": decay + decay[:1],', "twice"),
    (ADAMW, ADAMW, "len(batches), 2):", "len(batches), 2):\n        optimizer.param_groups[1]['lr'] *= 10", "has lr"),
    (ADAMW, ADAMW, "range(0, len(batches), 2)", "range(0, len(batches) - 2, 2)", "makes 2 steps"),
    (ADAMW, ADAMW, "eps=1e-8)", "eps=1e-8, amsgrad=True)", "amsgrad True"),
    (ADAMW, ADAMW, "eps=1e-8)", "eps=1e-8, maximize=True)", "maximize True"),
    (SGD, SGD, "momentum=0.9", "momentum=0.8", "momentum 0.8"),
    (SGD, SGD, ", nesterov=True", "", "nesterov False"),
    (SGD, SGD, "weight_decay=1e-3", "weight_decay=1e-2", "weight_decay 0.01"),
    (SGD, SGD, "loss_of(model, batch).backward()", "loss_of(model, batch).mul(3).backward()", "3 times the gradient"),
    (OWN, TORCHS, "first, second = 1 - beta1", "first, second = 1, 1  # - beta1", "bias of its moments"),
    (
        OWN,
        TORCHS,
        '(state["v"] / second).sqrt() + group["eps"]',
        '(state["v"] / second + group["eps"]).sqrt()',
        "epsilon under the root",
    ),
    (
        OWN,
        TORCHS,
        '1 - group["lr"] * group["weight_decay"]',
        '1 - group["weight_decay"]',
        "does not multiply the weight decay by lr",
    ),
    (
        OWN,
        TORCHS,
        "gradient = self.state[weight], weight.grad",
        "gradient = self.state[weight], weight.grad + 0.05 * weight",
        "other steps",
    ),
    (OWN, TORCHS, 'beta1, beta2 = group["betas"]', 'beta1, beta2 = group["betas"][0], 0.99', "beta2 0.99"),
    (OWN, TORCHS, '1 - beta2 ** state["t"]', "1", "first moment alone"),
    (OWN, TORCHS, '                weight.mul_(1 - group["lr"] * group["weight_decay"])\n', "", "does not decay"),
    (SCALED, SCALED, "        scaler.unscale_(optimizer)\n", "", "clips or scales the gradients otherwise"),
    (SCALED, SCALED, "    model.train()\n", "    model.train()\n    model.norm.momentum = 0.3\n", "norm.running"),
    (
        SCALED,
        SCALED,
        "    model.train()\n",
        "    model.train()\n    model.norm.track_running_stats = False\n",
        "norm.running",
    ),
    (
        SGD,
        SGD,
        "        optimizer.step()\n",
        "        optimizer.step()\n        optimizer.step()\n",
        "0 backwards before step 2",
    ),
    (ADAMW, ADAMW, "), 0.5)", '), 0.5, norm_type=float("inf"))', "does not clip"),
    (ADAMW, ADAMW, '"weight_decay": 0.05}', '"weight_decay": 0.05, "lr": 1e-3}', "has lr"),
    (OWN, TORCHS, "weight], weight.grad\n", "weight], weight.grad.clamp(-1e-3, 1e-3)\n", "other steps"),
    (OWN, TORCHS, 'state["t"] += 1', 'state["t"] += 2', "each step as of two"),
    (OWN, TORCHS, "                weight.mul_(", "                if weight.dim() > 1: weight.mul_(", "decay"),
    (OWN, TORCHS, ".add_(gradient, alpha=1 - beta1)", ".add_(gradient)", "all of a gradient to its first moment"),
    (SGD, SGD, "optim.SGD(model.parameters(),", "optim.SGD(list(model.parameters())[:-1],", "does not have"),
    (
        SCALED,
        SCALED,
        "    model.train()\n",
        "    model.train()\n    model.head.bias.requires_grad_(False)\n",
        "head.bias",
    ),
    (ADAMW, ADAMW, "        schedule.step()\n", "        schedule.step()\n        schedule.step()\n", "has lr"),
    (
        ADAMW,
        ADAMW,
        "        optimizer.step()",
        "        optimizer.zero_grad()\n        optimizer.step()",
        "takes the gradients away",
    ),
    (ADAMW, ADAMW, "if each.dim() > 1]", "if each.dim() > 1 and len(each) != 99]", "does not have"),
)


class Pictures(nn.Module):
    """A convolution, its normalisation and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return the logits, ``(batch, 5)``."""
        logits: torch.Tensor = self.head(torch.relu(self.norm(self.conv(pictures))).mean((2, 3)))
        return logits


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    """Return the loss of the next token, or of a class."""
    if batch.is_floating_point():
        return nn.functional.cross_entropy(model(batch), torch.arange(len(batch)) % 5)
    logits = model(batch)
    logits = logits if isinstance(logits, torch.Tensor) else logits.logits
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())


def trainer(source: str, name: str) -> Any:
    """Return the function ``train`` of a recipe, from a file of its own, as a run."""
    file = Path(tempfile.mkdtemp()) / f"{name}.py"
    file.write_text(HEAD + source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda model, batches: module.train(model, batches, loss_of)


def models(recipe: str) -> tuple[nn.Module, nn.Module, list[torch.Tensor]]:
    """Return a reference, a port and the batches of a recipe."""
    generator = torch.Generator().manual_seed(0)
    if recipe is SCALED:
        torch.manual_seed(0)
        reference, port = Pictures(), Pictures()
        port.load_state_dict(reference.state_dict())
        return reference, port, [torch.randn(4, 3, 8, 8, generator=generator) for _ in range(3)]
    llama = load_reference()
    llama.model.layers = llama.model.layers[:1]
    llama.config.num_hidden_layers = 1
    with torch.no_grad():
        for each in llama.parameters():
            each.mul_(6 if each.dim() > 1 else 1)
    return llama, load_port(llama), [torch.randint(0, 99, (2, 6), generator=generator) for _ in range(6)]


def main(chosen: list[str]) -> None:
    """Print a line for each fault, then the counts."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts, made = Counter[str](), dict[str, Any]()
    for number, (own, theirs, old, new, word) in enumerate(FAULTS, 1):
        if chosen and str(number) not in chosen:
            continue
        reference, port, batches = models(own)
        if theirs not in made:
            made[theirs] = TrainedModel(reference, trainer(theirs, "reference_recipe"), batches, "reference").made()
            clean = TrainedModel(port, trainer(own, f"clean_{number}"), batches, "port").made()
            print("clean:", str(held(made[theirs], clean)).splitlines()[0])
        assert old in own, old
        made_here = TrainedModel(port, trainer(own.replace(old, new, 1), f"fault_{number}"), batches, "port")
        report = held(made[theirs], made_here.made(), made_here.backward)
        text = str(report)
        verdict = "missed" if report else "explained" if word in " ".join(text.split()) else "caught"
        counts[verdict] += 1
        print(f"{number:3} {verdict:10} {text.splitlines()[0][:150]}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1:])

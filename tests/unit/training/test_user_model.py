"""The code of a user's network that runs is that of the digest in the addresses of what it makes."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import nn

from lipt.errors import RunError, UsageError
from lipt.training.user_model import build_user_model, code_digest

SOURCE = """from __future__ import annotations
from dataclasses import dataclass
from torch import nn

@dataclass
class Size:
    width: int = WIDTH

def net(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, Size().width), nn.Linear(Size().width, num_classes))
"""

Write = Callable[[int], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes the module `edited_net` with a width; returns the SHA-256 of its file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def written(width: int) -> str:
        text = SOURCE.replace("WIDTH", str(width))
        Path("edited_net.py").write_text(text)
        return hashlib.sha256(text.encode()).hexdigest()

    yield written
    sys.modules.pop("edited_net", None)


def width() -> int:
    model: nn.Sequential = build_user_model("edited_net:net", 10)
    return int(model[1].out_features)  # type: ignore[arg-type]


def test_an_edited_file_is_another_network(write: Write) -> None:
    for wide in (16, 48, 16):
        digest = write(wide)
        assert code_digest("edited_net:net") == digest
        assert width() == wide
        assert sys.modules["edited_net"].Size().width == wide


def test_a_module_that_somebody_imported_before_the_edit(write: Write) -> None:
    """As in a notebook: a first cell tries the network, then the file is edited, then LiPT runs."""
    write(16)
    theirs = importlib.import_module("edited_net")
    digest = write(48)
    assert code_digest("edited_net:net") == digest
    assert width() == 48
    assert sys.modules["edited_net"] is theirs  # their other cells go on with it
    assert theirs.Size().width == 16


def test_an_edit_while_a_run_goes_on(write: Write) -> None:
    digest = write(16)
    build_user_model("edited_net:net", 10, code=digest)
    write(48)
    with pytest.raises(RunError, match="edited_net:net has changed since this run began"):
        build_user_model("edited_net:net", 10, code=digest)
    write(16)
    assert build_user_model("edited_net:net", 10, code=digest) is not None


def test_a_file_that_fails_leaves_nothing_behind(write: Write) -> None:
    write(16)
    theirs = importlib.import_module("edited_net")
    Path("edited_net.py").write_text("raise ValueError('half written')")
    with pytest.raises(UsageError, match="importing edited_net raised ValueError: half written"):
        width()
    assert sys.modules["edited_net"] is theirs


def test_an_installed_module_is_not_executed_twice() -> None:
    """Its registry would refuse the second entry of a name."""
    before = importlib.import_module("torchvision.models.resnet")
    model = build_user_model("torchvision.models.resnet:resnet18", 10)
    assert type(model) is before.ResNet
    assert code_digest("torchvision.models.resnet:resnet18") is not None


def test_the_running_program_is_no_module() -> None:
    with pytest.raises(UsageError, match="__main__:net is a function of the running program"):
        build_user_model("__main__:net", 10)

"""Sampling that a target's file suggests, who goes before it, and that the chat says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dflash_gguf
from dflash_gguf import Sampling
from dflash_gguf.errors import UsageError
from dflash_gguf.suggested import PREFIX, read_suggested

from .support.command import command
from .support.edited import edited
from .support.random_pairs import Pair

IN_FILE = {"temp": 0.9, "top_k": 40, "penalty_repeat": 1.1, "mirostat": 2}


def keys(values: dict[str, object]) -> dict[str, object]:
    return {PREFIX + name: value for name, value in values.items()}


@pytest.fixture(scope="module")
def target(dense: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return edited(dense.target, tmp_path_factory.mktemp("s") / "t.gguf", change=keys(IN_FILE))


@pytest.mark.parametrize(
    ("texts", "values", "noted"),
    [
        ({}, {}, []),
        ({"temp": "0.600000", "top_p": "0.95"}, {"temperature": 0.6, "top_p": 0.95}, []),
        ({"temp": "-1", "top_k": "-1", "min_p": "-0.5"}, {"temperature": 0, "top_k": 0, "min_p": 0}, []),
        ({"top_k": "20.7x", "penalty_last_n": "-1"}, {"top_k": 20, "repeat_last_n": -1}, []),
        ({"temp": "warm", "top_k": "", "min_p": "nan", "penalty_repeat": "inf"}, {}, []),
        ({"temp": "1e39", "top_p": "1.5"}, {}, ["sampling.temp of", "sampling.top_p of"]),
        ({"mirostat": "2", "mirostat_tau": "5"}, {}, ["mirostat = 2"]),
        ({"mirostat": "0", "xtc_probability": "0.0", "xtc_threshold": "0.1"}, {}, []),
        ({"sequence": "penalties;dry;top_k;typ_p;top_p;min_p;xtc;temperature"}, {}, []),
        ({"sequence": "temperature;top_k"}, {}, ["sampling.sequence of the target's file"]),
    ],
)  # fmt: skip
def test_what_a_file_says(
    texts: dict[str, str], values: dict[str, float], noted: list[str]
) -> None:
    found = read_suggested(keys(texts).get)  # type: ignore[arg-type]
    assert found.values == values
    assert len(found.notes) == len(noted)
    assert all(part in note for part, note in zip(noted, found.notes, strict=True))
    Sampling(**found.values)


def test_in_python_nothing_is_used_unless_it_is_asked_for(target: Path, dense: Pair) -> None:
    with dflash_gguf.load(target, threads=1, context=256) as engine:
        assert engine.suggested.values == pytest.approx(
            {"temperature": 0.9, "top_k": 40, "repeat_penalty": 1.1}
        )
        made = engine.suggested_sampling(top_k=7, seed=3)
        assert (made.temperature, made.top_k, made.seed) == (pytest.approx(0.9), 7, 3)
        with pytest.raises(UsageError):
            engine.suggested_sampling(top_p=2)
        plain = engine.generate("hi", max_tokens=20).text
    with dflash_gguf.load(dense.target, threads=1, context=256) as engine:
        assert engine.suggested_sampling(seed=1) == Sampling(seed=1)
        assert engine.generate("hi", max_tokens=20).text == plain


def test_who_goes_before_whom(target: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[run]\ntop-k = 30\nmin-p = 0.2\n")
    env = {"DFLASH_GGUF_CONFIG": str(config), "DFLASH_GGUF_MIN_P": "0.3"}
    words = ["run", "-m", target, "-p", "hi", "-n", 3, "-c", 256, "-t", 1, "--json"]
    told = json.loads(command(*words, "--top-p", 0.5, env=env).stdout)
    assert told["sampling"] == {
        "temperature": pytest.approx(0.9),  # of the file, as llama.cpp writes it
        "top_k": 30,  # of the person's file, before the model's
        "min_p": 0.3,  # of the environment, before the person's file
        "top_p": 0.5,  # of the command line
        "typical": 1.0,
        "repeat_penalty": pytest.approx(1.1),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repeat_last_n": 64,
        "draft_sampling": "gumbel",
    }
    assert told["seed"] is not None
    greedy = json.loads(command(*words, "--temp", 0).stdout)
    assert (greedy["sampling"]["temperature"], greedy["seed"]) == (0.0, None)

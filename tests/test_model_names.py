"""`user/repo[:QUANT]` for a model, fetched from a server of our own: what is taken, kept, named and refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
import typer
from typer._completion_classes import ZshComplete

from dflash_gguf.__main__ import app
from dflash_gguf.commands._fetched import complete_model, gguf_files
from dflash_gguf.convert import hub_cache
from dflash_gguf.errors import DflashError, ModelError, UsageError
from dflash_gguf.model_names import find_drafter, find_target, is_whole_checkpoint, read_name
from dflash_gguf.pair import check_pair

from .convert.hub_server import COMMIT, TOKEN, Hub
from .support.command import Terminal, command
from .support.hub_cache import put_in_cache
from .support.random_pairs import Pair, make_target

REPOSITORY = "lab/Small-GGUF"
DRAFTER = "lab/Small-DFlash"
INDEX = "model.safetensors.index.json"
ANSWER = ("-p", "hi", "-n", "8", "--no-think", "--block", "4", "-t", "1", "-q")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A server that is this process's Hub and that of its commands."""
    folder = tmp_path_factory.mktemp("hub")
    server = Hub(folder / "served")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN"):
            patch.delenv(name, raising=False)
        patch.setenv("HF_ENDPOINT", server.endpoint)
        patch.setenv("HF_HOME", str(folder / "home"))
        patch.setenv("HF_HUB_DISABLE_XET", "1")
        for name in [name for name in sys.modules if name.split(".")[0] == "huggingface_hub"]:
            patch.delitem(sys.modules, name)  # it reads its variables while it is imported
        yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(server: Hub, dense: Pair) -> Hub:
    """The server with the random pair, and an empty cache."""
    shutil.rmtree(server.root, ignore_errors=True)
    shutil.rmtree(server.root.parent / "home", ignore_errors=True)
    server.gated, server.private, server.asked, server.pause = set(), set(), [], 0
    for name in ("Small-Q4_K_M.gguf", "Small-Q8_0.gguf", "UD-Q2_K_XL/Small-UD-Q2_K_XL.gguf"):
        serve(server, f"{REPOSITORY}/{name}", dense.target)
    for name in ("mmproj-F16.gguf", "Small.imatrix.gguf", "dflash-Small-Q8_0.gguf"):
        serve(server, f"{REPOSITORY}/{name}", dense.draft)
    for name in ("model.safetensors", "config.json"):
        serve(server, f"{DRAFTER}/{name}", dense.draft.parent / "draft" / name)
    return server


def serve(hub: Hub, name: str, source: Path) -> Path:
    path = hub.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, path)
    return path


def cached(hub: Hub, repository: str, *names: str) -> Path:
    """Put files of a served repository into the cache; returns the snapshot."""
    return put_in_cache(repository, {name: hub.root / repository / name for name in names})


def test_what_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("target.gguf", "lab/target.gguf", "/lab/model", "a/b/c", "lab"):
        assert read_name(Path(path), drafter=False) is None
    name = read_name(Path("lab/model"), drafter=False)
    assert name is not None
    assert (name.repository, name.asked) == ("lab/model", None)
    (tmp_path / "lab").mkdir()
    assert read_name(Path("lab/model"), drafter=False) is None  # a folder of that name is here
    name = read_name(Path("lab/model:q4_0"), drafter=False)
    assert name is not None
    assert (name.repository, name.asked) == ("lab/model", "q4_0")
    (tmp_path / "lab" / "model:q4_0").touch()
    assert read_name(Path("lab/model:q4_0"), drafter=False) is None
    with pytest.raises(UsageError, match="lab/model:: expected a quant behind the colon"):
        read_name(Path("lab/model:"), drafter=False)


@pytest.mark.parametrize(
    ("asked", "file"),
    [
        ("", "Small-Q4_K_M.gguf"),
        (":q8_0", "Small-Q8_0.gguf"),
        (":Q2_K_XL", "UD-Q2_K_XL/Small-UD-Q2_K_XL.gguf"),
        (":Small-Q8_0.gguf", "Small-Q8_0.gguf"),
    ],
)
def test_a_target_is_fetched_once(hub: Hub, asked: str, file: str) -> None:
    seen: list[tuple[int, int, str]] = []
    path = find_target(Path(REPOSITORY + asked), lambda *told: seen.append(told))
    assert path.as_posix().endswith(f"models--lab--Small-GGUF/snapshots/{COMMIT}/{file}")
    assert path.read_bytes() == (hub.root / REPOSITORY / file).read_bytes()
    assert hub.asked == [f"{file}@0"]
    assert seen[-1][0] == seen[-1][1] == path.stat().st_size
    before = hub.requests
    assert find_target(Path(REPOSITORY + asked)) == path
    assert hub.requests == before  # without a network


def test_a_drafter_beside_the_target(hub: Hub) -> None:
    assert find_drafter(Path(REPOSITORY)).name == "dflash-Small-Q8_0.gguf"
    with pytest.raises(
        ModelError, match="the repository has no such quant; there are Q8_0; give one"
    ):
        find_drafter(Path(f"{REPOSITORY}:q4_k_m"))


def test_a_checkpoint_is_fetched_and_found_again(hub: Hub) -> None:
    with pytest.raises(
        ModelError, match="holds a checkpoint, which has no quants; give it as lab/Small-DFlash"
    ):
        find_drafter(Path(f"{DRAFTER}:q8_0"))
    folder = find_drafter(Path(DRAFTER))
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    hub.asked.clear()
    assert find_drafter(Path(DRAFTER)) == folder
    assert not hub.asked
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "other.safetensors"}}'
    )
    (folder / "config.json").unlink()
    find_drafter(Path(DRAFTER))  # what is not whole is completed
    assert hub.asked == []  # (its bytes were there)
    assert (folder / "config.json").is_file()


def test_whole_checkpoints(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    held = ["config.json", INDEX, "1.safetensors"]
    assert not is_whole_checkpoint(tmp_path, held)
    assert is_whole_checkpoint(tmp_path, [*held, "2.safetensors"])
    assert not is_whole_checkpoint(tmp_path, [INDEX, "1.safetensors", "2.safetensors"])
    assert is_whole_checkpoint(tmp_path, ["config.json", "model.safetensors"])
    assert not is_whole_checkpoint(tmp_path, ["config.json"])
    (tmp_path / INDEX).write_text("{")
    assert not is_whole_checkpoint(tmp_path, [*held, "2.safetensors"])


def test_the_snapshot_that_main_means(hub: Hub) -> None:
    serve(hub, "lab/Two/x-Q4_K_M.gguf", hub.root / REPOSITORY / "Small-Q4_K_M.gguf")
    main = cached(hub, "lab/Two", "x-Q4_K_M.gguf")
    newer = main.with_name("1" * 40)
    newer.mkdir()
    for name in ("x-Q4_K_M.gguf", "x-Q8_0.gguf"):
        (newer / name).symlink_to(hub.root / "lab/Two/x-Q4_K_M.gguf")
    os.utime(main, (1, 1))
    assert find_target(Path("lab/Two")) == main / "x-Q4_K_M.gguf"
    assert find_target(Path("lab/Two:q8_0")) == newer / "x-Q8_0.gguf"
    (main.parents[1] / "refs" / "main").unlink()
    assert find_target(Path("lab/Two")) == newer / "x-Q4_K_M.gguf"
    assert hub.asked == []


def test_parts_come_together_and_run(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = gguf.GGUFWriter
    monkeypatch.setattr(
        gguf, "GGUFWriter", lambda path, arch: writer(path, arch, split_max_tensors=20)
    )
    make_target(hub.root / "lab" / "Parts" / "P-F32.gguf", hybrid=False)
    parts = sorted(path.name for path in (hub.root / "lab" / "Parts").iterdir())
    assert len(parts) == 3
    done = command("run", "-m", "lab/Parts:f32", *ANSWER)
    assert done.returncode == 0, done.stderr
    whole = command("run", "-m", make_whole(tmp_path, writer, monkeypatch), *ANSWER)
    assert done.stdout == whole.stdout
    assert sorted(hub.asked) == [f"{part}@0" for part in parts]
    assert hub_cache.repository_folder("lab/Parts") is not None
    (found,) = hub_cache.snapshots(hub_cache.repository_folder("lab/Parts") or Path())
    (found / parts[1]).unlink()
    assert find_target(Path("lab/Parts")).name == parts[0]
    assert (found / parts[1]).is_file()


def make_whole(tmp_path: Path, writer: object, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gguf, "GGUFWriter", writer)
    return make_target(tmp_path / "whole.gguf", hybrid=False)


def test_several_are_named(hub: Hub, dense: Pair) -> None:
    for name in ("Q5_K_M", "Q6_K"):
        serve(hub, f"lab/Other/x-{name}.gguf", dense.target)
    with pytest.raises(
        ModelError,
        match=r"the repository has 2 that this may mean: Q5_K_M, Q6_K; .* lab/Other:Q5_K_M",
    ):
        find_target(Path("lab/Other"))
    cached(hub, "lab/Other", "x-Q6_K.gguf")
    assert find_target(Path("lab/Other")).name == "x-Q6_K.gguf"  # the one that is there
    serve(hub, "lab/Other/y-Q6_K.gguf", dense.target)
    cached(hub, "lab/Other", "y-Q6_K.gguf")
    with pytest.raises(
        ModelError, match=r"the cache \(.*\) has 2 .*: x-Q6_K.gguf, y-Q6_K.gguf; give one"
    ):
        find_target(Path("lab/Other:q6_k"))
    assert find_target(Path("lab/Other:y-Q6_K")).name == "y-Q6_K.gguf"


def test_no_such_quant_names_those_there_are(hub: Hub) -> None:
    with pytest.raises(
        ModelError,
        match=r"no such quant; there are Q4_K_M, Q8_0, UD-Q2_K_XL; give one of them as lab/Small-GGUF:Q4_K_M",
    ):
        find_target(Path(f"{REPOSITORY}:q3_k_s"))
    with pytest.raises(
        ModelError, match="lab/Small-DFlash: the repository holds no target's GGUF; expected"
    ):
        find_target(Path(DRAFTER))
    assert not hub.asked


def test_refusals_say_what_to_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.private.add(REPOSITORY)
    with pytest.raises(
        ModelError,
        match=rf"such a repository on {hub.endpoint} \(401\); if it is private, set HF_TOKEN",
    ):
        find_target(Path(REPOSITORY))
    hub.private.clear()
    hub.gated.add(REPOSITORY)
    with pytest.raises(
        ModelError,
        match=rf"ask for consent first \(403\); agree on {hub.endpoint}/{REPOSITORY} and set HF_TOKEN",
    ):
        find_target(Path(REPOSITORY))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert find_target(Path(REPOSITORY)).is_file()


def test_without_a_network_or_the_extra(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(hub, REPOSITORY, "Small-Q8_0.gguf")
    offline = {"HF_HUB_OFFLINE": "1"}
    done = command("run", "-m", REPOSITORY, *ANSWER, env=offline)
    assert done.returncode == 0, done.stderr
    done = command("run", "-m", f"{REPOSITORY}:q4_k_m", *ANSWER, env=offline)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert (
        f"{REPOSITORY}: it is not in {hub_cache.cache_folder()}, and HF_HUB_OFFLINE forbids"
        in done.stderr
    )
    assert not hub.asked
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert find_target(Path(REPOSITORY)).name == "Small-Q8_0.gguf"
    with pytest.raises(DflashError, match=r"run 'pip install \"dflash-gguf\[hub\]\"'"):
        find_target(Path(f"{REPOSITORY}:q4_k_m"))


def test_a_pair_of_names_answers(hub: Hub, dense: Pair, tmp_path: Path) -> None:
    done = command("run", "-m", f"{REPOSITORY}:q8_0", "-md", DRAFTER, *ANSWER)
    assert done.returncode == 0, done.stderr
    done = command("inspect", f"{REPOSITORY}:dflash-Small-Q8_0.gguf", "-m", REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert REPOSITORY.replace("/", "--") in done.stdout
    done = command("recipe", "--engine", "llama-server", "-m", REPOSITORY, "-md", REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert f"{COMMIT}/Small-Q8_0.gguf" in done.stdout  # the one that is there
    done = command("bench", "-m", f"{REPOSITORY}:q3", "-md", DRAFTER)
    assert done.returncode == 3
    assert f"{REPOSITORY}:q3: the repository has no such quant" in done.stderr
    target, draft = gguf_files(Path(REPOSITORY), Path(DRAFTER))
    assert target.name == "Small-Q8_0.gguf"
    assert draft is not None
    check_pair(target, draft)  # a checkpoint was converted
    source = dense.draft.parent / "draft"
    done = command(
        "convert", source, "-m", f"{REPOSITORY}:q8_0", "--outtype", "f32", "-o", tmp_path / "d.gguf"
    )
    assert done.returncode == 0, done.stderr
    check_pair(dense.target, tmp_path / "d.gguf")


def test_ctrl_c_keeps_what_has_come(hub: Hub) -> None:
    hub.pause = 1
    with Terminal("run", "-m", REPOSITORY, *ANSWER[:-1], columns=100, rows=30) as terminal:
        terminal.wait_for(
            lambda text: "fetching lab/Small-GGUF" in text and "%" in text, "progress"
        )
        terminal.send("\x03")
        assert terminal.end() == 130
    folder = hub_cache.repository_folder(REPOSITORY)
    assert folder is not None
    (part,) = folder.rglob("*.incomplete")
    kept = part.stat().st_size
    assert 0 < kept < (hub.root / REPOSITORY / "Small-Q4_K_M.gguf").stat().st_size
    hub.pause = 0
    path = find_target(Path(REPOSITORY))
    assert hub.asked[-1] == f"Small-Q4_K_M.gguf@{kept}"
    assert path.read_bytes() == (hub.root / REPOSITORY / "Small-Q4_K_M.gguf").read_bytes()


def test_the_cache_is_where_huggingface_hub_has_it(tmp_path: Path) -> None:
    code = "from huggingface_hub.constants import HF_HUB_CACHE as a; from dflash_gguf.convert.hub_cache import cache_folder as b; print(a); print(b())"
    home = {"HOME": str(tmp_path)}
    places = [
        home,
        {**home, "HF_HOME": "~/$SUB/x", "SUB": "y"},
        {**home, "XDG_CACHE_HOME": "/xdg"},
        {**home, "HF_HUB_CACHE": "~/y"},
    ]
    for place in places:
        environment = {
            key: value for key, value in os.environ.items() if key[:3] not in {"HF_", "XDG"}
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, **place},
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
        )
        theirs, ours = done.stdout.splitlines()
        assert theirs == ours


def test_names_are_completed(hub: Hub) -> None:
    snapshot = cached(hub, REPOSITORY, "Small-Q8_0.gguf", "mmproj-F16.gguf")
    cached(hub, DRAFTER, "config.json", "model.safetensors")
    (snapshot / "gone-Q4_0.gguf").symlink_to("nowhere")
    assert complete_model("lab/S") == ["lab/Small-DFlash", "lab/Small-GGUF:Q8_0"]
    assert complete_model("lab/Small-G") == ["lab/Small-GGUF:Q8_0"]
    assert complete_model("models/") == []
    shell = ZshComplete(typer.main.get_command(app), {}, "dflash-gguf", "_COMPLETE")
    for option in (
        ["run", "-m"],
        ["bench", "-md"],
        ["serve", "--target"],
        ["doctor", "-md"],
        ["recipe", "-m"],
        ["inspect"],
    ):
        found = shell.get_completions(option, "lab/Small-G")
        assert [item.value for item in found] == ["lab/Small-GGUF:Q8_0"], option

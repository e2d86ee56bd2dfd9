"""The conversion of a checkpoint: read and check everything, then plan the outputs and write them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..ggml_types import BF16, F32, I64, TensorType
from ..gguf_file import GgufFile
from .borrowed import complete_tensors, needs_weights
from .card import describe_origin, find_card
from .config import DraftConfig, read_config
from .digests import Digests, sha256_of
from .draft_vocab import check_request
from .fields import Field
from .folder_target import open_target
from .hub import fetch_drafter, fetch_target, is_repository, repository_of
from .importance import Importance, read_importance
from .lookup import find_target, require_config
from .metadata import describe_file, describe_model, describe_type
from .model_card import CardFacts, CardFile, command_line, write_card
from .names import check_free, model_name, output_paths
from .output import Companion, Output, Written, check_threads, write_outputs
from .source import Checkpoint, find_checkpoint
from .stream import Progress
from .target import check_fit, read_target
from .tensors import DraftTensor, match_tensors
from .trimmed_head import HEAD, TrimmedHead, trim_head
from .types import OutputType, choose_types, fallback_warnings, find_output_types, require_quantised
from .vocabulary import copy_tokenizer
from .wishes import Wish, grant_wishes, parse_wishes


@dataclass(frozen=True, slots=True)
class _Drafter:
    """The checkpoint as found and checked, what was said about it, its head if one was made, and its origin."""

    checkpoint: Checkpoint
    config: DraftConfig
    tensors: list[DraftTensor]
    warnings: tuple[str, ...] = ()
    head: TrimmedHead | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.checkpoint.folder

    @property
    def parameters(self) -> int:
        return sum(math.prod(tensor.shape) for tensor in self.tensors)


def convert(
    source: Path | str,
    target: Path | str | None = None,
    *,
    outdir: Path | str | None = None,
    outfile: Path | str | None = None,
    outtypes: Sequence[str] = ("bf16", "q5_k_m"),
    tensor_types: Sequence[str] = (),
    imatrix: Path | str | None = None,
    draft_vocab: int | None = None,
    draft_vocab_text: Path | str | None = None,
    name: str | None = None,
    model_card: bool = False,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Written]:
    """Convert a DFlash drafter's checkpoint to GGUF files that llama.cpp reads.

    Args:
        source: a .safetensors file, an index of shards, or a folder with one of them; config.json beside it.
            PyTorch's .bin and .pt files too, if torch is installed; or a repository `owner/name`.
        target: GGUF of the model the drafter was trained for, or its Hugging Face folder or repository, of
            which the weights are not read; its tokenizer goes into the outputs. Default: what lookup.py finds.
        outdir: folder of the outputs, made if needed; default: beside the source, of a repository here.
        outfile: path of the only output, instead of `outdir`.
        outtypes: names from `types.OUTPUT_TYPES`, any case; each gives a file `<name>-<TYPE>.gguf`.
        tensor_types: `NAME=TYPE` for tensors of quantised outputs, see wishes.py.
        imatrix: importance matrix for quantised outputs, of llama-imatrix.
        draft_vocab: give the drafter a head of its own for that many tokens, of rows of the target's GGUF: see
            trimmed_head.py. Its type is the target's if that is quantised, else the output's;
            `tensor_types` change it in every output.
        draft_vocab_text: a text whose most frequent tokens are taken; default: those the tokenizer found first.
        name: the outputs' `<name>`; default: after the file, or its folder where the file is `model`.
        model_card: write a README.md beside the outputs, for publishing them.
        force: overwrite outputs that exist.
        threads: threads for the quantisation; default: all CPUs of the process.
        progress: called after each piece with (bytes done, bytes in all, tensor); before, for each file that
            is fetched, with its bytes.

    Returns one Written per output type, in order. Raises UsageError for a request that makes no sense,
    ModelError or ConvertError if a file is broken, not convertible or does not fit the other, and
    ResourceError if the disk is full. Nothing is left behind then, and existing files are kept.
    """
    if outfile is not None and outdir is not None:
        text = f"both outfile {outfile} and outdir {outdir} are given; expected one of them"
        raise UsageError(text)
    kinds = find_output_types(outtypes)
    wishes = parse_wishes(tensor_types)
    check_threads(threads)
    counted = None if draft_vocab_text is None else Path(draft_vocab_text)
    check_request(draft_vocab, counted)
    # a trimmed head may be quantised in any output
    for_quantised = bool(wishes) and draft_vocab is None
    require_quantised(kinds, wishes=for_quantised, weighed=imatrix is not None)
    source = Path(source)
    fetched = is_repository(source)
    drafter = _read_drafter(fetch_drafter(source, progress) if fetched else source)
    repository = source.as_posix() if fetched else repository_of(drafter.folder)
    drafter, target, tokenizer_of = _choose_target(
        drafter, target, repository, weights=draft_vocab is not None, progress=progress
    )
    with (
        open_target(target, tokenizer_of) as target_file,
        Digests(drafter.checkpoint.files) as digests,
    ):
        drafter, model = _fit(drafter, target_file, draft_vocab, counted)
        granted = _grant(wishes, drafter, kinds)
        importance = read_importance(Path(imatrix), drafter.tensors) if imatrix else None
        chosen = model_name(drafter.checkpoint, name)
        beside = Path() if fetched else drafter.folder
        folder = beside if outdir is None else Path(outdir)
        paths = output_paths(chosen, folder, kinds, Path(outfile) if outfile is not None else None)
        read = [*drafter.checkpoint.files, drafter.folder / "config.json", target]
        others = (imatrix, counted, find_card(drafter.folder))
        read += [Path(path) for path in others if path is not None]
        companion = None
        if model_card:
            command = command_line(
                repository or drafter.checkpoint.origin,
                None if tokenizer_of is not None else repository_of(target) or target,
                outtype=",".join(outtypes),
                tensor_type=list(tensor_types),
                imatrix=None if imatrix is None else Path(imatrix),
                draft_vocab=draft_vocab,
                draft_vocab_text=counted,
                name=name,
            )
            facts = CardFacts(chosen, repository, drafter.config, drafter.origin, command)
            companion = _card(facts, kinds, paths, digests)
        check_free([*paths, *([companion.path] if companion else [])], read, force=force)
        shared = describe_file(chosen, drafter.parameters) | model | digests.placeholder
        outputs = [
            _plan(kind, path, drafter, shared, granted, importance)
            for kind, path in zip(kinds, paths, strict=True)
        ]
        return write_outputs(
            outputs,
            drafter.tensors,
            force=force,
            threads=threads,
            progress=progress,
            importance=importance,
            late_fields=digests.fields,
            companion=companion,
        )


def _read_drafter(source: Path) -> _Drafter:
    checkpoint = find_checkpoint(source)
    require_config(checkpoint)
    config = read_config(checkpoint.folder / "config.json")
    return _Drafter(checkpoint, config, match_tensors(config, checkpoint), config.warnings)


def _choose_target(
    drafter: _Drafter,
    given: Path | str | None,
    repository: str | None,
    *,
    weights: bool,
    progress: Progress | None,
) -> tuple[_Drafter, Path, DraftConfig | None]:
    """The target given or found (then a warning says which), and the config it is to be guessed from, if so."""
    if given is not None:
        path = Path(given)
        return drafter, fetch_target(path, progress) if is_repository(path) else path, None
    weights = weights or needs_weights(drafter.tensors, drafter.config, drafter.folder)
    found = find_target(
        drafter.checkpoint, drafter.config, repository, weights=weights, progress=progress
    )
    said = f"no target was given; {found.why}"
    drafter = replace(drafter, warnings=(*drafter.warnings, said))
    return drafter, found.path, drafter.config if found.tokenizer_only else None


def _card(
    facts: CardFacts, kinds: Sequence[OutputType], paths: Sequence[Path], digests: Digests
) -> Companion:
    """The model card, to be written once the outputs are whole."""

    def make(finished: Sequence[Path]) -> str:
        files = [
            CardFile(path.name, kind.label, file.stat().st_size, sha256_of(file))
            for path, kind, file in zip(paths, kinds, finished, strict=True)
        ]
        return write_card(facts, files, digests.by_name())

    return Companion(paths[0].parent / "README.md", make)


def _fit(
    drafter: _Drafter, target: GgufFile, draft_vocab: int | None, counted: Path | None
) -> tuple[_Drafter, dict[str, Field]]:
    """The drafter with what it takes from its target, and the key/values that all outputs have."""
    facts = read_target(target)
    check_fit(drafter.config, str(drafter.folder / "config.json"), facts)
    head, tensors = None, drafter.tensors
    if draft_vocab is not None:
        head = trim_head(tensors, drafter.config, drafter.folder, target, draft_vocab, counted)
        tensors = head.tensors
    tensors, lossy = complete_tensors(tensors, drafter.config, drafter.folder, target)
    origin = describe_origin(drafter.folder, target)
    model = describe_model(drafter.config, facts, {tensor.name for tensor in tensors})
    fields = {**origin.fields, **model} | copy_tokenizer(target, drafter.config.mask_token_id)
    fields |= head.fields if head is not None else {}
    warnings = (*drafter.warnings, *lossy, *origin.warnings)
    drafter = replace(drafter, tensors=tensors, warnings=warnings, head=head, origin=origin.values)
    return drafter, fields


def _grant(
    wishes: Sequence[Wish], drafter: _Drafter, kinds: Sequence[OutputType]
) -> dict[str, TensorType]:
    granted = grant_wishes(wishes, drafter.tensors)
    if drafter.head is None:
        return granted
    require_quantised(kinds, wishes=bool(granted) and HEAD not in granted, weighed=False)
    return drafter.head.types(granted)


def _plan(
    kind: OutputType,
    path: Path,
    drafter: _Drafter,
    shared: dict[str, Field],
    wishes: dict[str, TensorType],
    importance: Importance | None,
) -> Output:
    tensors = drafter.tensors
    weighed = importance is not None and kind.plain is None
    everywhere = () if drafter.head is None else (HEAD,)
    chosen = choose_types(
        kind, drafter.config.sizes, tensors, wishes, weighed=weighed, everywhere=everywhere
    )
    types = [
        _left(kind, tensor, drafter) if found is None else found
        for tensor, found in zip(tensors, chosen, strict=True)
    ]
    fields = shared | describe_type(kind.file_type)
    if importance is not None and weighed:
        fields |= importance.fields()
    own = [kind.warning] if kind.warning else []
    fallen = fallback_warnings(kind, types, tensors, wishes)
    return Output(path, kind.label, fields, types, (*drafter.warnings, *own, *fallen))


def _left(kind: OutputType, tensor: DraftTensor, drafter: _Drafter) -> TensorType:
    """The type of a tensor that quantising leaves as it is in the bf16 or f32 file."""
    if tensor.stays_float or tensor.type == I64:
        return I64 if tensor.type == I64 else F32
    if kind.plain is not None:
        return kind.plain
    kinds = {other.type for other in drafter.tensors if not other.stays_float}
    return BF16 if kinds <= {BF16} else F32

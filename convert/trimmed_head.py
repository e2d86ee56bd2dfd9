"""A head of the drafter's own for a part of the vocabulary, made of rows of its target's head.

A drafter borrows the target's whole head, which is half of its work or more. llama.cpp takes a smaller one
instead, with `d2t`, the token id of each row; what it does not know is never drafted, and the target, which
verifies with its own head, still chooses every token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UsageError
from ..ggml_types import BF16, F16, F32, I64, TensorType
from ..gguf_file import GgufFile
from .config import DraftConfig
from .draft_vocab import KEY, DraftVocab, choose_tokens
from .faults import refuse
from .fields import Field, string
from .reader import SourceTensor
from .recipes import Chosen, Ready
from .tensors import DraftTensor

HEAD = "output.weight"
_TABLE, _D2T, _SCALE, _MARKOV = "token_embd.weight", "d2t", "output.scale", "markov_w2.weight"
_FLOATS = (F32, F16, BF16)
# of quantised types only these can be written again as they are
_KEPT = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
_KEPT += ["IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_S", "MXFP4", "TQ1_0", "TQ2_0"]


@dataclass(frozen=True, slots=True)
class TrimmedHead:
    """The drafter's tensors with its own head, and the key/values that tell of that.

    `kept` is the head's type in every output, unless another is wished for: that of the target, byte for
    byte. None if the target's is not quantised: then it is the output's.
    """

    tensors: list[DraftTensor]
    fields: dict[str, Field]
    kept: TensorType | None

    def types(self, wishes: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """Return the types wished for, the head's among them unless it is to be the output's.

        Raises UsageError if its rows cannot be of the type wished for.
        """
        columns = next(tensor.columns for tensor in self.tensors if tensor.name == HEAD)
        wish = wishes.get(HEAD)
        if wish is not None and columns % wish.block:
            problem = (
                f"--tensor-type: rows of {HEAD} have {columns} values, which {wish.name} cannot hold; expected "
                f"a multiple of {wish.block}: wish for another type"
            )
            raise UsageError(problem)
        return {**({HEAD: self.kept} if self.kept is not None else {}), **wishes}


def trim_head(
    tensors: Sequence[DraftTensor],
    config: DraftConfig,
    folder: Path,
    target: GgufFile,
    size: int,
    text: Path | None,
) -> TrimmedHead:
    """Add a head for `size` tokens to the tensors of the checkpoint in `folder`; `text` as choose_tokens takes it.

    Raises UsageError for a size that cannot be, ConvertError if the drafter has a head of its own or the
    target's GGUF has none that can be taken.
    """
    _refuse_own_head(tensors, config, folder)
    info, kind = _find_head(target, config)
    if config.dflash2 is not None and size < config.dflash2.top_k:
        problem = (
            f"--draft-vocab is {size}, but this DFlash2 drafter chooses among {config.dflash2.top_k} "
            "candidates; expected at least these"
        )
        raise UsageError(problem)
    vocab = choose_tokens(target, size, text)
    head = _chosen(DraftTensor(HEAD, info, kind, (config.hidden_size, config.vocab_size)), vocab)
    table = SourceTensor(_D2T, target.path, "I64", (size,), 0, size * I64.size)
    ids = Ready(vocab.ids.astype("<i8").tobytes(), I64)
    own = [_chosen(tensor, vocab) if tensor.name == _MARKOV else tensor for tensor in tensors]
    return TrimmedHead(
        tensors=[*own, head, DraftTensor(_D2T, table, I64, (size,), ids)],
        fields=vocab.fields() | {f"{KEY}.head": string(f"{info.name} {kind.name}")},
        kept=kind if kind.name in _KEPT else None,
    )


def _refuse_own_head(tensors: Sequence[DraftTensor], config: DraftConfig, folder: Path) -> None:
    names = {tensor.name for tensor in tensors}
    # a learned mask row unties the two
    tied = config.tied_head and not (folder / "mask_embedding.pt").exists()
    if HEAD in names or (_TABLE in names and tied):
        found = (
            f"one for {config.draft_vocab} tokens"
            if HEAD in names
            else "its embeddings are its head"
        )
        refuse(
            f"{folder}: the drafter has a head of its own ({found}); --draft-vocab is for those that borrow "
            "their target's: convert it without"
        )


def _find_head(target: GgufFile, config: DraftConfig) -> tuple[SourceTensor, TensorType]:
    name = HEAD if HEAD in target.tensors else _TABLE
    info = target.tensors.get(name)
    if info is None:
        refuse(
            f"{target.path}: it has no tensor {HEAD} or {_TABLE}, which --draft-vocab takes the head from; "
            "expected the target's GGUF with its weights, in one file"
        )
    shape = (config.hidden_size, config.vocab_size)
    if info.shape != shape:
        refuse(
            f"{target.path}: {name} has the shape {list(info.shape)}; expected {list(shape)} by the drafter's "
            "config.json: give the target this drafter was trained for"
        )
    if _SCALE in target.tensors or (info.type not in _FLOATS and info.type.block == 1):
        found = f"a scale of its own ({_SCALE})" if _SCALE in target.tensors else info.type.name
        refuse(
            f"{target.path}: {name} has {found}, which a drafter's head cannot have; expected floats or a "
            "usual quantised type: give another GGUF of the target"
        )
    source = SourceTensor(name, target.path, info.type.name, shape[::-1], info.offset, info.length)
    return source, info.type


def _chosen(tensor: DraftTensor, vocab: DraftVocab) -> DraftTensor:
    """The tensor with the vocabulary's rows only."""
    count, columns = len(vocab.ids), tensor.columns
    length = count * tensor.type.row_bytes(columns)
    source = replace(tensor.source, shape=(count, columns), length=length)
    return DraftTensor(tensor.name, source, tensor.type, (columns, count), Chosen(vocab.ids))

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

# Final: not to be assigned from Python; the engine may well change it

def missing_symbols() -> list[str]: ...
def capture_log(verbosity: int) -> None: ...
def supports_gpu_offload() -> bool: ...
def system_info() -> str: ...
def devices() -> list[Device]: ...
def is_remote(backend: str) -> bool: ...
def publishes_features(architecture: str) -> bool: ...
def plan_width(block: int, remaining: int) -> int: ...
def argmax(values: NDArray[np.float32]) -> int: ...
def accept_greedy(drafted: Sequence[int], choose: Callable[[int], int]) -> tuple[int, int]: ...
def survivors(survival: Sequence[float], u: float, drafted: int) -> int: ...
def quantized_types(
    architecture: str,
    ftype: int,
    *,
    n_embd: int,
    n_ff: int,
    n_layer: int,
    n_head: int,
    n_head_kv: int,
    head_dim: int,
    tensors: Sequence[tuple[str, Sequence[int]]],
    wishes: Mapping[str, int] = ...,
) -> list[int]: ...
def convert_rows(
    source: Buffer,
    source_type: int,
    target: Buffer,
    target_type: int,
    rows: int,
    columns: int,
    threads: int = 1,
    importance: Buffer | None = None,
) -> int: ...
def equal_blocks(counts: Sequence[int], rooms: Sequence[int]) -> list[tuple[int, list[int]]]: ...
def walk_lattice(
    rows: NDArray[np.float32], top_k: int, n_vocab: int
) -> tuple[list[int], list[float]]: ...
def reusable_prefix(
    prompt: Sequence[int],
    tokens: Sequence[int],
    points: Sequence[int],
    least_cut: int,
    limit: int,
) -> int: ...
def worth_verifying(drafted: Sequence[int], stops: set[int]) -> int: ...
def cut_output(tokens: Sequence[int], remaining: int, stops: set[int]) -> tuple[int, Finish]: ...

class ThreadGovernor:
    threads: Final[int]
    def __init__(self, most: int) -> None: ...
    def saw(self, *, threads: int, wall: float, cpu: float, preempted: int, now: float) -> None: ...

class StopStrings:
    held: Final[bytes]
    def __init__(self, strings: Sequence[str | bytes]) -> None: ...
    def read(self, bytes: bytes) -> tuple[bytes, bool]: ...

def gumbel(seed: int, position: int, token: int) -> float: ...
def choose(
    sampling: Sampling,
    logits: NDArray[np.float32],
    position: int,
    text: Sequence[int] = ...,
    after: Sequence[int] = ...,
) -> int: ...
def draft_block(
    sampling: Sampling,
    rows: NDArray[np.float32],
    position: int,
    learnt: Sharpness,
    compared: int,
    written: Sequence[int],
) -> tuple[list[int], list[int] | None]: ...
def compared_place(round: int, index: int, sequences: int, reached: int) -> int: ...

class DraftSampling(Enum):
    gumbel = 0
    rejection = 1

class Sampling:
    temperature: float
    top_k: int
    typical: float
    top_p: float
    min_p: float
    repeat: float
    frequency: float
    presence: float
    last_n: int
    bias: list[tuple[int, float]]
    seed: int
    draft: DraftSampling
    def __init__(self) -> None: ...

class Sharpness:
    def __init__(self) -> None: ...
    @staticmethod
    def choices() -> list[float]: ...
    def best(self, temperature: float) -> int: ...
    def saw(self, temperature: float, picks: Sequence[int], written: int) -> None: ...
    def places(self, temperature: float) -> float: ...
    def hits(self, temperature: float) -> list[float]: ...

class Distribution:
    @staticmethod
    def certain(token: int) -> Distribution: ...
    @staticmethod
    def whole(logits: NDArray[np.float32], temperature: float) -> Distribution: ...
    @staticmethod
    def filtered(logits: NDArray[np.float32], sampling: Sampling) -> Distribution: ...
    def of(self, token: int) -> float: ...
    def residual(self, other: Distribution, u: float) -> int: ...

def accept_drawn(
    drafted: Sequence[int],
    q: Sequence[Distribution],
    target: Callable[[int], Distribution],
    choose: Callable[[int], int],
    stays: Callable[[int], float],
    replacement: Callable[[int], float],
) -> tuple[int, int]: ...
def later_cells(
    positions: Sequence[int], cells: Sequence[int], per_stream: int
) -> list[tuple[int, int, int]]: ...

class Finish(Enum):
    none = 0
    stop = 1
    length = 2
    failed = 3
    cancelled = 4

class Device:
    name: Final[str]
    description: Final[str]
    backend: Final[str]
    kind: Final[str]
    remote: Final[bool]
    memory_free: Final[int]
    memory_total: Final[int]

class Model:
    arch: Final[str]
    description: Final[str]
    n_vocab: Final[int]
    n_embd: Final[int]
    n_layer: Final[int]
    n_ctx_train: Final[int]
    has_state: Final[bool]
    taps: Final[list[int]]
    end_tokens: Final[list[int]]
    bos: Final[int]
    eos: Final[int]
    def __init__(
        self,
        path: str,
        *,
        n_gpu_layers: int = 0,
        devices: Sequence[str] = (),
        progress: Callable[[float], bool] | None = None,
        mmap: bool = True,
    ) -> None: ...
    def meta(self, key: str) -> str | None: ...
    def special_tokens(self) -> list[tuple[int, bytes, bool]]: ...
    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]: ...
    def piece(self, token: int, special: bool = False) -> bytes: ...

class Vocabulary:
    n_vocab: Final[int]
    def __init__(self, path: str) -> None: ...
    def tokenize(self, text: str) -> list[int]: ...

class BufferUse:
    place: Final[str]
    weights: Final[int]
    mapped: Final[int]
    caches: Final[int]
    compute: Final[int]

class ContextUse:
    buffers: Final[list[BufferUse]]
    books: Final[int]
    cells: Final[int]
    graphs: Final[int]

def own_memory() -> int: ...
def added_memory(before: str, now: str) -> list[tuple[int, int]]: ...

class MemoryTrial:
    n_ctx_train: Final[int]
    n_vocab: Final[int]
    n_embd: Final[int]
    has_state: Final[bool]
    n_taps: Final[int]
    headers: Final[int]
    state: Final[list[BufferUse]]
    def __init__(
        self, target: str, layers: int, devices: Sequence[str], *, mmap: bool = True
    ) -> None: ...
    def open_draft(
        self, draft: str, layers: int, devices: Sequence[str], *, mmap: bool = True
    ) -> None: ...
    def keeps_snapshots(self) -> bool: ...
    def target(self, params: ContextParams) -> ContextUse: ...
    def draft(self, params: ContextParams) -> ContextUse: ...

class ContextParams:
    n_ctx: int
    n_batch: int
    n_ubatch: int
    n_seq: int
    n_rollback: int
    n_outputs: int
    n_threads: int
    n_threads_batch: int
    unified: bool
    window: int
    type_k: int
    type_v: int
    type_kv: int
    flash_attn: int
    def __init__(self) -> None: ...

class Context:
    n_rollback: Final[int]
    buffers: Final[list[BufferUse]]
    def __init__(self, model: Model, params: ContextParams) -> None: ...
    def truncate(self, seq: int, pos: int) -> None: ...
    def evaluate(self, tokens: Sequence[int], pos: int, seq: int = 0) -> NDArray[np.float32]: ...

def bare_rounds(
    target: Target,
    drafter: Drafter | None,
    *,
    sequences: int = 1,
    width: int = 1,
    kept: int = 1,
    rounds: int = 1,
    context: int = 0,
    chooses: bool = False,
) -> list[tuple[int, int, int, int]]: ...

class Target:
    depth: Final[int]
    sequences: Final[int]
    def __init__(self, context: Context, taps: Sequence[int]) -> None: ...
    def reshape(self, n_rollback: int) -> None: ...
    def pretend_room(self, snapshots: int) -> None: ...
    def features(self, tap: int, rows: int) -> NDArray[np.float32]: ...

class Drafter: ...

class ModelDrafter(Drafter):
    def __init__(
        self,
        model: Model,
        params: ContextParams,
        target: Context,
        mask: int,
        causal: Sequence[bool],
    ) -> None: ...
    def probe(self) -> None: ...
    def draft(self, turns: list[tuple[int, int, int, int]]) -> list[list[int]]: ...
    def draft_sampled(
        self, turns: list[tuple[int, int, int, int]], sampling: Sampling
    ) -> list[tuple[list[int], list[float]]]: ...
    def block_logits(self, seq: int, pos: int, anchor: int, count: int) -> NDArray[np.float32]: ...

class LatticeDrafter(ModelDrafter):
    def __init__(
        self,
        model: Model,
        params: ContextParams,
        target: Context,
        mask: int,
        causal: Sequence[bool],
    ) -> None: ...
    def lattice(self, seq: int, pos: int, anchor: int, count: int) -> NDArray[np.float32]: ...

class DsparkDrafter(ModelDrafter):
    def __init__(
        self,
        model: Model,
        params: ContextParams,
        target: Context,
        mask: int,
        causal: Sequence[bool],
        *,
        from_anchor: bool,
        confidence: bool,
    ) -> None: ...

class ScriptedDrafter(Drafter):
    def __init__(self, n_vocab: int) -> None: ...
    def script(self, seq: int, tokens: Sequence[int], counts: Sequence[int]) -> None: ...
    def fail_at(self, seq: int, round: int) -> None: ...
    def fail_behind(self, rows: int) -> None: ...
    def injected(self, seq: int) -> int: ...

class SimulatedDrafter(Drafter):
    def __init__(
        self, survival: Sequence[float], seed: int, inner: Drafter | None = None
    ) -> None: ...

class Counters:
    prompt_tokens: Final[int]
    reused_tokens: Final[int]
    injected: Final[int]
    emitted: Final[int]
    rounds: Final[int]
    drafting_rounds: Final[int]
    drafted: Final[int]
    accepted: Final[int]
    drafted_at: Final[list[int]]
    accepted_at: Final[list[int]]
    shifts: Final[tuple[int, int, int, int]]
    prefill_ns: Final[int]
    first_token_ns: Final[int]
    last_token_ns: Final[int]

class Times:
    total: Final[int]
    prefill: Final[int]
    draft: Final[int]
    verify: Final[int]
    inject: Final[int]
    rollback: Final[int]

class Output:
    id: Final[int]
    tokens: Final[list[int]]
    finish: Final[Finish]
    ended: Final[bool]
    problem: Final[str]
    logprobs: Final[list[tuple[float, list[tuple[int, float]]]]]
    text: Final[bytes]

class Interrupt:
    is_set: Final[bool]
    def set(self) -> None: ...
    def set_after(self, nodes: int) -> None: ...

class KeptPrefix:
    tokens: Final[list[int]]
    target: Final[bytes]
    draft: Final[bytes]
    fed: Final[int]
    least_cut: Final[int]
    points: Final[list[tuple[int, bytes, bytes]]]
    def __init__(
        self,
        tokens: Sequence[int],
        target: bytes,
        draft: bytes,
        fed: int,
        least_cut: int,
        points: Sequence[tuple[int, bytes, bytes]],
    ) -> None: ...

class GrammarText:
    def __init__(self, gbnf: str = "", tokens: set[int] = ..., any_token: bool = False) -> None: ...

class Order:
    width: Final[int]
    probe: Final[int]
    depth: Final[int]
    features: Final[bool]

class Controller:
    def __init__(
        self,
        points: Sequence[tuple[int, int, float, float, float, int]],
        *,
        widest: int,
        way: str = "free",
        depth: int = 0,
        slots: Sequence[tuple[int, int, float]] = ...,
        rebuild: float = 0.0,
        shift: float = 0.0,
        outcomes: Sequence[tuple[float, float]] = ...,
        rough: bool = False,
    ) -> None: ...
    def order(self, sequences: int, most: int, probing: bool) -> Order: ...
    def trim(self, confidence: Sequence[Sequence[float]], drafted_width: int) -> int: ...
    def wake(self) -> None: ...
    def first_depth(self) -> int: ...
    def saw_block(self, confidence: Sequence[float], tested: int, accepted: int) -> None: ...
    def saw_probe(self, confidence: Sequence[float], tested: int, accepted: int) -> None: ...
    def saw_probe_cost(self, ns: int) -> None: ...
    def saw_round(
        self,
        *,
        sequences: int = 1,
        drafted_width: int = 1,
        width: int = 1,
        rebuilt: bool = False,
        draft: int = 0,
        verify: int = 0,
        total: int = 0,
    ) -> None: ...
    def could_not_shift(self) -> None: ...
    def saw_shift(self, depth: int, ns: int) -> None: ...
    def chance(self, position: int, confidence: float | None = None) -> float: ...
    def estimates(
        self, widest: int, sequences: int = 1, depth: int = 0
    ) -> list[tuple[int, float, float, float]]: ...

class Session:
    n_ctx: Final[int]
    max_block: Final[int]
    draft_failure: Final[str]
    shift_failure: Final[str]
    depth: Final[int]
    prefill_rows: int
    outcomes: Final[list[tuple[float, float]]]
    sharpness: Final[Sharpness]
    times: Final[Times]
    kept_bytes: Final[int]
    prefix_memory: Final[int]
    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        max_block: int,
        *,
        replay: bool = False,
        prefix_memory: int = 0,
    ) -> None: ...
    def add(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        block: int,
        stops: set[int],
        stop_strings: Sequence[str | bytes] = ...,
        sampling: Sampling = ...,
        logprobs: int = -1,
        border: int = -1,
        grammar: GrammarText = ...,
    ) -> int: ...
    def steer(
        self,
        points: Sequence[tuple[int, int, float, float, float, int]],
        *,
        depth: int,
        slots: Sequence[tuple[int, int, float]],
        rebuild: float,
        shift: float,
        outcomes: Sequence[tuple[float, float]],
        rough: bool = False,
    ) -> None: ...
    def estimates(
        self, sequences: int = 1, depth: int = 0
    ) -> list[tuple[int, float, float, float]]: ...
    def copy_prefix(self, tokens: Sequence[int]) -> KeptPrefix: ...
    def adopt_prefix(self, kept: KeptPrefix) -> None: ...
    def forget_prefixes(self) -> None: ...
    def interrupt(self, id: int) -> Interrupt: ...
    def step(self) -> list[Output]: ...
    def held(self, id: int) -> bytes: ...
    def remove(self, id: int) -> None: ...
    def counters(self, id: int) -> Counters: ...

"""The lines under a table: where and with what it was measured, and how its figures are counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .figures import Figures
from .invariants import Finding
from .labels import column_names
from .records import ArmFacts, Bench, acceptances

_HASH = 16  # digits that are shown

_UNCHECKED = "Not checked whether counts and times add up: an older version saved this without what that takes."
_RULES = {
    "throughput": "tok/s: output tokens by wall-clock seconds, prompts and waiting included; median of {runs}, "
    "warm-up left out.",
    "speedup": "speed-up: over {baseline} in the same run; median of the runs' ratios.",
    "block": "block: rows of a verify, the drafted tokens and the one before them; llama-server's --spec-draft-n-max and 1.",
    "bold": "bold: the fastest speculative arm of a row.",
    "pairs": "MTP of n steps stands beside DFlash of block n + 1: both verify n + 1 rows at most.",
    "accept": "accept length: completion tokens by verifications of a turn, mean over turns; a turn without a "
    "verification has none; where only a server's counters tell, 1 and the accepted tokens by rounds with a draft.",
    "bold_pairs": "bold: the highest of one block.",
    "first_engine": "of several engines the first that has the block.",
    "decode": "decode tok/s: tokens after an answer's first, by the seconds from its first to its last, of one "
    "stream; by the arm's own clock, or by its client's (\"client\").",
    "first": "first token: from asking to the answer's first piece; median and 95th percentile over turns.",
    "apart": "prefill, decode: seconds of a turn by the arm's own clock; mean.",
    "acceptance": "accepted: of all drafted tokens.",
    "acceptance_at": "acceptance: accepted of drafted tokens, by position in the block, 1 the first drafted; by "
    "rounds where it is not told which positions were drafted.",
    "shares": "shares: of all stages' seconds together.",
    "texts": "texts: answers that are the same to the last character; rounding breaks near ties otherwise where a decode has "
    "other rows, and the text is another one from there on.",
    "memory": "peak: the most that the arm's process has held since it could begin to count; arms of this engine share "
    "one, and theirs is of all that are open.",
    "simulated": "simulated: how many drafts are accepted was drawn, not found out; texts are nobody's.",
}


class Notes:
    """Writes the notes of one measurement's tables.

    Attributes:
        commands: how servers were started, a line for each.
    """

    def __init__(self, bench: Bench, figures: Figures) -> None:
        names = column_names(figures.arms)
        prompts = [f"Prompts: {bench.prompts[:_HASH]}."] if bench.prompts else []
        self._where = (
            *where_lines(bench.facts),
            *_engines(bench.arms),
            *prompts,
            *_failures(bench, names),
            *filter(None, [figures.lacks]),
            *([_UNCHECKED] if figures.findings is None else found_lines(figures.findings, names)),
        )
        self.commands = _commands(bench.arms, names)
        counts = {figure.runs for figure in figures.by_key.values()}
        some = f"{min(counts)} to {max(counts)} runs"
        alike = f"{min(counts)} run" + ("s" if max(counts) > 1 else "")
        base = figures.baseline
        self._values = {
            "runs": alike if len(counts) == 1 else some,
            "baseline": "nothing (no baseline was measured)" if base is None else names[base],
        }
        self._simulated = (_RULES["simulated"], *_drawn(bench, names)) if figures.simulated else ()

    def of(self, *rules: str) -> tuple[str, ...]:
        """Return where and with what was measured, and these rules, a line each."""
        told = (_RULES[rule].format(**self._values) for rule in rules)
        return (*self._where, *self._simulated, *told)


def _drawn(bench: Bench, names: Mapping[str, str]) -> list[str]:
    told = [f"{names[name]} {said}" for name, said in acceptances(bench).items()]
    return [f"acceptance: {'; '.join(told)}."] if told else []


def where_lines(facts: Mapping[str, str | int | float | bool]) -> tuple[str, ...]:
    """Return lines of the machine, the files, the versions and the settings, as far as facts tell them."""

    def said(key: str, form: str = "{}") -> str:
        value = facts.get(key, "")
        return form.format(value) if value != "" else ""

    def file(role: str) -> str:
        about = ", ".join(filter(None, (said(f"{role}.size"), said(f"{role}.types"))))
        return said(f"{role}.file", f"{role} {{}}" + (f" ({about})" if about else ""))

    settings = [
        f"{key.removeprefix('settings.')} {value}"
        for key, value in facts.items()
        if key.startswith("settings.")
    ]
    lines = (
        _line(
            "Machine",
            (
                *(said("machine.cpu"), said("machine.cores", "{} cores"), said("machine.memory")),
                *(said("machine.os"), said("machine.devices", "devices {}")),
                said("threads", "threads {}"),
            ),
        ),
        _line("Files", (file("target"), file("draft"))),
        _line(
            "Versions",
            (
                said("version", "dflash-gguf {}") + said("revision", " ({})"),
                *(said("llama.cpp", "llama.cpp {}"), said("python", "Python {}"), said("date")),
            ),
        ),
        _line("Settings", (*settings, said("simulated.curve", "acceptance drawn from {}"))),
    )
    return tuple(line for line in lines if line)


def _engines(arms: tuple[ArmFacts, ...]) -> list[str]:
    """What the arms of an engine have in common; engines that say nothing of themselves are left out."""
    parts = []
    for engine in dict.fromkeys(arm.speaks_for for arm in arms):
        details = [arm.details for arm in arms if arm.speaks_for == engine]
        common = [
            f"{key} {value}"
            for key, value in details[0].items()
            if all(other.get(key) == value for other in details)
        ]
        if common:
            parts.append(f"{engine} ({', '.join(common)})")
    return [_line("Engines", parts)] if parts else []


def _commands(arms: Iterable[ArmFacts], names: Mapping[str, str]) -> tuple[str, ...]:
    """How servers were started, a line for each."""
    told = ((names[arm.name], arm.details.get("command")) for arm in arms)
    return tuple(f"{name}: {command}" for name, command in told if command)


def _failures(bench: Bench, names: dict[str, str]) -> list[str]:
    """A line for each arm that could not go on, which is why its later cells are missing."""
    return [
        f"Failed: {names.get(each.arm, each.arm)} on {each.workload} at concurrency {each.concurrency}, "
        f"{'while opening' if each.run is None else f'run {each.run}'}: {' '.join(each.error.split())}"
        for each in bench.failures
    ]


def found_lines(findings: Sequence[Finding], names: Mapping[str, str]) -> list[str]:
    """Return a line for each rule that an arm breaks, with the first place where it does."""
    kinds: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.level, finding.name, finding.arm), []).append(finding)
    lines = []
    for (level, name, arm), found in kinds.items():
        times = f", {len(found)} times, first" if len(found) > 1 else ""
        trust = "Fault, these figures cannot be trusted" if level == "fault" else "Warning"
        text = " ".join(found[0].text.split())
        lines.append(f"{trust}: {name}: {names.get(arm, arm)}{times}{found[0].place()}: {text}.")
    return lines


def _line(title: str, parts: Iterable[str]) -> str:
    told = [part for part in parts if part]
    return f"{title}: {', '.join(told)}." if told else ""

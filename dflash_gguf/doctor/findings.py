"""What a check finds, and how a check that fails itself becomes a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import NOT_INSTALLED, DflashError
from ..faults import one_line

OK, NOTE, FAULT = "ok", "note", "fault"
# of several faults: what breaks everything, a pair that cannot be, a machine that is too small
_WORST = (1, 3, 4)
_REINSTALL = "pip install --force-reinstall dflash-gguf"

Check = Callable[[], Iterable["Finding"]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        check: what was looked at, in a word.
        state: "ok", "note" (works, could be better) or "fault".
        text: what was found, in one line.
        remedy: what to do about it; empty if nothing needs to be done.
        code: of a fault the exit code: 3 incompatible model, 4 resources, 1 anything else; else 0.
        facts: the values behind the text, for JSON.
    """

    check: str
    state: str
    text: str
    remedy: str = ""
    code: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def render(self) -> str:
        """Return it for people, with a line break; names in it may hold anything."""
        lines = f"{self.state:<5}  {self.check}: {one_line(self.text)}\n"
        return lines + (f"       do: {one_line(self.remedy)}\n" if self.remedy else "")


def ok(check: str, text: str, **facts: Any) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, OK, text, facts=facts)


def note(check: str, text: str, remedy: str = "", **facts: Any) -> Finding:
    """Return a finding about what works and could be better."""
    return Finding(check, NOTE, text, remedy, facts=facts)


def fault(check: str, text: str, remedy: str = "", code: int = 1, **facts: Any) -> Finding:
    """Return a finding that something does not work."""
    return Finding(check, FAULT, text, remedy, code, facts)


def of_error(check: str, error: Exception) -> Finding:
    """Return what an error of a check means: our own say what to do themselves."""
    if isinstance(error, DflashError):
        text, _, remedy = str(error).rpartition("; ")
        code = error.exit_code if error.exit_code in _WORST else 1
        return fault(check, text or remedy, remedy if text else "", code)
    if isinstance(error, MemoryError):
        return fault(check, "out of memory", "end other programs, or take a smaller model", 4)
    if isinstance(error, OSError):
        return fault(check, f"{error.filename or 'input or output'}: {error.strerror or error}")
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("dflash_gguf."):
        text, _, remedy = NOT_INSTALLED.rpartition("; ")
        return fault(check, text, remedy)
    text = f"it could not be checked ({type(error).__name__}: {error})"
    broken = isinstance(error, ImportError)
    return fault(check, text, f"reinstall it: {_REINSTALL}" if broken else "")


def findings_of(check: str, look: Check) -> Iterator[Finding]:
    """Yield what a check finds; where it fails, that is a finding."""
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001  nothing may end the doctor
        yield of_error(check, error)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0, or the code of the worst fault."""
    codes = {finding.code for finding in findings if finding.state == FAULT}
    return next((code for code in _WORST if code in codes), 0)

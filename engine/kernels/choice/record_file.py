"""The file that keeps what was measured, so that a later run measures nothing and computes the same bits.

    {"autotune": 9, "machine": {"processor": "AMD EPYC (family 25, model 17)", "pytorch": "2.13.0", "threads": 1, ...},
     "operations": {"convolution forward: x 64x1x28x28 ...": {"rule": "aten", "chosen": "aten", "ms": {"aten": 1.05},
                                                               "unfit": ["winograd_f75"]}}}

Times hold for one kind of processor (or GPU), PyTorch and number of threads; the file says which.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from mgcaffe.engine.kernels import processor
from mgcaffe.engine.kernels.choice.choices import Measured, Records
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError, Location
from mgcaffe.errors.checked_json import Json, parse_json
from mgcaffe.errors.whole_files import write_whole

_VERSION = 9
_COMPLAINT = "this is no record of measured candidates"
_HINT = "give --autotune the name of a new file, and the candidates are measured and written to it"


@dataclass(frozen=True)
class Machine:
    """What measured times hold for.

    Attributes:
        processor: the CPU, or the GPU that computes.
        pytorch: the version of PyTorch.
        threads: how many threads compute.
    """

    processor: str
    pytorch: str
    threads: int

    @classmethod
    def here(cls, device: torch.device) -> Machine:
        """Return this one, with the threads that PyTorch is set to now."""
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor.name()
        return cls(name, str(torch.__version__), torch.get_num_threads())

    def default_file(self) -> Path:
        """Return the file in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache) that is this machine's.

        Raises:
            DataError: there is no such folder, since the user has no home.
        """
        try:
            root = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        except RuntimeError:
            raise DataError(
                "there is no folder for what autotune measures: this user has no home",
                hint="set HOME or XDG_CACHE_HOME, or name a file: --autotune=FILE",
            ) from None
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        name = re.sub(r"[^A-Za-z0-9]+", "-", self.processor).strip("-").lower()[:40]
        return Path(root, "mgcaffe", "autotune", f"{name}-{self.threads}-threads-{digest}.json")


def read_records(path: Path, machine: Machine) -> Records:
    """Read what was measured on such a machine.

    Raises:
        DataError: the file cannot be read, is damaged, or holds for another machine.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}", hint=_HINT) from None
    document = parse_json(text, str(path), _COMPLAINT, hint=_HINT)
    version = document["autotune"]
    if version.integer() != _VERSION:
        version.fail(f"it has version {version.integer()}, and this program reads version {_VERSION}")
    stored = document["machine"]
    found = Machine(stored["processor"].text(), stored["pytorch"].text(), stored["threads"].integer(least=1))
    if found != machine:
        raise DataError(
            f"what was measured holds for {_described(found)}; this is {_described(machine)}",
            location=Location(str(path)),
            hint=_HINT,
        )
    return {name: _measured(entry) for name, entry in document["operations"].members().items()}


def _described(machine: Machine) -> str:
    threads = f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"
    return f"{machine.processor}, PyTorch {machine.pytorch}, {threads}"


def _measured(entry: Json) -> Measured:
    seconds = {name: value.number(least=0.0) / 1e3 for name, value in entry["ms"].members().items()}
    rule, chosen = entry["rule"].text(), entry["chosen"].text()
    for name in (rule, chosen):
        if name not in seconds:
            entry.fail(f"{entry.path} names '{name}', which ms has no time of")
    unfit = entry.get("unfit")
    return Measured(
        rule, chosen, seconds, frozenset(each.text() for each in unfit.elements()) if unfit else frozenset()
    )


def write_records(path: Path, machine: Machine, records: Records) -> None:
    """Write what was measured; a reader finds the old content or the new.

    Raises:
        DataError: (exit code 73) the file cannot be written.
    """
    operations = ",\n".join(f"  {json.dumps(text)}: {json.dumps(_entry(records[text]))}" for text in sorted(records))
    head = f' "autotune": {_VERSION},\n "machine": {json.dumps(asdict(machine))},\n'
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f'{{\n{head} "operations": {{\n{operations}\n }}\n}}\n'.encode())
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}", exit_code=EXIT_CANNOT_WRITE) from None


def _entry(measured: Measured) -> dict[str, object]:
    times = {name: round(1e3 * seconds, 6) for name, seconds in measured.seconds.items()}
    entry: dict[str, object] = {"rule": measured.rule, "chosen": measured.chosen, "ms": times}
    return entry | ({"unfit": sorted(measured.unfit)} if measured.unfit else {})

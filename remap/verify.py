"""Is an output what it should be? Headers against a plan, digests against a receipt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from remap.comparing.digests import digests, other_bytes
from remap.errors import VerifyError
from remap.expr import Take
from remap.plan import Plan
from remap.receipt import Receipt
from remap.types import Catalog, Entry


def check_headers(plan: Plan, written: Mapping[str, Entry]) -> None:
    """Raise VerifyError unless ``written``, re-opened, has just the plan's keys with their specs."""
    wanted = {o.key: o.expr.spec for o in plan.outputs}
    problems = [f"{k}: missing from the output" for k in wanted if k not in written]
    problems += [f"{k}: not in the plan" for k in written if k not in wanted]
    problems += [
        f"{k}: planned {spec}, found {written[k].spec}"
        for k, spec in wanted.items()
        if k in written and written[k].spec != spec
    ]
    if problems:
        raise VerifyError("the output is not what the plan says; it was discarded", problems=problems)


def check_files(receipt: Receipt, folder: Path, entries: Mapping[str, Entry]) -> list[str]:
    """One line for each file of the receipt that is not as it was written, tensors aside; ``folder`` holds
    them, and ``entries`` is what a reader found in them."""
    problems = []
    there = {}
    for name, file in receipt.files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name}: missing")
        elif path.stat().st_size != file.size:
            problems.append(f"{name}: {path.stat().st_size} bytes, the receipt says {file.size}")
        else:
            there[name] = path
    found = other_bytes(there, [e for k, e in entries.items() if k in receipt.tensors])
    return problems + [
        f"{name}: what it holds beside tensors is not what was written"
        for name, digest in found.items()
        if digest != receipt.files[name].xxh3_128
    ]


def check_receipt(receipt: Receipt, catalog: Catalog) -> list[str]:
    """Re-read every tensor of ``catalog``; one line for each way in which it departs from the receipt."""
    entries = held_by(catalog, receipt)
    problems = [f"{k}: missing" for k in receipt.tensors if k not in entries]
    problems += [
        f"{k}: not in the receipt"
        for k in catalog.entries
        if entries is catalog.entries and k not in receipt.tensors
    ]
    both = {k: Take(e) for k, e in entries.items() if k in receipt.tensors}
    found = digests(both)
    for key, take in both.items():
        tensor = receipt.tensors[key]
        if (take.spec.dtype.name, list(take.spec.shape)) != (tensor.dtype, tensor.shape):
            problems.append(f"{key}: {take.spec}, the receipt says {tensor.dtype}{tensor.shape}")
        elif found[key] != tensor.xxh3_128:
            problems.append(f"{key}: its bytes have digest {found[key]}, the receipt says {tensor.xxh3_128}")
    return problems


def held_by(catalog: Catalog, receipt: Receipt) -> Mapping[str, Entry]:
    """The tensors that a receipt speaks of: those of the model by name, or (after a reshard) as the files
    hold them."""
    return catalog.stored if receipt.tensors.keys() & catalog.stored.keys() else catalog.entries


def check_digests(receipt: Receipt, plan: Plan) -> list[str]:
    """One line for each tensor that ``plan``, made anew, gives other bytes than the receipt says."""
    found = digests({o.key: o.expr for o in plan.outputs})
    problems = [f"{k}: the source does not give it" for k in receipt.tensors if k not in found]
    problems += [
        f"{k}: the source gives it, the receipt has it not" for k in found if k not in receipt.tensors
    ]
    problems += [
        f"{k}: the source gives digest {found[k]}, the receipt says {t.xxh3_128}"
        for k, t in receipt.tensors.items()
        if k in found and found[k] != t.xxh3_128
    ]
    return problems

"""The machine that numbers were measured on."""

import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Processor, cores, memory and graphics card; no name that would tell whose machine it is."""
    import torch as th

    found: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found["memory_gb"] = round(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1
        )
    found["gpu"] = th.cuda.get_device_name() if th.cuda.is_available() else "none"
    return found


def _processor() -> str:
    if (info := Path("/proc/cpuinfo")).is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

"""How many GPUs there are, found out without torch, which takes longer to load than a small dump takes to measure.

CUDA's driver itself is asked.  Device files may lie there without a driver, and the kernel tells a container of GPUs
that it was not given; the driver knows of neither, and of what CUDA_VISIBLE_DEVICES leaves, named by number, by UUID or
as a part of a GPU (MIG).  Where no driver is installed, that takes a tenth of a millisecond; where there is a GPU, as
long as torch would take to begin with it.  As after torch began with it, a fork of this process cannot use the GPU.

A driver says nothing of torch, which may have been built without CUDA, or for GPUs of another maker.
"""

import os
import sys

DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
HIDDEN = ("", "-1")
"""What CUDA_VISIBLE_DEVICES holds where no GPU is to be used."""


def visible_gpu_count(driver: str = DRIVER) -> int:
    """GPUs that CUDA offers this process; 0 where there is no driver, or it finds none.

    driver: the library that is asked, by a name that the system looks up or by its path.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in HIDDEN:
        return 0
    import ctypes

    count = ctypes.c_int(0)
    try:
        cuda = ctypes.CDLL(driver)
        failed = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    except (OSError, AttributeError):  # no such library, or one of something else
        return 0
    return 0 if failed else count.value
